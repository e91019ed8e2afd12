// Fewer, longer axes: elementwise work is described by the axes that must be told apart, so that many shapes share a kernel.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/type.h"
#include "ir/graph/op_def.h"

namespace ingot::codegen {

/// A run of neighbouring result axes along which each operand either has all elements or is constant.
struct Axis {
  int64_t size = 1;
  std::vector<bool> present;  ///< per operand; false = broadcast along it
};

/// Axes of length 1 vanish; neighbours that every operand treats alike become one. At least one axis is returned.
std::vector<Axis> collapse(const ir::Shape& result, const std::vector<ir::Shape>& operands);

/// An axis of a view: index i reads the operand `stride` elements further on; a guarded one is shifted (ir::View).
struct ViewAxis {
  int64_t size = 1, stride = 0;
  bool guarded = false;
};

/// Axes of length 1 vanish unless guarded; neighbours become one where stepping out of the inner one lands on the next of the
/// outer.
std::vector<ViewAxis> collapse_view(const ir::View& view);

}  // namespace ingot::codegen
