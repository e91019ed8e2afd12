// Printing and rewriting expression trees.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/expr.h"
#include "ir/base/expr_tables.h"
#include "ir/base/text.h"

namespace ingot::ir {
namespace {

int precedence(const Expr& expr) {
  if (expr.kind == ExprKind::binary) return find_binary_operator(expr.text)->precedence;
  if (expr.kind == ExprKind::unary) return expr.text == "not" ? kNotPrecedence : kUnaryPrecedence;
  if (expr.kind == ExprKind::number && std::signbit(expr.number)) return kUnaryPrecedence;
  return kPrimaryPrecedence;
}

void print(const Expr& expr, std::string& out);

void print_at(const Expr& expr, int minimum, std::string& out) {
  const bool parentheses = precedence(expr) < minimum;
  if (parentheses) out += '(';
  print(expr, out);
  if (parentheses) out += ')';
}

void print_items(const Expr& expr, std::string& out) {
  for (size_t i = 0; i < expr.args.size(); ++i) {
    if (i > 0) out += ", ";
    print(*expr.args[i], out);
  }
}

void print_call(const Expr& expr, std::string& out) {
  out += expr.text;
  out += '(';
  print_items(expr, out);
  for (size_t i = 0; i < expr.keywords.size(); ++i) {
    if (i > 0 || !expr.args.empty()) out += ", ";
    out += fmt::format("{}=", expr.keywords[i].first);
    print(*expr.keywords[i].second, out);
  }
  out += ')';
}

void print(const Expr& expr, std::string& out) {
  switch (expr.kind) {
    case ExprKind::number: {
      std::string text = fmt::format("{}", expr.number);
      // A real that prints like an integer keeps its point, so that it reads back as a real.
      if (!expr.is_integer && text.find_first_of(".e") == std::string::npos) text += ".0";
      out += text;
      break;
    }
    case ExprKind::boolean:
      out += expr.flag ? "true" : "false";
      break;
    case ExprKind::text:
      out += quoted(expr.text);
      break;
    case ExprKind::none:
      out += "none";
      break;
    case ExprKind::name:
      out += expr.text;
      break;
    case ExprKind::unary:
      out += expr.text == "not" ? "not " : "-";
      print_at(*expr.args[0], precedence(expr), out);
      break;
    case ExprKind::binary: {
      const BinaryOperator& op = *find_binary_operator(expr.text);
      print_at(*expr.args[0], op.comparison ? op.precedence + 1 : op.precedence, out);
      out += fmt::format(" {} ", expr.text);
      print_at(*expr.args[1], op.precedence + 1, out);
      break;
    }
    case ExprKind::call:
      print_call(expr, out);
      break;
    case ExprKind::list:
      out += '[';
      print_items(expr, out);
      out += ']';
      break;
  }
}

void collect_names(const Expr& expr, std::vector<std::string>& out) {
  if (expr.kind == ExprKind::name && std::find(out.begin(), out.end(), expr.text) == out.end()) out.push_back(expr.text);
  for (const ExprPtr& arg : expr.args) collect_names(*arg, out);
  for (const auto& [key, value] : expr.keywords) collect_names(*value, out);
}

}  // namespace

std::string expr_text(const Expr& expr) {
  std::string out;
  print(expr, out);
  return out;
}

ExprPtr number_expr(double value, Loc loc) {
  auto number = std::make_shared<Expr>();
  number->kind = ExprKind::number;
  number->loc = loc;
  number->number = std::fabs(value);
  number->is_integer = fmt::format("{}", number->number).find_first_of(".e") == std::string::npos;
  if (!std::signbit(value) || value == 0) return number;
  auto negated = std::make_shared<Expr>();
  negated->kind = ExprKind::unary;
  negated->loc = loc;
  negated->text.assign(1, '-');
  negated->args = {number};
  return negated;
}

Loc expr_start(const Expr& expr) {
  const Expr* first = &expr;
  while (first->kind == ExprKind::binary) first = first->args[0].get();
  return first->loc;
}

std::vector<std::string> names_in(const Expr& expr) {
  std::vector<std::string> out;
  collect_names(expr, out);
  return out;
}

ExprPtr substitute(const ExprPtr& expr, const std::function<ExprPtr(const std::string& name)>& replace) {
  if (expr->kind == ExprKind::name) {
    ExprPtr replacement = replace(expr->text);
    return replacement ? replacement : expr;
  }
  std::shared_ptr<Expr> copy;
  const auto own = [&]() -> Expr& {
    if (!copy) copy = std::make_shared<Expr>(*expr);
    return *copy;
  };
  for (size_t i = 0; i < expr->args.size(); ++i) {
    ExprPtr now = substitute(expr->args[i], replace);
    if (now != expr->args[i]) own().args[i] = now;
  }
  for (size_t i = 0; i < expr->keywords.size(); ++i) {
    ExprPtr now = substitute(expr->keywords[i].second, replace);
    if (now != expr->keywords[i].second) own().keywords[i].second = now;
  }
  return copy ? copy : expr;
}

}  // namespace ingot::ir
