#include "runtime/init_expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ir/base/error.h"
#include "ir/base/text.h"

namespace ingot::runtime {
namespace {

struct Function {
  std::string_view name;
  size_t least, most;
};
constexpr size_t kAny = 1000;
constexpr Function kFunctions[] = {{"uniform", 2, 2}, {"normal", 2, 2}, {"orthogonal", 1, 1}, {"min", 1, kAny}, {"max", 1, kAny},
                                   {"pow", 2, 2},     {"select", 3, 3}, {"abs", 1, 1},        {"sqrt", 1, 1},   {"exp", 1, 1},
                                   {"log", 1, 1},     {"expm1", 1, 1},  {"log1p", 1, 1},      {"floor", 1, 1},  {"ceil", 1, 1},
                                   {"round", 1, 1},   {"sin", 1, 1},    {"cos", 1, 1},        {"tanh", 1, 1}};

bool is_draw(std::string_view name) { return name == "uniform" || name == "normal" || name == "orthogonal"; }

void check_call(const ir::Expr& call) {
  const auto* found =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& f) { return f.name == call.text; });
  if (found == std::end(kFunctions)) {
    std::vector<std::string> names;
    for (const Function& f : kFunctions) names.emplace_back(f.name);
    const std::string near = ir::nearest_name(call.text, names);
    throw ir::UserError(call.loc, fmt::format("initial values have no function `{}`{}", call.text,
                                              near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
  }
  if (!call.keywords.empty()) throw ir::UserError(call.keyword_locs[0], fmt::format("{} takes no keywords here", call.text));
  if (call.args.size() < found->least || call.args.size() > found->most) {
    throw ir::UserError(call.loc, fmt::format("{} takes {} argument{}, not {}", call.text, found->least,
                                              found->least == 1 ? "" : "s", call.args.size()));
  }
}

void check(const ir::Expr& e, InitExpr& init) {
  switch (e.kind) {
    case ir::ExprKind::number:
    case ir::ExprKind::boolean:
      return;
    case ir::ExprKind::name:
      if (e.text == "i" || e.text == "j" || init.find_let(e.text)) return;
      throw ir::UserError(e.loc, fmt::format("initial values know i, j and their let names; `{}` is none of them", e.text));
    case ir::ExprKind::call:
      check_call(e);
      if (is_draw(e.text)) init.draws.push_back(&e);
      break;
    case ir::ExprKind::binary:
      if (e.text == "@") throw ir::UserError(e.loc, "`@` multiplies matrices; an initial value is made element by element");
      break;
    case ir::ExprKind::unary:
      break;
    case ir::ExprKind::text:
    case ir::ExprKind::none:
    case ir::ExprKind::list:
      throw ir::UserError(e.loc, "an initial value is a number");
  }
  for (const ir::ExprPtr& arg : e.args) check(*arg, init);
}

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n");
  return begin == std::string_view::npos ? std::string_view{} : text.substr(begin, end - begin + 1);
}

}  // namespace

int InitExpr::draw_index(const ir::Expr& call) const {
  const auto it = std::find(draws.begin(), draws.end(), &call);
  return it == draws.end() ? -1 : static_cast<int>(it - draws.begin());
}

const ir::ExprPtr* InitExpr::find_let(const std::string& name) const {
  for (const auto& [known, expr] : lets) {
    if (known == name) return &expr;
  }
  return nullptr;
}

InitExpr parse_init(const std::string& text, ir::Loc loc) {
  InitExpr init;
  std::string_view rest = trimmed(text);
  while (rest.starts_with("let ")) {
    const auto end = rest.find(';'), equals = rest.find('=');
    if (end == std::string_view::npos || equals == std::string_view::npos || equals > end) {
      throw ir::UserError(loc, fmt::format("`{}` is not of the form `let NAME = EXPRESSION;`", rest));
    }
    const std::string name(trimmed(rest.substr(4, equals - 4)));
    if (name == "i" || name == "j" || init.find_let(name)) throw ir::UserError(loc, fmt::format("`{}` is bound twice", name));
    ir::ExprPtr expr = ir::parse_expr(trimmed(rest.substr(equals + 1, end - equals - 1)), loc);
    check(*expr, init);
    init.lets.emplace_back(name, std::move(expr));
    rest = trimmed(rest.substr(end + 1));
  }
  init.value = ir::parse_expr(rest, loc);
  check(*init.value, init);
  return init;
}

}  // namespace ingot::runtime
