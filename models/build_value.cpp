// Expressions to values: names, operators, calls of ops.
#include <fmt/format.h>

#include <algorithm>

#include "ir/base/error.h"
#include "models/call.h"
#include "models/maker.h"

namespace ingot::models {

using ir::Expr;
using ir::ExprKind;
using ir::ExprPtr;
using ir::kNone;
using ir::UserError;
using ir::ValueId;

std::vector<Slot> GraphMaker::results(const Expr& e, Frame& frame, const std::vector<std::string>& names) {
  if (e.kind == ExprKind::call && e.text == "split") return split(e, frame, names);
  if (e.kind == ExprKind::call && e.text == "stack") return stack(e, frame, names);
  if (e.kind == ExprKind::call && frame.block->find_use(e.text)) {
    std::vector<Slot> slots = call_block(e, frame);
    need_count(e, slots.size(), slots.size(), names.size());
    return slots;
  }
  if (e.kind == ExprKind::call && !is_constant_expr(e, frame)) return call_op(e, frame, names);
  need_count(e, 1, 1, names.size());
  if (e.kind == ExprKind::name) return {lookup(e, frame)};
  return {Slot::of(value(e, frame, names[0]))};
}

void GraphMaker::need_count(const Expr& e, size_t least, size_t most, size_t names) {
  if (names >= least && names <= most) return;
  const std::string count = least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
  throw UserError(e.loc, fmt::format("`{}` gives {} value{}, but {} name{} on the left", ir::expr_text(e).substr(0, 40), count,
                                     count == "1" ? "" : "s", names, names == 1 ? " stands" : "s stand"));
}

bool GraphMaker::is_constant_expr(const Expr& e, const Frame& frame) {
  return is_constant(e, [&](const std::string& name) { return frame.is_constant_name(name); });
}

Slot GraphMaker::lookup(const Expr& e, Frame& frame) {
  const auto found = frame.values.find(e.text);
  if (found != frame.values.end()) return found->second;
  const bool is_input = frame.prefix.empty() && std::any_of(model_.main.in.begin(), model_.main.in.end(),
                                                            [&](const Word& w) { return w.text == e.text; });
  if (is_input) return input(e.text);
  if (frame.block->find_param(e.text)) return Slot::of(parameter(e, frame));
  if (frame.is_constant_name(e.text)) return Slot::of(constant(e, ir::evaluate(e, frame.scope()), ""));
  if (const Setting* setting = model_.find_train(e.text)) {
    const auto value = train_.find(e.text);
    if (value == train_.end()) throw Poisoned();
    return Slot::of(b_.variable(hyper(*setting, value->second)));
  }
  for (const Statement& statement : frame.block->graph) {
    const bool assigns =
        std::any_of(statement.names.begin(), statement.names.end(), [&](const Word& w) { return w.text == e.text; });
    if (assigns)
      throw UserError(e.loc,
                      fmt::format("`{}` has no value here: no statement before this one gave it one{}", e.text, frame.where()));
  }
  throw UserError(e.loc, fmt::format("unknown name `{}`", e.text));
}

ValueId GraphMaker::parameter(const Expr& e, const Frame& frame) {
  const int index = params_.at(frame.full(e.text));
  if (index == kPoisonedParam) throw Poisoned();
  if (index == kAbsentParam) {
    throw UserError(e.loc, fmt::format("the parameter `{}` does not exist here: its `when` is false{}", e.text, frame.where()));
  }
  return b_.variable(out_.variables[static_cast<size_t>(index)]);
}

ValueId GraphMaker::constant(const Expr& e, const ir::Constant& value, const std::string& name) {
  const bool* flag = std::get_if<bool>(&value.value);
  if (!flag && !value.is_number())
    throw UserError(e.loc, fmt::format("`{}` is {}, not a number", ir::expr_text(e), ir::constant_text(value)));
  b_.set_loc(e.loc);
  ir::Attrs attrs;
  attrs.set("value", flag ? (*flag ? 1.0 : 0.0) : value.number());
  attrs.set("dtype", flag ? ir::DType::boolean : ir::DType::f32);
  return b_.op("constant", {}, std::move(attrs), {name}).results[0];
}

ValueId GraphMaker::value(const Expr& e, Frame& frame, const std::string& name) {
  if (is_constant_expr(e, frame)) return constant(e, ir::evaluate(e, frame.scope()), name);
  switch (e.kind) {
    case ExprKind::name: {
      const Slot slot = lookup(e, frame);
      if (slot.state == Slot::State::poisoned) throw Poisoned();
      if (slot.state == Slot::State::absent) throw UserError(e.loc, fmt::format("`{}` is none here{}", e.text, frame.where()));
      return slot.id;
    }
    case ExprKind::unary:
    case ExprKind::binary: {
      std::vector<ValueId> operands;
      for (const ExprPtr& arg : e.args) operands.push_back(value(*arg, frame));
      return make(ir::op_def(operator_op(e)), e.loc, std::move(operands), {}, {name})[0];
    }
    case ExprKind::call:
      break;
    case ExprKind::list:
      throw UserError(e.loc, "a list is no value; it is an argument of an op");
    default:
      throw UserError(e.loc, fmt::format("`{}` is no value", ir::expr_text(e)));
  }
  std::vector<Slot> slots;
  if (frame.block->find_use(e.text)) {
    slots = call_block(e, frame);
    need_one(e, slots.size());
  } else {
    if (e.text == "split" || e.text == "stack")
      throw UserError(e.loc, fmt::format("{}(...) stands alone on the right of names", e.text));
    slots = call_op(e, frame, {name});
  }
  if (slots[0].state != Slot::State::value) throw Poisoned();
  return slots[0].id;
}

void GraphMaker::need_one(const Expr& e, size_t count) {
  if (count != 1)
    throw UserError(e.loc, fmt::format("`{}` gives {} values; give them names in a statement of their own", e.text, count));
}

std::vector<ValueId> GraphMaker::make(const ir::OpDef& def, ir::Loc loc, std::vector<ValueId> operands, ir::Attrs attrs,
                                      std::vector<std::string> names) {
  b_.set_loc(loc);
  const bool named = !names.empty() && !names[0].empty();
  b_.set_name(named ? names[0] : stem_ + "." + def.name);
  if (!named) names.clear();
  return b_.op(def, std::move(operands), std::move(attrs), std::move(names)).results;
}

std::vector<Slot> GraphMaker::call_op(const Expr& e, Frame& frame, const std::vector<std::string>& names) {
  const ir::OpDef* def = find_callable(e.text);
  if (!def) throw UserError(e.loc, fmt::format("unknown op `{}`", e.text));
  const BoundCall call = bind_call(*def, e);
  const size_t visible = visible_results(*call.def);
  if (!names[0].empty()) {
    need_count(e, visible, call.def->results.size(), names.size());
  } else {
    need_one(e, visible);
  }
  std::vector<ValueId> operands;
  for (const ExprPtr& operand : call.operands) operands.push_back(operand ? operand_value(*operand, frame) : kNone);
  ir::Attrs attrs;
  for (const auto& [attr, expr] : call.attrs) attrs.set(attr->name, attr_value(*call.def, *attr, *expr, frame.scope()));
  std::vector<Slot> slots;
  for (ValueId id : make(*call.def, e.loc, std::move(operands), std::move(attrs), names)) slots.push_back(Slot::of(id));
  slots.resize(names.size());
  return slots;
}

ValueId GraphMaker::operand_value(const Expr& e, Frame& frame) {
  if (e.kind == ExprKind::none) return kNone;
  if (e.kind == ExprKind::name && frame.values.contains(e.text) && frame.values[e.text].state == Slot::State::absent)
    return kNone;
  return value(e, frame);
}

Slot GraphMaker::argument(const Expr& e, Frame& frame) {
  if (e.kind == ExprKind::none) return Slot::none();
  if (e.kind == ExprKind::name && !is_constant_expr(e, frame)) {
    const Slot slot = lookup(e, frame);
    if (slot.state == Slot::State::poisoned) throw Poisoned();
    return slot;
  }
  return Slot::of(value(e, frame));
}

}  // namespace ingot::models
