// What generated code counts in 32 bits. Elements and bytes are not among it.
#pragma once
#include <string>

#include "ir/graph/graph.h"

namespace ingot::codegen {

/// "" or why no target lowers this op: a put (lowering) sorts its positions by row, both numbers of 32 bits with room to step
/// past the end.
std::string exceeds_limits(const ir::Graph& graph, const ir::Op& op);

}  // namespace ingot::codegen
