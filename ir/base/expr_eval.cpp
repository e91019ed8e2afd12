// Compile-time evaluation of expressions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/error.h"
#include "ir/base/expr.h"
#include "ir/base/text.h"

namespace ingot::ir {
namespace {

constexpr int64_t kMaxListItems = 10000;

std::string_view kind_text(const Constant& value) {
  static constexpr std::string_view kNames[] = {"none", "a number", "a boolean", "text", "a list"};
  return kNames[value.value.index()];
}

using Unary = double (*)(double);
struct UnaryFunction {
  std::string_view name;
  Unary apply;
};
constexpr UnaryFunction kUnaryFunctions[] = {
    {"abs", [](double x) { return std::fabs(x); }},        {"sqrt", [](double x) { return std::sqrt(x); }},
    {"exp", [](double x) { return std::exp(x); }},         {"log", [](double x) { return std::log(x); }},
    {"expm1", [](double x) { return std::expm1(x); }},     {"log1p", [](double x) { return std::log1p(x); }},
    {"floor", [](double x) { return std::floor(x); }},     {"ceil", [](double x) { return std::ceil(x); }},
    {"round", [](double x) { return std::nearbyint(x); }},  // the default rounding mode: half to even
    {"sin", [](double x) { return std::sin(x); }},         {"cos", [](double x) { return std::cos(x); }},
    {"tanh", [](double x) { return std::tanh(x); }}};
constexpr std::string_view kOtherFunctions[] = {"min", "max", "pow", "cycle", "len", "select"};

class Evaluator {
 public:
  Evaluator(const ConstantScope& scope, bool bare_names) : scope_(scope), bare_names_(bare_names) {}

  Constant value(const Expr& e) const {
    switch (e.kind) {
      case ExprKind::number:
        return {e.number};
      case ExprKind::boolean:
        return {e.flag};
      case ExprKind::text:
        return {e.text};
      case ExprKind::none:
        return {};
      case ExprKind::name:
        return name(e);
      case ExprKind::unary:
        return unary(e);
      case ExprKind::binary:
        return binary(e);
      case ExprKind::call:
        return call(e);
      case ExprKind::list:
        break;
    }
    ConstantList items;
    for (const ExprPtr& arg : e.args) items.push_back(item(*arg));
    return {std::move(items)};
  }

 private:
  Constant name(const Expr& e) const {
    if (const Constant* found = scope_.find ? scope_.find(e.text) : nullptr) return *found;
    if (e.text == "yes" || e.text == "no" || e.text == "on" || e.text == "off" || e.text == "True" || e.text == "False" ||
        e.text == "TRUE" || e.text == "FALSE") {
      throw UserError(e.loc, fmt::format("`{}` is not a boolean here; write true or false", e.text));
    }
    const std::string near = scope_.names ? nearest_name(e.text, scope_.names()) : "";
    throw UserError(e.loc, near.empty() ? fmt::format("unknown name `{}`", e.text)
                                        : fmt::format("unknown name `{}`; did you mean `{}`?", e.text, near));
  }

  /// An item of a list or of cycle(): a bare name that nothing knows is text there (block names).
  Constant item(const Expr& e) const {
    if (bare_names_ && e.kind == ExprKind::name && !(scope_.find && scope_.find(e.text))) return {e.text};
    return value(e);
  }

  double number(const Expr& e) const {
    const Constant c = value(e);
    if (!c.is_number()) throw UserError(e.loc, fmt::format("a number is needed here, `{}` is {}", expr_text(e), kind_text(c)));
    return c.number();
  }

  bool boolean(const Expr& e) const {
    const Constant c = value(e);
    const bool* flag = std::get_if<bool>(&c.value);
    if (!flag) throw UserError(e.loc, fmt::format("a condition is true or false, `{}` is {}", expr_text(e), kind_text(c)));
    return *flag;
  }

  static Constant finite(const Expr& e, double value) {
    if (!std::isfinite(value)) throw UserError(e.loc, fmt::format("`{}` is not finite", expr_text(e)));
    return {value};
  }

  Constant unary(const Expr& e) const {
    if (e.text == "not") return {!boolean(*e.args[0])};
    return {-number(*e.args[0])};
  }

  Constant binary(const Expr& e) const {
    const Expr& l = *e.args[0];
    const Expr& r = *e.args[1];
    if (e.text == "and") return {boolean(l) && boolean(r)};
    if (e.text == "or") return {boolean(l) || boolean(r)};
    if (e.text == "==" || e.text == "!=") return {equal(e) == (e.text == "==")};
    if (e.text == "@") throw UserError(e.loc, "`@` multiplies matrices; both sides are numbers here");
    const double a = number(l), b = number(r);
    if (e.text == "+") return finite(e, a + b);
    if (e.text == "-") return finite(e, a - b);
    if (e.text == "*") return finite(e, a * b);
    if (e.text == "<") return {a < b};
    if (e.text == "<=") return {a <= b};
    if (e.text == ">") return {a > b};
    if (e.text == ">=") return {a >= b};
    if (b == 0) throw UserError(e.loc, fmt::format("division by zero: `{}` is 0", expr_text(r)));
    if (e.text == "/") return finite(e, a / b);
    return finite(e, a - std::floor(a / b) * b);
  }

  bool equal(const Expr& e) const {
    const Constant a = value(*e.args[0]), b = value(*e.args[1]);
    if (a.value.index() != b.value.index() || std::holds_alternative<ConstantList>(a.value)) {
      throw UserError(e.loc, fmt::format("`{}` compares {} with {}", e.text, kind_text(a), kind_text(b)));
    }
    if (a.is_number()) return a.number() == b.number();
    if (const bool* flag = std::get_if<bool>(&a.value)) return *flag == std::get<bool>(b.value);
    if (const std::string* text = std::get_if<std::string>(&a.value)) return *text == std::get<std::string>(b.value);
    return true;
  }

  Constant call(const Expr& e) const {
    if (!e.keywords.empty()) {
      throw UserError(e.keyword_locs[0], fmt::format("{} takes no keyword `{}` at compile time", e.text, e.keywords[0].first));
    }
    for (const UnaryFunction& f : kUnaryFunctions) {
      if (f.name != e.text) continue;
      arguments(e, 1, 1);
      return finite(e, f.apply(number(*e.args[0])));
    }
    if (e.text == "min" || e.text == "max") return extreme(e);
    if (e.text == "pow") {
      arguments(e, 2, 2);
      return finite(e, std::pow(number(*e.args[0]), number(*e.args[1])));
    }
    if (e.text == "select") {
      arguments(e, 3, 3);
      return value(boolean(*e.args[0]) ? *e.args[1] : *e.args[2]);
    }
    if (e.text == "cycle") return cycle(e);
    if (e.text == "len") {
      arguments(e, 1, 1);
      const Constant list = value(*e.args[0]);
      const ConstantList* items = std::get_if<ConstantList>(&list.value);
      if (!items) throw UserError(e.args[0]->loc, fmt::format("len takes a list, not {}", kind_text(list)));
      return {static_cast<double>(items->size())};
    }
    const std::string near = nearest_name(e.text, evaluator_functions());
    throw UserError(e.loc, near.empty() ? fmt::format("unknown function `{}` (known at compile time: {})", e.text,
                                                      fmt::join(evaluator_functions(), ", "))
                                        : fmt::format("unknown function `{}`; did you mean `{}`?", e.text, near));
  }

  static void arguments(const Expr& e, size_t least, size_t most) {
    const size_t n = e.args.size();
    if (n >= least && n <= most) return;
    throw UserError(
        e.loc, fmt::format("{} takes {} argument{}, not {}", e.text,
                           least == most ? std::to_string(least) : fmt::format("at least {}", least), least == 1 ? "" : "s", n));
  }

  Constant extreme(const Expr& e) const {
    arguments(e, 1, SIZE_MAX);
    double best = number(*e.args[0]);
    for (size_t i = 1; i < e.args.size(); ++i) {
      const double x = number(*e.args[i]);
      best = e.text == "min" ? std::min(best, x) : std::max(best, x);
    }
    return {best};
  }

  Constant cycle(const Expr& e) const {
    arguments(e, 2, SIZE_MAX);
    const double n = number(*e.args[0]);
    if (n != std::floor(n) || n < 0 || n > kMaxListItems) {
      throw UserError(e.args[0]->loc, fmt::format("cycle makes a list of 0 to {} items, not {}", kMaxListItems, n));
    }
    ConstantList kinds, items;
    for (size_t i = 1; i < e.args.size(); ++i) kinds.push_back(item(*e.args[i]));
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) items.push_back(kinds[i % kinds.size()]);
    return {std::move(items)};
  }

  const ConstantScope& scope_;
  bool bare_names_;
};

}  // namespace

Constant evaluate(const Expr& expr, const ConstantScope& scope, bool bare_names) {
  return Evaluator(scope, bare_names).value(expr);
}

const std::vector<std::string>& evaluator_functions() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const UnaryFunction& f : kUnaryFunctions) all.emplace_back(f.name);
    for (std::string_view f : kOtherFunctions) all.emplace_back(f);
    std::sort(all.begin(), all.end());
    return all;
  }();
  return names;
}

std::string constant_text(const Constant& constant) {
  if (constant.is_number()) return fmt::format("{}", constant.number());
  if (const bool* flag = std::get_if<bool>(&constant.value)) return *flag ? "true" : "false";
  if (const std::string* text = std::get_if<std::string>(&constant.value)) return *text;
  const ConstantList* items = std::get_if<ConstantList>(&constant.value);
  if (!items) return "none";
  std::string out = "[";
  for (size_t i = 0; i < items->size(); ++i) out += (i > 0 ? ", " : "") + constant_text((*items)[i]);
  return out + "]";
}

}  // namespace ingot::ir
