#include "passes/scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "ir/base/text.h"

namespace ingot::passes {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::ValueId;

std::string nearest_text(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = ir::nearest_name(name, known);
  return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
}

// What the expression language calls them -> the op.
const std::map<std::string, std::pair<std::string, size_t>> kFunctions{{"min", {"minimum", 2}}, {"max", {"maximum", 2}},
                                                                       {"pow", {"pow", 2}},     {"sqrt", {"sqrt", 1}},
                                                                       {"exp", {"exp", 1}},     {"log", {"log", 1}}};
const std::map<std::string, std::string> kOperators{{"+", "add"}, {"-", "sub"}, {"*", "mul"}, {"/", "div"}};

}  // namespace

ValueId Scalars::build(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::number:
      return b_.constant(expr.number);
    case ExprKind::name:
      return name(expr);
    case ExprKind::call:
      return call(expr);
    case ExprKind::unary:
      if (expr.text == "-") return b_.neg(build(*expr.args[0]));
      break;
    case ExprKind::binary:
      if (const auto op = kOperators.find(expr.text); op != kOperators.end()) {
        const ValueId left = build(*expr.args[0]);
        return b_.make(op->second, {left, build(*expr.args[1])});
      }
      break;
    default:
      break;
  }
  throw ir::UserError(expr.loc, fmt::format("'{}' is not a number made of train scalars", ir::expr_text(expr)));
}

ValueId Scalars::name(const Expr& expr) {
  if (const auto at = bound_.find(expr.text); at != bound_.end()) return at->second;
  const ir::Variable* variable = context_.module.find_variable(expr.text);
  if (variable && variable->role == ir::VariableRole::hyper) return b_.variable(*variable);
  std::vector<std::string> known;
  for (const ir::Variable& v : context_.module.variables) {
    if (v.role == ir::VariableRole::hyper) known.push_back(v.name);
  }
  throw ir::UserError(expr.loc, fmt::format("'{}' is not a train scalar{}", expr.text, nearest_text(expr.text, known)));
}

ValueId Scalars::call(const Expr& expr) {
  const auto at = kFunctions.find(expr.text);
  if (at == kFunctions.end() || expr.args.size() != at->second.second || !expr.keywords.empty()) {
    throw ir::UserError(expr.loc, fmt::format("'{}': here stand min, max and pow of two numbers and sqrt, exp and log of one",
                                              ir::expr_text(expr)));
  }
  std::vector<ValueId> operands;
  for (const ir::ExprPtr& arg : expr.args) operands.push_back(build(*arg));
  return b_.make(at->second.first, std::move(operands));
}

ValueId Scalars::hyper(const std::string& hyper_name, const std::string& init, ir::Loc loc) {
  const ir::Variable* existing = context_.module.find_variable(hyper_name);
  if (!existing) {
    ir::Variable variable;
    variable.name = hyper_name;
    variable.role = ir::VariableRole::hyper;
    variable.init = init;
    variable.loc = ir::derived(loc, "optimizer");
    context_.declare(variable);
    existing = context_.module.find_variable(hyper_name);
  }
  if (existing->role != ir::VariableRole::hyper) {
    throw ir::UserError(existing->loc,
                        fmt::format("'{}' is the number of updates of a run for the schedule; call the {} otherwise", hyper_name,
                                    ir::variable_role_name(existing->role)));
  }
  return b_.variable(*existing);
}

std::vector<ir::ExprPtr> bind_arguments(const Expr& call, const std::vector<std::string>& names) {
  std::vector<ir::ExprPtr> bound(names.size());
  const std::string expected = fmt::format("{}({})", call.text, fmt::join(names, ", "));
  if (call.args.size() > names.size()) {
    throw ir::UserError(call.loc,
                        fmt::format("{} takes {} arguments, but {} are given", expected, names.size(), call.args.size()));
  }
  std::copy(call.args.begin(), call.args.end(), bound.begin());
  for (size_t i = 0; i < call.keywords.size(); ++i) {
    const auto& [name, value] = call.keywords[i];
    const ir::Loc loc = i < call.keyword_locs.size() ? call.keyword_locs[i] : call.loc;
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end())
      throw ir::UserError(loc, fmt::format("{} has no argument '{}'{}", expected, name, nearest_text(name, names)));
    ir::ExprPtr& slot = bound[static_cast<size_t>(at - names.begin())];
    if (slot) throw ir::UserError(loc, fmt::format("{}: the argument '{}' is given twice", expected, name));
    slot = value;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!bound[i]) throw ir::UserError(call.loc, fmt::format("{}: the argument '{}' is missing", expected, names[i]));
  }
  return bound;
}

namespace {

// While fewer than `warmup` updates are done: 0.01 + 0.99 done / warmup, else 1. No warm-up divides by nothing.
ValueId warmup_factor(ir::Builder& b, ValueId done, ValueId warmup) {
  const ValueId part = b.div(done, b.make("maximum", {warmup, b.constant(1)}));
  const ValueId rising = b.add(b.mul(part, 0.99), 0.01);
  return b.select(b.make("lt", {done, warmup}), rising, b.constant(1));
}

// lr1 + (lr0 - lr1) (1 + cos(pi clamp((done - warmup) / (steps - warmup), 0, 1))) / 2, times the warm-up's factor.
ValueId cosine(Scalars& scalars, const std::vector<ValueId>& args, ValueId done, ir::Loc loc) {
  ir::Builder& b = scalars.b();
  const ValueId from = args[0], to = args[1], warmup = args[2];
  const ValueId steps = scalars.hyper("steps", "1000", loc);
  const ValueId span = b.make("maximum", {b.sub(steps, warmup), b.constant(1)});
  const ValueId part = b.div(b.sub(done, warmup), span);
  const ValueId clamped = b.make("minimum", {b.make("maximum", {part, b.constant(0)}), b.constant(1)});
  const ValueId wave = b.make("cos", {b.mul(clamped, std::numbers::pi)});
  const ValueId height = b.mul(b.add(wave, 1.0), 0.5);
  const ValueId lr = b.add(to, b.mul(b.sub(from, to), height));
  return b.mul(lr, warmup_factor(b, done, warmup));
}

}  // namespace

std::pair<std::string, ValueId> scheduled_lr(const Expr& call, Scalars& scalars, ValueId done) {
  const std::map<std::string, std::vector<std::string>> known{{"constant", {"lr"}}, {"cosine", {"lr", "lr_final", "warmup"}}};
  const auto at = call.kind == ExprKind::call ? known.find(call.text) : known.end();
  if (at == known.end()) {
    throw ir::UserError(call.loc, fmt::format("there is no schedule '{}'{}; known: constant(lr), cosine(lr, lr_final, warmup)",
                                              ir::expr_text(call), nearest_text(call.text, {"constant", "cosine"})));
  }
  const std::vector<ir::ExprPtr> args = bind_arguments(call, at->second);
  if (args[0]->kind != ExprKind::name) {
    throw ir::UserError(args[0]->loc, fmt::format("the first argument of {} is the train scalar it drives, but is '{}'",
                                                  call.text, ir::expr_text(*args[0])));
  }
  std::vector<ValueId> values;
  for (const ir::ExprPtr& arg : args) values.push_back(scalars.build(*arg));
  return {args[0]->text, call.text == "constant" ? values[0] : cosine(scalars, values, done, call.loc)};
}

}  // namespace ingot::passes
