#include "codegen/limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph/op_def.h"

namespace ingot::codegen {

std::string exceeds_limits(const ir::Graph& graph, const ir::Op& op) {
  constexpr int64_t kMost = INT32_MAX / 2;
  if (!ir::lowering_as<ir::PutLowering>(op)) return "";
  const int64_t positions = graph.type(op.operands[0]).elements(), rows = graph.type(op.results[0]).shape[0];
  if (std::max(positions, rows) <= kMost) return "";
  return fmt::format("positions and rows are counted in 32 bits: {} positions of {} rows are too many (at most {} of either)",
                     positions, rows, kMost);
}

}  // namespace ingot::codegen
