#include "ir/base/type.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace ingot::ir {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  bool is_float;
};
constexpr std::array<DTypeRow, 6> kDTypes{{{DType::f32, "f32", 4, true},
                                           {DType::bf16, "bf16", 2, true},
                                           {DType::f16, "f16", 2, true},
                                           {DType::i32, "i32", 4, false},
                                           {DType::i64, "i64", 8, false},
                                           {DType::boolean, "bool", 1, false}}};

const DTypeRow& row(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

// Rounds to `bits` explicit fraction bits with smallest exponent `low`, largest finite value `most`: nearest, ties to even,
// in one rounding from double (through float would round twice).
double round_float(double value, int bits, int low, double most) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), low);
  const double unit = std::ldexp(1.0, exponent - bits);
  const double rounded = std::nearbyint(value / unit) * unit;
  if (std::abs(rounded) > most) return std::copysign(HUGE_VAL, value);
  return rounded == 0 ? std::copysign(0.0, value) : rounded;
}

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeRow& r : kDTypes) {
    if (r.name == name) return r.dtype;
  }
  return std::nullopt;
}

int64_t dtype_bytes(DType dtype) { return row(dtype).bytes; }
bool is_float(DType dtype) { return row(dtype).is_float; }

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f32: return static_cast<double>(static_cast<float>(value));
    case DType::bf16: return round_float(value, 7, -126, 0x1.fep127);
    case DType::f16: return round_float(value, 10, -14, 65504.0);
    case DType::i32:
    case DType::i64: return std::trunc(value);
    case DType::boolean: return value != 0 ? 1 : 0;
  }
  return value;
}

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string Type::text() const { return std::string(dtype_name(dtype)) + shape_text(shape); }

std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape out(rank);
  for (size_t i = 0; i < rank; ++i) {  // i counts from the right
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[rank - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

DType promote(const std::vector<Type>& operands) {
  bool strong = false;
  for (const Type& t : operands) strong = strong || t.rank() > 0;
  std::optional<DType> best;
  const auto meet = [](DType a, DType b) {
    if (a == b) return a;
    if (is_float(a) && is_float(b)) return DType::f32;
    if (is_float(a)) return a;
    if (is_float(b)) return b;
    return static_cast<DType>(std::min(static_cast<int>(DType::i64), std::max(static_cast<int>(a == DType::boolean ? DType::i32 : a),
                                                                            static_cast<int>(b == DType::boolean ? DType::i32 : b))));
  };
  for (const Type& t : operands) {
    if (strong && t.rank() == 0) continue;
    best = best ? meet(*best, t.dtype) : t.dtype;
  }
  // A weak float scalar still turns integers into floats: 0.5 * ids is f32, not i32.
  if (best && !is_float(*best)) {
    for (const Type& t : operands) {
      if (is_float(t.dtype)) return DType::f32;
    }
  }
  return best.value_or(DType::f32);
}

}  // namespace ingot::ir
