// check: the last look before code is generated. Changes nothing; refuses a graph that is not ready. (Names, types and
// duplicates are the verifier's, which has just run.)
//
//   - every op is primitive: it has a lowering, and that is not a decomposition
//   - no program updates what the host sets (role hyper)
//   - a program that updates one trainable parameter updates all of them, and every 16-bit copy of them
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::Op;

void lowerings(const Graph& graph) {
  ir::check(graph.level() >= ir::Level::core, "check: stands before 'decompose'");
  ir::Diagnostics errors;
  for (const Op& op : graph.ops()) {
    const auto& lowering = op.def->lowering;
    if (std::holds_alternative<std::monostate>(lowering) || std::holds_alternative<ir::DecomposeLowering>(lowering)) {
      errors.error(op.loc, fmt::format("'{}' cannot be compiled: it has no lowering", op.name()));
    }
  }
  errors.throw_if_any();
}

std::set<std::string> updated_variables(const Graph& graph) {
  std::set<std::string> names;
  for (const ir::Update& update : graph.updates()) names.insert(update.variable);
  return names;
}

void updates(const Graph& graph, const ir::Module& module) {
  const std::set<std::string> updated = updated_variables(graph);
  bool trains = false;
  for (const ir::Variable& v : module.variables) {
    ir::check(v.role != ir::VariableRole::hyper || !updated.contains(v.name),
              fmt::format("check: '{}' is set by the host, but @{} updates it", v.name, graph.name()));
    trains = trains || (v.role == ir::VariableRole::param && updated.contains(v.name));
  }
  if (!trains) return;
  for (const ir::Variable& v : module.variables) {
    const bool must = (v.role == ir::VariableRole::param && v.trainable) || v.role == ir::VariableRole::compute;
    ir::check(!must || updated.contains(v.name),
              fmt::format("check: @{} trains, but leaves '{}' as it is", graph.name(), v.name));
  }
}

Graph run(const Graph& graph, PassContext& context) {
  lowerings(graph);
  updates(graph, context.module);
  return graph;
}

}  // namespace

PassInfo check_pass() { return {"check", "Refuses a graph that is not ready for code generation.", {}, false, run}; }

}  // namespace ingot::passes
