// Partial rows that fused regions left, added by one launch for many of them: a sum is so many blocks, the next one's follow.
#include <fmt/format.h>

#include <map>

#include "codegen/cuda/emit.h"

namespace ingot::codegen::cuda {
namespace {

using Indexes = std::vector<size_t>;

// The sum that a block belongs to, of those from `begin` on, found by halves: nothing is read before that.
std::string find(std::string_view type, const Indexes& sums, const std::vector<bool>& plus, size_t begin, size_t end) {
  if (end - begin == 1) {
    const std::string added = plus[sums[begin]] ? fmt::format("plus{}", sums[begin]) : "nullptr";
    return fmt::format("ig_row_sum<{0}>{{part{1}, {2}, out{1}, rows{1}, width{1}, end{1}}}", type, sums[begin], added);
  }
  const size_t middle = (begin + end) / 2;
  return fmt::format("(block < end{} ?\n    {} :\n    {})", sums[middle - 1], find(type, sums, plus, begin, middle),
                     find(type, sums, plus, middle, end));
}

}  // namespace

Launch add_row_sums(const std::vector<RowSum>& sums) {
  std::map<ir::DType, Indexes> by_dtype;  // blocks in this order, so that what adds stands in the text once a dtype
  for (size_t k = 0; k < sums.size(); ++k) by_dtype[sums[k].dtype].push_back(k);
  std::vector<int64_t> ends(sums.size());
  std::vector<bool> plus;
  for (const RowSum& sum : sums) plus.push_back(sum.plus);
  int64_t blocks = 0;
  std::string text = "  const int64_t block = blockIdx.x;\n";
  for (const auto& [dtype, indexes] : by_dtype) {
    for (const size_t k : indexes) ends[k] = blocks += (sums[k].width + 31) / 32;
    text += fmt::format("  if (block < end{}) return ig_add_partials({}, block);\n", indexes.back(),
                        find(storage_type(dtype), indexes, plus, 0, indexes.size()));
  }
  KernelBuilder kernel("add_partials", kBlock);
  kernel.include("rows_cuda.inc");
  kernel.blocks(blocks);
  for (size_t k = 0; k < sums.size(); ++k) {
    const int index = static_cast<int>(k);
    kernel.argument(workspace_arg(index, ir::AccessMode::read), "float", fmt::format("part{}", k), true);
    if (plus[k]) kernel.argument(operand_arg(index), "float", fmt::format("plus{}", k));
    kernel.argument(result_arg(index), storage_type(sums[k].dtype), fmt::format("out{}", k), !plus[k]);
    kernel.size(sums[k].rows, fmt::format("rows{}", k));
    kernel.size(sums[k].width, fmt::format("width{}", k));
    kernel.size(ends[k], fmt::format("end{}", k));
  }
  return kernel.finish(text);
}

}  // namespace ingot::codegen::cuda
