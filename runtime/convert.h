// 16-bit floats to and from f32, one value and whole arrays. Round to nearest even; NaN stays NaN.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ir/base/type.h"

namespace ingot::runtime {

inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN: keep it one, quiet
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);

/// Arrays. `dtype` is f32, bf16 or f16.
void to_f32(ir::DType dtype, const void* from, float* to, int64_t count);
void from_f32(ir::DType dtype, const float* from, void* to, int64_t count);

/// One value of any dtype, as double; the inverse rounds as ir::round_to does.
double load_double(ir::DType dtype, const std::byte* from);
void store_double(ir::DType dtype, double value, std::byte* to);

}  // namespace ingot::runtime
