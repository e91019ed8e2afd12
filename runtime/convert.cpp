#include "runtime/convert.h"

#include <cmath>
#include <cstring>

#include "ir/base/error.h"

namespace ingot::runtime {
namespace {

template <typename T>
double load_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

template <typename T>
void store_as(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

uint16_t load_bits16(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

}  // namespace

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24 is exact in f32
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the fraction, rounded, in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

void to_f32(ir::DType dtype, const void* from, float* to, int64_t count) {
  if (dtype == ir::DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const auto* bits = static_cast<const uint16_t*>(from);
  if (dtype == ir::DType::bf16) {
    for (int64_t i = 0; i < count; ++i) to[i] = bf16_to_f32(bits[i]);
    return;
  }
  ir::check(dtype == ir::DType::f16, "to_f32: not a float dtype");
  for (int64_t i = 0; i < count; ++i) to[i] = f16_to_f32(bits[i]);
}

void from_f32(ir::DType dtype, const float* from, void* to, int64_t count) {
  if (dtype == ir::DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* bits = static_cast<uint16_t*>(to);
  if (dtype == ir::DType::bf16) {
    for (int64_t i = 0; i < count; ++i) bits[i] = f32_to_bf16(from[i]);
    return;
  }
  ir::check(dtype == ir::DType::f16, "from_f32: not a float dtype");
  for (int64_t i = 0; i < count; ++i) bits[i] = f32_to_f16(from[i]);
}

double load_double(ir::DType dtype, const std::byte* from) {
  switch (dtype) {
    case ir::DType::f32:
      return load_as<float>(from);
    case ir::DType::bf16:
      return static_cast<double>(bf16_to_f32(load_bits16(from)));
    case ir::DType::f16:
      return static_cast<double>(f16_to_f32(load_bits16(from)));
    case ir::DType::i32:
      return load_as<int32_t>(from);
    case ir::DType::i64:
      return load_as<int64_t>(from);
    case ir::DType::boolean:
      return load_as<uint8_t>(from);
  }
  return 0;
}

void store_double(ir::DType dtype, double value, std::byte* to) {
  value = ir::round_to(dtype, value);  // one rounding, from double; what follows is exact
  switch (dtype) {
    case ir::DType::f32:
      return store_as(static_cast<float>(value), to);
    case ir::DType::bf16:
      return store_as(f32_to_bf16(static_cast<float>(value)), to);
    case ir::DType::f16:
      return store_as(f32_to_f16(static_cast<float>(value)), to);
    case ir::DType::i32:
      return store_as(static_cast<int32_t>(value), to);
    case ir::DType::i64:
      return store_as(static_cast<int64_t>(value), to);
    case ir::DType::boolean:
      return store_as(static_cast<uint8_t>(value), to);
  }
}

}  // namespace ingot::runtime
