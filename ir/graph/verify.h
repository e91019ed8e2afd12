// The verifier: runs after every pass, always.
#pragma once
#include "ir/graph/graph.h"

namespace ingot::ir {

/// Throws InternalError naming the op (or UserError at its location when inference refuses it) unless: every op is legal
/// at the graph's level; operands exist before use; signatures, attributes and inferred types agree; names are unique; outputs
/// and updates name existing values of the right type; variables read are declared in `module` with the same type
/// (module == nullptr skips that); no variable is updated twice; regions are well formed.
void verify(const Graph& graph, const Module* module = nullptr);
void verify(const Module& module);

}  // namespace ingot::ir
