// Reductions over any axes, as a chain of steps that each shorten or remove one run of axes.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/graph/op_def.h"

namespace ingot::codegen {

std::string_view combine_name(ir::Combine combine);

/// One launch's shape: [outer, length, inner] -> [outer, blocks, inner].
struct ReductionStep {
  int64_t outer = 1, length = 1, inner = 1;
  int64_t block = 1;
  int64_t blocks() const { return (length + block - 1) / block; }
  int64_t results() const { return outer * blocks() * inner; }
};

/// The steps of a reduction over `axes`; `block_of` says how many elements of a run one result of a step combines (all of them:
/// its length). At least one step: with nothing to combine it is a copy, perhaps to another dtype.
std::vector<ReductionStep> plan_reduction(const ir::Shape& shape, const std::vector<int64_t>& axes,
                                          int64_t (*block_of)(const ReductionStep& step));

}  // namespace ingot::codegen
