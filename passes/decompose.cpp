// decompose: writes composite ops out in simpler ones until only ops that are legal at level core remain.
//
//   %y = l2_norm(%x) {eps: 1e-12}        %y.part = square(%x)
//                                  =>    %y.part.2 = sum(%y.part) {axes: [1], keep: true}
//                                        ...
//                                        %y = div(%x, %y.part.4)            the last op has the composite's name
//
// Location, phase and names stay those of the op a piece came from.
#include <fmt/format.h>

#include <algorithm>

#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::ValueId;

bool composite(const Op& op) { return std::holds_alternative<ir::DecomposeLowering>(op.def->lowering); }

std::vector<bool> used_values(const Graph& graph) {
  std::vector<bool> used(graph.values().size(), false);
  for (const Op& op : graph.ops()) {
    for (ValueId operand : op.operands) {
      if (operand != kNone) used[operand] = true;
    }
  }
  for (const ir::Output& output : graph.outputs()) used[output.value] = true;
  for (const ir::Update& update : graph.updates()) used[update.value] = true;
  return used;
}

class Sweep {
 public:
  explicit Sweep(const Graph& graph) : graph_(graph), used_(used_values(graph)), out_(like(graph)), rw_(graph, out_) {}

  Graph run() {
    for (const Op& op : graph_.ops()) {
      if (composite(op)) {
        replace(op);
      } else {
        rw_.copy(op);
      }
    }
    rw_.finish();
    return with_names(out_, names_);
  }

 private:
  void replace(const Op& op) {
    rw_.at(op);
    rw_.b().set_name(graph_.value(op.results[0]).name + ".part");  // a stem of its own: the author may have used y.2
    ir::DecomposeContext context{rw_.b(), op, {}, {}, {}};
    for (ValueId operand : op.operands) context.operands.push_back(rw_(operand));
    for (ValueId result : op.results) {
      context.used.push_back(used_[result]);
      context.result_types.push_back(graph_.type(result));
    }
    const size_t first_new = out_.values().size();
    const std::vector<ValueId> made = ir::lowering_as<ir::DecomposeLowering>(op)->build(context);
    ir::check(made.size() == op.results.size(),
              [&] { return fmt::format("'{}' decomposes into another number of results", op.name()); });
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i] == kNone) {
        ir::check(!context.used[i], fmt::format("'{}': result {} is used, but its decomposition leaves it out", op.name(), i));
        continue;
      }
      ir::check(out_.type(made[i]) == graph_.type(op.results[i]), [&] {
        return fmt::format("'{}': result {} is {}, decomposed {}", op.name(), i, graph_.type(op.results[i]).text(),
                           out_.type(made[i]).text());
      });
      rw_.map(op.results[i], made[i]);
      // A decomposition may return an operand as it is; that keeps its own name.
      if (made[i] >= first_new) names_.try_emplace(made[i], graph_.value(op.results[i]).name);
    }
  }

  const Graph& graph_;
  std::vector<bool> used_;
  Graph out_;
  ir::Rewriter rw_;
  std::unordered_map<ValueId, std::string> names_;
};

void refuse_what_stays(const Graph& graph) {
  ir::Diagnostics errors;
  for (const Op& op : graph.ops()) {
    if (!op.def->levels.core) errors.error(op.loc, fmt::format("'{}' cannot be compiled: it has no lowering", op.name()));
  }
  errors.throw_if_any();
}

Graph run(const Graph& graph, PassContext&) {
  Graph now = graph;
  // Composites of composites of composites are fine; more than that is a definition that goes in circles.
  for (int sweep = 0; std::any_of(now.ops().begin(), now.ops().end(), composite); ++sweep) {
    ir::check(sweep < 16, "decompose: an op decomposes into itself");
    now = Sweep(now).run();
  }
  refuse_what_stays(now);
  if (now.level() < ir::Level::core) now.set_level(ir::Level::core);
  return now;
}

}  // namespace

PassInfo decompose_pass() { return {"decompose", "Writes composite ops out in primitive ones: level core.", {}, true, run}; }

}  // namespace ingot::passes
