// carry{prefix=decode.carry}: wires the carry ports of sequence ops, so that a program continues where it stopped. Each op
// whose `first` state is absent reads a state variable (zeros at the start) and the variable is updated with its `last`.
//
//   %y, %y.last = shift(%x): ...         state %decode.carry.y: f32[1, 8]
//                                  =>    %y, %y.last = shift(%x, state = %decode.carry.y): ...
//                                        update %decode.carry.y = %y.last
//
// Options: `prefix` of the variables' names; `saved=true` keeps them in checkpoints; `finite=true` stores zero for what of a state
// is not finite, so that one bad window does not spoil all that follow it; `states=false` leaves states alone;
// `starts=true` adds the input `starts` (i32[B, T], nonzero where a document begins) and gives it to every op that takes one.
// The model file says nothing about any of this.
#include <fmt/format.h>

#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::ValueId;

bool flag(const PassContext& context, std::string_view name, bool fallback) {
  const std::string text = context.option(name, fallback ? "true" : "false");
  if (text != "true" && text != "false")
    throw ir::UserError(ir::Loc{}, fmt::format("carry: {} must be true or false, but is '{}'", name, text));
  return text == "true";
}

class Carry {
 public:
  Carry(const Graph& graph, PassContext& context)
      : graph_(graph),
        context_(context),
        out_(like(graph)),
        rw_(graph, out_),
        prefix_(context.option("prefix", "carry")),
        saved_(flag(context, "saved", false)),
        finite_(flag(context, "finite", false)),
        states_(flag(context, "states", true)),
        wants_starts_(flag(context, "starts", false)) {}

  Graph run() {
    for (const Op& op : graph_.ops()) visit(op);
    rw_.finish();
    for (ir::Update& update : updates_) out_.add_update(std::move(update));
    return std::move(out_);
  }

 private:
  bool absent(const Op& op, int operand) const { return operand >= 0 && op.operands[static_cast<size_t>(operand)] == kNone; }

  void visit(const Op& op) {
    std::vector<ValueId> operands;
    for (ValueId operand : op.operands) operands.push_back(rw_(operand));
    std::vector<std::pair<std::string, int>> written;  // variable, result
    for (const ir::CarryPort& port : op.def->carry) {
      const int first = op.def->operand_index(port.operand), last = op.def->result_index(port.result);
      if (!states_ || !absent(op, first)) continue;
      const ir::Variable variable = state(op, port, last);
      context_.declare(variable);
      operands[static_cast<size_t>(first)] = rw_.b().variable(variable);
      written.emplace_back(variable.name, last);
    }
    const int starts = op.def->operand_index(op.def->starts);
    const bool wired = wants_starts_ && !op.def->starts.empty() && absent(op, starts);
    if (wired) operands[static_cast<size_t>(starts)] = starts_input(op);
    if (written.empty() && !wired) return rw_.copy(op);
    const ir::Loc loc = op.loc;
    const std::vector<ValueId> results = rw_.copy_with(op, std::move(operands), op.attrs).results;
    for (const auto& [name, result] : written) {
      updates_.push_back({name, settled(results[static_cast<size_t>(result)]), ir::derived(loc, "carry")});
    }
  }

  ValueId settled(ValueId last) {
    if (!finite_) return last;
    ir::Builder& b = rw_.b();
    return b.select(b.make("isfinite", {last}), last, b.constant(0, b.type(last).dtype));
  }

  ir::Variable state(const Op& op, const ir::CarryPort& port, int last) const {
    ir::Variable variable;
    variable.name = prefix_ + "." + graph_.value(op.results[0]).name;
    if (op.def->carry.size() > 1) variable.name += "." + port.operand;
    variable.role = ir::VariableRole::state;
    variable.type = graph_.type(op.results[static_cast<size_t>(last)]);
    variable.saved = saved_;
    variable.loc = ir::derived(op.loc, "carry");
    return variable;
  }

  ValueId starts_input(const Op& op) {
    const ir::Shape& shape = graph_.type(op.operands[0]).shape;
    ir::check(shape.size() >= 2, fmt::format("carry: '{}' takes starts, but its first operand has no batch and time", op.name()));
    const ir::Type type{ir::DType::i32, {shape[0], shape[1]}};
    ValueId found = out_.find("starts");
    if (found == kNone) {
      rw_.b().set_loc(ir::derived(op.loc, "carry"));
      rw_.b().set_phase(ir::Phase::forward);
      found = rw_.b().input("starts", type);
    }
    ir::check(out_.maker(found).name() == "input" && out_.type(found) == type,
              fmt::format("carry: the document starts of '{}' are {}, of another op {}", op.name(), type.text(),
                          out_.type(found).text()));
    return found;
  }

  const Graph& graph_;
  PassContext& context_;
  Graph out_;
  ir::Rewriter rw_;
  std::string prefix_;
  bool saved_, finite_, states_, wants_starts_;
  std::vector<ir::Update> updates_;
};

}  // namespace

PassInfo carry_pass() {
  return {"carry",
          "Wires the carry ports of sequence ops to state variables, and `starts` to an input.",
          {"prefix", "saved", "finite", "states", "starts"},
          true,
          [](const Graph& graph, PassContext& context) { return Carry(graph, context).run(); }};
}

}  // namespace ingot::passes
