#include "runtime/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "ir/base/text.h"

namespace ingot::runtime {
namespace {

double unit(uint32_t word) { return (word + 0.5) * 0x1p-32; }

// Box-Muller: two uniforms to two independent normals.
void normal_pair(uint32_t a, uint32_t b, double* to) {
  const double radius = std::sqrt(-2 * std::log(unit(a)));
  const double angle = 2 * std::numbers::pi * unit(b);
  to[0] = radius * std::cos(angle);
  to[1] = radius * std::sin(angle);
}

}  // namespace

std::array<uint32_t, 4> Random::words(uint64_t counter) const {
  std::array<uint32_t, 4> x{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  auto k0 = static_cast<uint32_t>(key_), k1 = static_cast<uint32_t>(key_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * x[0], p1 = uint64_t{0xCD9E8D57u} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1,
         static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

double Random::uniform(uint64_t index) const { return unit(words(index / 4)[index % 4]); }

void Random::uniforms(uint64_t first, int64_t count, double* to) const {
  for (int64_t i = 0; i < count; i += 4) {
    const auto word = words((first + static_cast<uint64_t>(i)) / 4);
    for (int64_t j = 0; j < std::min<int64_t>(4, count - i); ++j) to[i + j] = unit(word[static_cast<size_t>(j)]);
  }
}

void Random::normals(uint64_t first, int64_t count, double* to) const {
  for (int64_t i = 0; i < count; i += 4) {
    const auto word = words((first + static_cast<uint64_t>(i)) / 4);
    double four[4];
    normal_pair(word[0], word[1], four);
    normal_pair(word[2], word[3], four + 2);
    std::copy_n(four, std::min<int64_t>(4, count - i), to + i);
  }
}

uint64_t random_key(uint64_t seed, std::string_view name, int draw) {
  return ir::hash64(std::to_string(seed) + "/" + std::to_string(draw) + "/" + std::string(name));
}

}  // namespace ingot::runtime
