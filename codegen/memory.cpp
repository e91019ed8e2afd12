#include "codegen/memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "ir/plan/plan.h"

namespace ingot::codegen {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + ir::kBufferAlignment - 1) / ir::kBufferAlignment * ir::kBufferAlignment; }

struct Placed {
  int64_t offset, end;
  int first, last;
};

/// Places lives in the order given. O(n^2) in their number: a scan of what is placed, kept by offset, for each.
class Packer {
 public:
  int64_t add(const Life& life) {
    const int64_t size = round_up(life.bytes);
    int64_t cursor = 0, best = -1, best_gap = 0;
    for (const Placed& p : placed_) {
      if (p.last < life.first || life.last < p.first) continue;
      const int64_t gap = p.offset - cursor;
      if (gap >= size && (best < 0 || gap < best_gap)) best = cursor, best_gap = gap;
      cursor = std::max(cursor, p.end);
    }
    const int64_t offset = best >= 0 ? best : cursor;
    const Placed now{offset, offset + size, life.first, life.last};
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), now,
                                    [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
                   now);
    bytes_ = std::max(bytes_, now.end);
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<Placed> placed_;
  int64_t bytes_ = 0;
};

/// What is live when, sizes rounded up.
class Fullness {
 public:
  explicit Fullness(const std::vector<Life>& lives) {
    int calls = 0;
    for (const Life& life : lives) calls = std::max(calls, life.last + 1);
    live_.assign(static_cast<size_t>(calls) + 1, 0);
    for (const Life& life : lives) {
      live_[life.first] += round_up(life.bytes);
      live_[life.last + 1] -= round_up(life.bytes);
    }
    std::partial_sum(live_.begin(), live_.end(), live_.begin());
  }
  int64_t most() const { return *std::max_element(live_.begin(), live_.end()); }
  int fullest_call() const { return static_cast<int>(std::max_element(live_.begin(), live_.end()) - live_.begin()); }
  int64_t most_during(const Life& life) const {
    return *std::max_element(live_.begin() + life.first, live_.begin() + life.last + 1);
  }

 private:
  std::vector<int64_t> live_;  ///< per call
};

Placement pack(const std::vector<Life>& lives, const std::vector<size_t>& order) {
  Placement out;
  out.offsets.resize(lives.size());
  Packer packer;
  for (const size_t i : order) out.offsets[i] = packer.add(lives[i]);
  out.bytes = packer.bytes();
  return out;
}

template <class Key>
std::vector<size_t> sorted(const std::vector<Life>& lives, Key key) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<decltype(key(lives[0]))> keys;
  for (const Life& life : lives) keys.push_back(key(life));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  return order;
}

// Packs in this order; lives that end above the bound go first next time, so that what is left finds room around them.
void try_order(const std::vector<Life>& lives, int64_t bound, std::vector<size_t> order, size_t rounds, Placement& best) {
  for (size_t round = 0; round <= rounds && (best.offsets.empty() || best.bytes > bound); ++round) {
    Placement now = pack(lives, order);
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t i) { return now.offsets[i] + round_up(lives[i].bytes) > bound; });
    if (best.offsets.empty() || now.bytes < best.bytes) {
      best.offsets = std::move(now.offsets);
      best.bytes = now.bytes;
    }
  }
}

// Small programs have few lives of odd sizes, where every rule misses at times: many orders near "large and long first", drawn
// from a fixed sequence. Nothing for large ones, whose lives are many of few sizes.
void shake(const std::vector<Life>& lives, Placement& best) {
  const size_t tries = std::min<size_t>(150, 30'000'000 / std::max<size_t>(lives.size() * lives.size(), 1));
  uint64_t state = 1;
  for (size_t i = 0; i < tries && best.bytes > best.bound; ++i) {
    try_order(lives, best.bound,
              sorted(lives,
                     [&](const Life& l) {
                       state = state * 6364136223846793005u + 1442695040888963407u;
                       const double factor = 1 + static_cast<double>(state >> 40) * 0x1p-23;  // 1 to 3
                       return -static_cast<double>(round_up(l.bytes)) * std::sqrt(static_cast<double>(l.last - l.first + 1)) *
                              factor;
                     }),
              2, best);
  }
}

}  // namespace

Placement place(const std::vector<Life>& lives, bool reuse) {
  Placement best;
  const Fullness fullness(lives);
  best.bound = fullness.most();
  if (!reuse) {
    for (const Life& life : lives) {
      best.offsets.push_back(best.bytes);
      best.bytes += round_up(life.bytes);
    }
    return best;
  }
  const auto size = [](const Life& l) { return round_up(l.bytes); };
  const auto length = [](const Life& l) { return int64_t{l.last} - l.first + 1; };
  const int fullest = fullness.fullest_call();
  const auto at_fullest = [&](const Life& l) { return l.first <= fullest && fullest <= l.last; };
  // Fewer rounds when there are many lives: a round is quadratic.
  const size_t rounds = std::min<size_t>(16, 200'000'000 / std::max<size_t>(lives.size() * lives.size(), 1));
  const auto attempt = [&](auto key) { try_order(lives, best.bound, sorted(lives, key), rounds, best); };
  attempt([&](const Life& l) { return std::tuple(-size(l), l.first); });
  attempt([&](const Life& l) { return std::tuple(-size(l), -length(l)); });
  attempt([&](const Life& l) { return std::tuple(-fullness.most_during(l), -size(l), -length(l)); });
  attempt([&](const Life& l) { return std::tuple(!at_fullest(l), at_fullest(l) ? -length(l) : -size(l), -length(l)); });
  attempt([&](const Life& l) { return std::tuple(-length(l), -size(l)); });
  shake(lives, best);
  return best;
}

}  // namespace ingot::codegen
