// The rewrites of canonicalize, one function each (canonical_rules.cpp lists them).
#pragma once
#include <optional>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::passes {

/// An op about to be written, with one result.
struct Candidate {
  const ir::OpDef* def = nullptr;
  std::vector<ir::ValueId> operands;  ///< in the graph being written
  ir::Attrs attrs;
  ir::Type type;  ///< of its result; no rewrite changes it
  bool is(std::string_view name) const { return def->name == name; }
};

/// At most one of the two: the value that the op's result equals, or an op that makes the same.
struct Rewrite {
  ir::ValueId value = ir::kNone;
  std::optional<Candidate> op;
};

/// The first rule that applies.
Rewrite apply_rules(const ir::Graph& graph, const Candidate& op);

}  // namespace ingot::passes
