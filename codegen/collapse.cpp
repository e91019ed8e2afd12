#include "codegen/collapse.h"

namespace ingot::codegen {

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

std::vector<ViewAxis> collapse_view(const ir::View& view) {
  std::vector<ViewAxis> out;
  for (size_t k = 0; k < view.dims.size(); ++k) {
    const ViewAxis axis{view.dims[k], view.strides[k], static_cast<int>(k) == view.guard_axis};
    if (axis.size == 1 && !axis.guarded) continue;
    ViewAxis* outer = out.empty() ? nullptr : &out.back();
    if (outer != nullptr && !outer->guarded && !axis.guarded && outer->stride == axis.stride * axis.size) {
      *outer = {outer->size * axis.size, axis.stride, false};
    } else {
      out.push_back(axis);
    }
  }
  if (out.empty()) out.push_back({1, 0, false});
  return out;
}

}  // namespace ingot::codegen
