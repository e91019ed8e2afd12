// carry{prefix=decode.carry}: wires the carry ports of sequence ops, so that a program continues where it stopped. Each op
// whose `first` state is absent reads a state variable (zeros at the start) and the variable is updated with its `last`.
//
//   %y, %y.last = shift(%x): ...         state %decode.carry.y: f32[1, 8]
//                                  =>    %y, %y.last = shift(%x, state = %decode.carry.y): ...
//                                        update %decode.carry.y = %y.last
//
// Options: `prefix` of the variables' names; `saved=true` keeps them in checkpoints; `finite=true` stores zero for what of a
// state is not finite, so that one bad window does not spoil all that follow it; `states=false` leaves states alone;
// `starts=true` adds the input `starts` (i32[B, T], nonzero where a document begins) and gives it to every op that takes one;
// `end=ID` makes the starts from the input `tokens`: what follows a token ID begins a document, and with states so does a window
// after one that ended with ID. What mixes positions and takes no starts is then a mistake: documents would run together.
//
//   input %tokens: i32[2, 3]                  input %tokens: i32[2, 3]
//   %y, %y.last = shift(%x)                   %e = eq(%tokens, 0): bool[2, 3]
//                                        =>   %e.i32 = cast(%e) {dtype: i32}
//                                             %starts = shift_rows(%e.i32) {by: 1}: i32[2, 3]
//                                             %y, %y.last = shift(%x, none, %starts)
//
// The model file says nothing about any of this.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

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

std::optional<int32_t> end_token(const PassContext& context) {
  const std::string text = context.option("end", "");
  if (text.empty()) return std::nullopt;
  int32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size())
    throw ir::UserError(ir::Loc{}, fmt::format("carry: end must be the id of a token, but is '{}'", text));
  return id;
}

/// Is a result at one position made of others, in a way that no port of the op can cut?
bool mixes_positions(const Graph& graph, const Op& op) {
  if (!op.def->carry.empty()) return op.def->starts.empty();
  if (ir::lowering_as<ir::ScanLowering>(op)) return op.attrs.integer("axis") == 1;
  const auto* view = ir::lowering_as<ir::ViewLowering>(op);
  return view && view->map(graph.type(op.operands[0]), graph.type(op.results[0]), op.attrs).guard_axis == 1;
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
        end_(end_token(context)),
        wants_starts_(flag(context, "starts", false) || end_) {}

  Graph run() {
    if (end_) check_separable();
    for (const Op& op : graph_.ops()) visit(op);
    rw_.finish();
    for (ir::Update& update : updates_) out_.add_update(std::move(update));
    return std::move(out_);
  }

 private:
  void check_separable() const {
    ir::Diagnostics mistakes;
    for (const Op& op : graph_.ops()) {
      if (!mixes_positions(graph_, op) || gives_starts(op)) continue;
      mistakes.error(op.loc, fmt::format("'{}' mixes positions and takes no document starts, so texts with an end-of-document "
                                         "token (eod={}) would run together in it",
                                         op.name(), *end_));
    }
    mistakes.throw_if_any();
  }

  // Made by this pass, in a graph it has seen already?
  bool gives_starts(const Op& made) const {
    return std::any_of(graph_.ops().begin(), graph_.ops().end(), [&](const Op& op) {
      const int starts = op.def->starts.empty() ? -1 : op.def->operand_index(op.def->starts);
      return starts >= 0 && op.operands[static_cast<size_t>(starts)] == made.results[0];
    });
  }

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
    if (wired) operands[static_cast<size_t>(starts)] = starts_of(op);
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

  // Made before its first reader; all share it.
  ValueId starts_of(const Op& op) {
    const ir::Shape& shape = graph_.type(op.operands[0]).shape;
    ir::check(shape.size() >= 2, fmt::format("carry: '{}' takes starts, but its first operand has no batch and time", op.name()));
    const ir::Type type{ir::DType::i32, {shape[0], shape[1]}};
    if (starts_ == kNone) {
      rw_.b().set_loc(ir::derived(op.loc, "carry"));
      rw_.b().set_phase(ir::Phase::forward);
      starts_ = end_ ? starts_after_ends(op) : rw_.b().input("starts", type);
    }
    if (out_.type(starts_) != type) {
      throw ir::UserError(op.loc, fmt::format("documents begin at positions {}, but '{}' has positions {}",
                                              ir::shape_text(out_.type(starts_).shape), op.name(), ir::shape_text(type.shape)));
    }
    return starts_;
  }

  // starts[t] = tokens[t - 1] is the end of a document; the first position asks the window before, where states are carried.
  ValueId starts_after_ends(const Op& op) {
    ir::Builder& b = rw_.b();
    const ValueId tokens = out_.find("tokens");
    if (tokens == kNone || out_.type(tokens).rank() != 2 || ir::is_float(out_.type(tokens).dtype)) {
      throw ir::UserError(op.loc,
                          fmt::format("documents end with a token (eod={}), but there is no input `tokens: i32[batch, time]` "
                                      "before '{}' to find it in",
                                      *end_, op.name()));
    }
    const ir::Shape shape = out_.type(tokens).shape;
    b.set_name("ends");
    const ValueId ends = b.cast(b.make("eq", {tokens, b.constant(*end_, out_.type(tokens).dtype)}), ir::DType::i32);
    b.set_name("starts");
    if (!states_) {
      ir::Attrs attrs;
      attrs.set("by", int64_t{1});
      return b.make("shift_rows", {ends}, attrs);
    }
    ir::Variable ended;
    ended.name = prefix_ + ".ended";
    ended.role = ir::VariableRole::state;
    ended.type = {ir::DType::i32, {shape[0]}};
    ended.saved = saved_;
    ended.loc = b.loc();
    context_.declare(ended);
    const ValueId first = b.reshape(b.variable(ended), {shape[0], 1});
    const ValueId last = b.reshape(b.slice(ends, {0, shape[1] - 1}, {shape[0], 1}), {shape[0]});
    updates_.push_back({ended.name, last, b.loc()});
    return shape[1] == 1 ? first : b.concat({first, b.slice(ends, {0, 0}, {shape[0], shape[1] - 1})}, 1);
  }

  const Graph& graph_;
  PassContext& context_;
  Graph out_;
  ir::Rewriter rw_;
  std::string prefix_;
  bool saved_, finite_, states_;
  std::optional<int32_t> end_;
  bool wants_starts_;
  ValueId starts_ = kNone;
  std::vector<ir::Update> updates_;
};

}  // namespace

PassInfo carry_pass() {
  return {"carry",
          "Wires the carry ports of sequence ops to state variables, and `starts` to an input.",
          {"prefix", "saved", "finite", "states", "starts", "end"},
          true,
          [](const Graph& graph, PassContext& context) { return Carry(graph, context).run(); }};
}

}  // namespace ingot::passes
