// Types: what is stored. A value is rounded when, and only when, it is written to a buffer.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::ir {

enum class DType : uint8_t { f32, bf16, f16, i32, i64, boolean };  // boolean is one byte, 0 or 1; text "bool"

std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
int64_t dtype_bytes(DType dtype);
bool is_float(DType dtype);
/// Rounds a double to what `dtype` stores (round to nearest even; integers truncate; bool is x != 0).
double round_to(DType dtype, double value);

using Shape = std::vector<int64_t>;

int64_t element_count(const Shape& shape);
/// "[8, 128, 768]"
std::string shape_text(const Shape& shape);

/// dtype and static shape, row-major, densely stored. A scalar has rank 0: f32[].
struct Type {
  DType dtype = DType::f32;
  Shape shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t elements() const { return element_count(shape); }
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
  /// "bf16[8, 128, 768]"
  std::string text() const;
  bool operator==(const Type&) const = default;
};

/// NumPy broadcasting from the right; nullopt when an axis differs and neither side is 1.
std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b);

/// Result dtype of arithmetic on these operands. Rank-0 operands are weak: they decide only when all are rank 0
/// (so `1 - x` keeps x's dtype). Among the rest: f32 beats bf16 and f16, which meet in f32; float beats int; i64 beats i32.
DType promote(const std::vector<Type>& operands);

}  // namespace ingot::ir
