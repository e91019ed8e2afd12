// Core graphs -> plan: calls in op order over placed buffers.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "codegen/compile.h"
#include "codegen/draft.h"

namespace ingot::codegen {

/// Appends the program `name` made from a core (or fused) graph.
void lower_program(PlanDraft& draft, const ir::Graph& graph, const std::string& name, const Target& target,
                   const Arrangement& arrangement);

/// The plan of finished graphs, `init` and `prepare` (the graph of that name, or none) included; verified. Throws UserError,
/// located, for ops the target refuses.
ir::Plan assemble(const ir::Module& module, const std::vector<std::pair<std::string, ir::Graph>>& programs, const Target& target,
                  const CompileOptions& options = {});

}  // namespace ingot::codegen
