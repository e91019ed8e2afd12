// Fewer, longer axes: elementwise work is described by the axes that must be told apart, so that many shapes share a kernel.
#pragma once
#include <vector>

#include "ir/base/type.h"

namespace ingot::codegen::cpu {

/// A run of neighbouring result axes along which each operand either has all elements or is constant.
struct Axis {
  int64_t size = 1;
  std::vector<bool> present;  ///< per operand; false = broadcast along it
};

/// Axes of length 1 vanish; neighbours that every operand treats alike become one. At least one axis is returned.
std::vector<Axis> collapse(const ir::Shape& result, const std::vector<ir::Shape>& operands);

}  // namespace ingot::codegen::cpu
