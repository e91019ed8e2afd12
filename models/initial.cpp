#include "models/initial.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/base/error.h"
#include "models/report.h"

namespace ingot::models {
namespace {

constexpr int kMostParts = 2000;  // of an expanded expression: `let` names multiply
constexpr int kMostDepth = 150;

struct Draw {
  std::string_view name;
  size_t arguments;
};
constexpr Draw kDraws[] = {{"uniform", 2}, {"normal", 2}, {"orthogonal", 1}};

const Draw* find_draw(std::string_view name) {
  for (const Draw& draw : kDraws) {
    if (draw.name == name) return &draw;
  }
  return nullptr;
}

bool has_draw(const ir::Expr& e) {
  if (e.kind == ir::ExprKind::call && find_draw(e.text)) return true;
  return std::any_of(e.args.begin(), e.args.end(), [](const ir::ExprPtr& arg) { return has_draw(*arg); });
}

bool is_literal_value(const ir::Expr& e) {
  if (e.kind == ir::ExprKind::unary) return e.text == "-" && e.args[0]->kind == ir::ExprKind::number;
  return e.kind == ir::ExprKind::number || e.kind == ir::ExprKind::boolean;
}

/// Counts parts, up to the limit.
void measure(const ir::Expr& e, int depth, int& parts, const ir::Loc& loc) {
  if (++parts > kMostParts || depth > kMostDepth)
    throw ir::UserError(loc, "this initial value becomes too long when its `let` names are put in");
  for (const ir::ExprPtr& arg : e.args) measure(*arg, depth + 1, parts, loc);
}

class Expander {
 public:
  Expander(const BlockText& block, const ir::ConstantScope& scope) : block_(block), scope_(scope) {}

  ir::ExprPtr expand(const ir::ExprPtr& e) {
    if (e->kind == ir::ExprKind::name) return name(e);
    if (e->kind != ir::ExprKind::unary && e->kind != ir::ExprKind::binary && e->kind != ir::ExprKind::call) return e;
    const Draw* draw = e->kind == ir::ExprKind::call ? find_draw(e->text) : nullptr;
    if (draw && (e->args.size() != draw->arguments || !e->keywords.empty())) {
      throw ir::UserError(e->loc,
                          fmt::format("{} takes {} argument{}", e->text, draw->arguments, draw->arguments == 1 ? "" : "s"));
    }
    auto out = std::make_shared<ir::Expr>(*e);
    for (ir::ExprPtr& arg : out->args) arg = expand(arg);
    const bool constant =
        !draw && std::all_of(out->args.begin(), out->args.end(), [](const auto& arg) { return is_literal_value(*arg); });
    return constant ? literal(ir::evaluate(*out, {}), e->loc) : out;
  }

  /// Bindings that draw and are used, each after those it uses.
  std::vector<std::pair<std::string, ir::ExprPtr>> bindings;

 private:
  static ir::ExprPtr literal(const ir::Constant& value, ir::Loc loc) {
    if (value.is_number()) return ir::number_expr(value.number(), loc);
    auto out = std::make_shared<ir::Expr>();
    out->kind = ir::ExprKind::boolean;
    out->loc = loc;
    out->flag = std::get<bool>(value.value);
    return out;
  }

  ir::ExprPtr name(const ir::ExprPtr& e) {
    if (e->text == "i" || e->text == "j") return e;
    if (const LetText* let = block_.find_let(e->text)) return binding(*let, e);
    const ir::Constant value = ir::evaluate(*e, scope_);
    if (!value.is_number() && !std::holds_alternative<bool>(value.value)) {
      throw ir::UserError(
          e->loc, fmt::format("an initial value is computed from numbers; `{}` is {}", e->text, ir::constant_text(value)));
    }
    return literal(value, e->loc);
  }

  ir::ExprPtr binding(const LetText& let, const ir::ExprPtr& use) {
    const auto known = expanded_.find(let.name.text);
    if (known != expanded_.end()) return known->second ? known->second : use;
    if (!let.value) throw ir::UserError(let.name.loc, "this `let` could not be read");
    if (std::find(path_.begin(), path_.end(), let.name.text) != path_.end()) {
      throw ir::UserError(let.name.loc, fmt::format("`{}` depends on itself", let.name.text));
    }
    path_.push_back(let.name.text);
    const ir::ExprPtr value = expand(let.value);
    path_.pop_back();
    int parts = 0;
    measure(*value, 0, parts, let.name.loc);
    // A name that draws, directly or through another one that was kept, is itself kept.
    const std::vector<std::string> used = ir::names_in(*value);
    const bool keeps = has_draw(*value) || std::any_of(bindings.begin(), bindings.end(), [&](const auto& b) {
                         return std::find(used.begin(), used.end(), b.first) != used.end();
                       });
    expanded_[let.name.text] = keeps ? nullptr : value;
    if (!keeps) return value;
    bindings.emplace_back(let.name.text, value);
    return use;
  }

  const BlockText& block_;
  const ir::ConstantScope& scope_;
  std::map<std::string, ir::ExprPtr> expanded_;  // nullptr: kept as a binding
  std::vector<std::string> path_;
};

/// The expression with every draw replaced by its middle.
ir::ExprPtr without_draws(const ir::ExprPtr& e) {
  if (e->args.empty()) return e;
  auto out = std::make_shared<ir::Expr>(*e);
  for (ir::ExprPtr& arg : out->args) arg = without_draws(arg);
  if (e->kind != ir::ExprKind::call || !find_draw(e->text)) return out;
  if (e->text != "uniform") return out->args[0];
  auto sum = std::make_shared<ir::Expr>(*out);
  sum->kind = ir::ExprKind::binary;
  sum->text = "+";
  auto half = std::make_shared<ir::Expr>(*out);
  half->kind = ir::ExprKind::binary;
  half->text = "/";
  half->args = {sum, ir::number_expr(2, e->loc)};
  return half;
}

/// Evaluates at one place of the parameter, draws in their middle: what is not finite there is a mistake.
void attempt_at(const std::vector<std::pair<std::string, ir::ExprPtr>>& bindings, const ir::ExprPtr& value, double i, double j) {
  std::map<std::string, ir::Constant> names{{"i", {i}}, {"j", {j}}};
  const ir::ConstantScope scope{[&](const std::string& n) {
                                  const auto it = names.find(n);
                                  return it == names.end() ? nullptr : &it->second;
                                },
                                nullptr};
  for (const auto& [name, expr] : bindings) names[name] = ir::evaluate(*without_draws(expr), scope);
  const ir::Constant result = ir::evaluate(*without_draws(value), scope);
  if (!result.is_number())
    throw ir::UserError(value->loc, fmt::format("an initial value is a number, not {}", ir::constant_text(result)));
}

void check_indices(const ParamText& param, const std::vector<std::string>& used, const ir::Shape& shape) {
  const auto uses = [&](std::string_view name) { return std::find(used.begin(), used.end(), name) != used.end(); };
  if (uses("i") && shape.empty()) throw ir::UserError(param.init->loc, "`i` counts the last axis; a scalar has none");
  if (uses("j") && shape.size() < 2) {
    throw ir::UserError(param.init->loc, "`j` counts the axis before the last one; there is none");
  }
}

/// A random orthogonal matrix is made whole: it needs a matrix and one gain.
void check_orthogonal(const ir::Expr& e, const ir::Shape& shape) {
  if (e.kind == ir::ExprKind::call && e.text == "orthogonal") {
    if (shape.size() < 2) throw ir::UserError(e.loc, "orthogonal needs a matrix");
    if (!is_literal_value(*e.args[0])) throw ir::UserError(ir::expr_start(*e.args[0]), "the gain of orthogonal is one number");
  }
  for (const ir::ExprPtr& arg : e.args) check_orthogonal(*arg, shape);
}

}  // namespace

bool is_draw(std::string_view function) { return find_draw(function) != nullptr; }

std::vector<std::string> initial_functions() {
  std::vector<std::string> out = ir::evaluator_functions();
  for (const Draw& draw : kDraws) out.emplace_back(draw.name);
  return out;
}

std::string initial_text(const ParamText& param, const BlockText& block, const ir::ConstantScope& scope, const ir::Shape& shape) {
  Expander expander(block, scope);
  const ir::ExprPtr value = expander.expand(param.init);
  int parts = 0;
  measure(*value, 0, parts, param.init->loc);
  std::vector<std::string> used = ir::names_in(*value);
  check_orthogonal(*value, shape);
  std::string text;
  for (const auto& [name, expr] : expander.bindings) {
    check_orthogonal(*expr, shape);
    for (const std::string& n : ir::names_in(*expr)) used.push_back(n);
    text += fmt::format("let {} = {}; ", name, ir::expr_text(*expr));
  }
  check_indices(param, used, shape);
  const double last_i = shape.empty() ? 0 : static_cast<double>(shape.back() - 1);
  const double last_j = shape.size() < 2 ? 0 : static_cast<double>(shape[shape.size() - 2] - 1);
  for (const double i : {0.0, last_i}) {
    for (const double j : {0.0, last_j}) attempt_at(expander.bindings, value, i, j);
  }
  return text + ir::expr_text(*value);
}

}  // namespace ingot::models
