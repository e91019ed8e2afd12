// accumulate{role=first|next|last}: one update from several microbatches. The programs first and next leave their gradients,
// loss and count in accumulators; last adds them to its own, and the optimizer after it sees the sums.
//
//   role=next                            role=last
//   output grad.w = %w.grad              output grad.w = %w.grad
//                 =>                                   =>
//   %2 = add(%w.acc, %w.grad)            %2 = add(%w.acc, %w.grad)
//   update %w.acc = %2                   update %w.acc = %2
//   output loss = (sum so far)           output grad.w = %2, output loss = (sum of all)
//
// role=first stores without reading, so nothing has to be cleared. The last sum is left in the accumulator as well: it is written
// where the bytes are, and no gradient needs bytes of its own. Losses and gradients are sums and the optimizer divides by
// the summed count: microbatches with few valid targets weigh as little as they should.
#include <fmt/format.h>

#include <algorithm>

#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::ValueId;

enum class Role { first, next, last };

Role role_of(const PassContext& context) {
  const std::string text = context.option("role", "");
  if (text == "first") return Role::first;
  if (text == "next") return Role::next;
  if (text == "last") return Role::last;
  throw ir::UserError(ir::Loc{}, fmt::format("accumulate: role must be first, next or last, but is '{}'", text));
}

class Accumulate {
 public:
  Accumulate(const Graph& graph, PassContext& context)
      : graph_(graph), context_(context), out_(like(graph)), rw_(graph, out_), role_(role_of(context)) {}

  Graph run() {
    for (const ir::Op& op : graph_.ops()) rw_.copy(op);
    for (const ir::Output& output : graph_.outputs()) visit(output);
    for (const ir::Update& update : graph_.updates()) out_.add_update({update.variable, rw_(update.value), update.loc});
    for (ir::Update& update : updates_) out_.add_update(std::move(update));
    return std::move(out_);
  }

 private:
  void visit(const ir::Output& output) {
    const bool gradient = output.name.starts_with("grad.");
    if (!gradient && output.name != "loss" && output.name != "count") {
      out_.add_output({output.name, rw_(output.value), output.loc});
      return;
    }
    const ValueId total = add_up(output, (gradient ? output.name.substr(5) : output.name) + ".acc");
    if (!gradient || role_ == Role::last) out_.add_output({output.name, total, output.loc});
  }

  // The sum so far.
  ValueId add_up(const ir::Output& output, const std::string& name) {
    ir::Builder& b = rw_.b();
    b.set_loc(ir::derived(output.loc, "accumulate"));
    b.set_phase(ir::Phase::backward);
    b.set_name(name + ".sum");
    ir::Variable variable;
    variable.name = name;
    variable.role = ir::VariableRole::state;
    variable.type = {DType::f32, graph_.type(output.value).shape};
    variable.saved = false;  // updates are never interrupted between microbatches
    variable.loc = ir::derived(output.loc, "accumulate");
    context_.declare(variable);
    ValueId total = b.cast(rw_(output.value), DType::f32);
    if (role_ != Role::first) total = b.add(b.variable(variable), total);
    const bool in_place = output.name.starts_with("grad.");
    if (role_ != Role::last || in_place) updates_.push_back({name, total, variable.loc});
    return total;
  }

  const Graph& graph_;
  PassContext& context_;
  Graph out_;
  ir::Rewriter rw_;
  Role role_;
  std::vector<ir::Update> updates_;
};

Graph run(const Graph& graph, PassContext& context) {
  const Role role = role_of(context);
  // Done already: first and next write the accumulators, last reads them.
  const bool writes =
      std::any_of(graph.updates().begin(), graph.updates().end(), [](const ir::Update& u) { return u.variable == "loss.acc"; });
  const bool reads =
      std::any_of(graph.ops().begin(), graph.ops().end(), [](const ir::Op& op) { return read_variable(op) == "loss.acc"; });
  if (role == Role::last ? reads : writes) return graph;
  return Accumulate(graph, context).run();
}

}  // namespace

PassInfo accumulate_pass() {
  return {"accumulate", "Sums gradients, loss and count over the microbatches of one update.", {"role"}, true, run};
}

}  // namespace ingot::passes
