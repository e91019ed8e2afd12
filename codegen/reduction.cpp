#include "codegen/reduction.h"

#include <algorithm>

#include "ir/base/error.h"

namespace ingot::codegen {

std::string_view combine_name(ir::Combine combine) {
  switch (combine) {
    case ir::Combine::sum:
      return "sum";
    case ir::Combine::max:
      return "max";
    case ir::Combine::min:
      return "min";
  }
  throw ir::InternalError("combine_name: no such combination");
}

namespace {

struct Run {
  int64_t size = 1;
  bool reduced = false;
};

/// Axes of length 1 vanish, neighbours of a kind become one.
std::vector<Run> runs_of(const ir::Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<Run> out;
  for (size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(k)) != axes.end();
    if (!out.empty() && out.back().reduced == reduced) {
      out.back().size *= shape[k];
    } else {
      out.push_back({shape[k], reduced});
    }
  }
  return out;
}

}  // namespace

/// Removes the last reduced run again and again until none is left.
std::vector<ReductionStep> plan_reduction(const ir::Shape& shape, const std::vector<int64_t>& axes,
                                          int64_t (*block_of)(const ReductionStep& step)) {
  std::vector<Run> runs = runs_of(shape, axes);
  std::vector<ReductionStep> steps;
  for (;;) {
    size_t k = runs.size();
    while (k > 0 && !runs[k - 1].reduced) --k;
    if (k == 0) break;
    ReductionStep step;
    for (size_t j = 0; j < runs.size(); ++j) (j + 1 < k ? step.outer : j + 1 == k ? step.length : step.inner) *= runs[j].size;
    step.block = block_of(step);
    runs[k - 1].size = step.blocks();
    steps.push_back(step);
    if (step.blocks() == 1) runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(k - 1));
  }
  if (steps.empty()) {  // nothing to combine: a copy, perhaps to another dtype
    ReductionStep copy;
    for (const Run& run : runs) copy.inner *= run.size;
    steps.push_back(copy);
  }
  return steps;
}

}  // namespace ingot::codegen
