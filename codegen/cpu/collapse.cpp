#include "codegen/cpu/collapse.h"

namespace ingot::codegen::cpu {

std::vector<Axis> collapse(const ir::Shape& result, const std::vector<ir::Shape>& operands) {
  std::vector<Axis> out;
  for (size_t k = 0; k < result.size(); ++k) {
    if (result[k] == 1) continue;
    Axis axis;
    axis.size = result[k];
    for (const ir::Shape& shape : operands) {
      const size_t missing = result.size() - shape.size();  // operands broadcast from the right
      axis.present.push_back(k >= missing && shape[k - missing] != 1);
    }
    if (!out.empty() && out.back().present == axis.present) {
      out.back().size *= axis.size;
    } else {
      out.push_back(std::move(axis));
    }
  }
  if (out.empty()) out.push_back({1, std::vector<bool>(operands.size(), true)});
  return out;
}

}  // namespace ingot::codegen::cpu
