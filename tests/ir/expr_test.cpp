// The expression language: lexer, parser, printer, evaluator.
#include "ir/base/expr.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ir/base/error.h"

namespace ingot::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Loc start() { return make_loc("t.yaml", 3, 11); }
ExprPtr parse(const std::string& text) { return parse_expr(text, start()); }

/// "col: message" of the first mistake, or "" when there is none.
template <class F>
std::string mistake(F&& run) {
  try {
    run();
  } catch (const UserError& e) {
    return fmt::format("{}: {}", e.diagnostics()[0].loc.col, e.diagnostics()[0].message);
  }
  return "";
}
std::string parse_mistake(const std::string& text) {
  return mistake([&] { parse(text); });
}

struct Scope {
  std::map<std::string, Constant> values;
  ConstantScope scope() const {
    return {[this](const std::string& name) {
              const auto it = values.find(name);
              return it == values.end() ? nullptr : &it->second;
            },
            [this] {
              std::vector<std::string> names;
              for (const auto& [name, value] : values) names.push_back(name);
              return names;
            }};
  }
};

Constant eval(const std::string& text, const Scope& scope = {}, bool bare = false) {
  return evaluate(*parse(text), scope.scope(), bare);
}
double number(const std::string& text, const Scope& scope = {}) { return eval(text, scope).number(); }

TEST(Expr, FullyParenthesisedFormShowsPrecedence) {
  const std::pair<std::string, std::string> cases[] = {
      {"1+2*3", "1 + 2 * 3"},
      {"(1+2)*3", "(1 + 2) * 3"},
      {"((a))", "a"},
      {"a-b-c", "a - b - c"},
      {"a-(b-c)", "a - (b - c)"},
      {"a/(b*c)", "a / (b * c)"},
      {"a@w+b", "a @ w + b"},
      {"-a*b", "-a * b"},
      {"-(a*b)", "-(a * b)"},
      {"a*-b", "a * -b"},
      {"- -a", "--a"},
      {"not a and b", "not a and b"},
      {"not (a and b)", "not (a and b)"},
      {"not a==b", "not a == b"},
      {"(not a)==b", "(not a) == b"},
      {"a or b and c", "a or b and c"},
      {"(a or b) and c", "(a or b) and c"},
      {"f(x,[1,2],k=a+1)", "f(x, [1, 2], k=a + 1)"},
      {"blocks.0.ln0.weight", "blocks.0.ln0.weight"},
      {"\"a\\\"b\"", "\"a\\\"b\""},
      {"(a<b)==(c<d)", "(a < b) == (c < d)"},
      {"f()", "f()"},
      {"none", "none"},
  };
  for (const auto& [text, printed] : cases) EXPECT_EQ(expr_text(*parse(text)), printed) << text;
}

TEST(Expr, EveryFormOfNumber) {
  for (const std::string text : {"1e-4", "1.e-4", "1E-4", "0.0001", ".0001", "1.0e-04"}) {
    EXPECT_EQ(number(text), 1e-4) << text;
    EXPECT_FALSE(parse(text)->is_integer);
  }
  EXPECT_TRUE(parse("12")->is_integer);
  EXPECT_EQ(number("65536"), 65536);
  EXPECT_EQ(expr_text(*parse("2.0")), "2.0");
  EXPECT_EQ(expr_text(*parse("2")), "2");
  EXPECT_EQ(number("1e-320"), 1e-320);
}

TEST(Expr, ColumnsPointAtTheToken) {
  const ExprPtr e = parse("x + foo(a, key=1.5)");
  EXPECT_EQ(e->loc.col, 13);  // the +
  EXPECT_EQ(e->loc.line, 3);
  EXPECT_EQ(e->args[0]->loc.col, 11);
  EXPECT_EQ(e->args[1]->loc.col, 15);
  EXPECT_EQ(e->args[1]->args[0]->loc.col, 19);
  EXPECT_EQ(e->args[1]->keyword_locs[0].col, 22);
  EXPECT_EQ(e->args[1]->keywords[0].second->loc.col, 26);
}

TEST(Expr, SyntaxMistakesAreLocated) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "11: an expression is missing"},
      {"1 +", "14: a value is expected before the end"},
      {"f(a", "12: `(` is never closed"},
      {"f(a b)", "15: `,` or `)` is expected before `b`"},
      {"[1, 2", "11: `[` is never closed"},
      {"a b", "13: unexpected `b`"},
      {"a ** b", "13: `**` is not an operator here; write pow(a, b)"},
      {"a && b", "write `and`"},
      {"!a", "11: `!` is not an operator here"},
      {"a = b", "13: unexpected `=`; a comparison is written `==`"},
      {"012", "11: `012`: a number does not begin with 0"},
      {"1e999", "11: `1e999` is too large"},
      {"3x", "11: `3x` is neither a number nor a name"},
      {"a < b < c", "17: comparisons do not chain"},
      {"a == not b", "16: `not` needs parentheses"},
      {"f(k=1, 2)", "18: f: a positional argument cannot follow a keyword"},
      {"f(k=1, k=2)", "18: f: `k` is given twice"},
      {"a.", "12: a name does not end in a dot"},
      {"\"abc", "11: this string has no closing quote"},
      {"f(a,)", "15: a value is expected after `,`"},
      {"a ; b", "13: unexpected character \";\""},
      {"a \xc3\xa9", "13: unexpected character \"\xc3\xa9\""},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(parse_mistake(text), HasSubstr(message)) << text;
}

TEST(Expr, HostileNestingIsAnErrorAndNotACrash) {
  EXPECT_THAT(parse_mistake(std::string(100000, '(')), HasSubstr("nests more than 200 deep"));
  EXPECT_THAT(parse_mistake(std::string(100000, '-') + "1"), HasSubstr("nests more than 200 deep"));
  std::string sum = "1";
  for (int i = 0; i < 100000; ++i) sum += "+1";
  EXPECT_THAT(parse_mistake(sum), HasSubstr("nests more than 200 deep"));
  EXPECT_EQ(number(std::string(150, '(') + "1" + std::string(150, ')')), 1);
}

TEST(Expr, Evaluates) {
  const Scope scope{{{"width", {768.0}}, {"ln0", {true}}, {"kind", {std::string("a")}}}};
  EXPECT_EQ(number("max(32, 32 * round(2.5 * sqrt(width) / 32))", scope), 64);
  EXPECT_EQ(number("round(0.5) + round(1.5) + round(2.5)"), 4);  // half to even
  EXPECT_EQ(number("-7 % 3"), 2);                                // the sign of the divisor, as in Python
  EXPECT_EQ(number("7 / 2"), 3.5);
  EXPECT_EQ(number("select(1 < 2, 5, 1 / 0)"), 5);  // the other side is not evaluated
  EXPECT_EQ(number("min(3, 1, 2)"), 1);
  EXPECT_EQ(number("len([1, 2, 3])"), 3);
  EXPECT_EQ(number("expm1(log1p(0.25))"), 0.25);
  EXPECT_EQ(constant_text(eval("not ln0 or 1 == 1 and 2 != 3", scope)), "true");
  EXPECT_EQ(constant_text(eval("kind == \"a\"", scope)), "true");
  EXPECT_EQ(constant_text(eval("cycle(5, a, b, ln0)", scope, true)), "[a, b, true, a, b]");
  EXPECT_EQ(constant_text(eval("[a, 1, \"x\"]", scope, true)), "[a, 1, x]");
  EXPECT_EQ(constant_text(eval("none")), "none");
}

TEST(Expr, EvaluationMistakesAreLocated) {
  const Scope scope{{{"width", {768.0}}, {"zero", {0.0}}, {"flag", {true}}, {"name", {std::string("abc")}}}};
  const auto eval_mistake = [&](const std::string& text) { return mistake([&] { eval(text, scope, true); }); };
  EXPECT_EQ(eval_mistake("4 * widht"), "15: unknown name `widht`; did you mean `width`?");
  EXPECT_EQ(eval_mistake("1 + width / zero"), "21: division by zero: `zero` is 0");
  EXPECT_EQ(eval_mistake("1 % 0"), "13: division by zero: `0` is 0");
  EXPECT_THAT(eval_mistake("log(0)"), HasSubstr("11: `log(0)` is not finite"));
  EXPECT_THAT(eval_mistake("sqrt(-1)"), HasSubstr("is not finite"));
  EXPECT_THAT(eval_mistake("1e308 * 10"), HasSubstr("is not finite"));
  EXPECT_THAT(eval_mistake("sqroot(2)"), HasSubstr("unknown function `sqroot`"));
  EXPECT_THAT(eval_mistake("sqtr(2)"), HasSubstr("did you mean `sqrt`?"));
  EXPECT_THAT(eval_mistake("pow(2)"), HasSubstr("pow takes 2 arguments, not 1"));
  EXPECT_THAT(eval_mistake("1 + name"), HasSubstr("15: a number is needed here, `name` is text"));
  EXPECT_THAT(eval_mistake("1 + flag"), HasSubstr("`flag` is a boolean"));
  EXPECT_THAT(eval_mistake("not width"), HasSubstr("a condition is true or false, `width` is a number"));
  EXPECT_THAT(eval_mistake("width == flag"), HasSubstr("compares a number with a boolean"));
  EXPECT_THAT(eval_mistake("yes"), HasSubstr("write true or false"));
  EXPECT_THAT(eval_mistake("cycle(1e9, a)"), HasSubstr("a list of 0 to 10000 items"));
  EXPECT_THAT(eval_mistake("max(1, b=2)"), HasSubstr("18: max takes no keyword `b`"));
}

TEST(Expr, NamesAndSubstitution) {
  const ExprPtr e = parse("a + f(b.c, k=a * d) - a");
  EXPECT_THAT(names_in(*e), ElementsAre("a", "b.c", "d"));
  const ExprPtr replaced = substitute(e, [](const std::string& name) { return name == "a" ? parse("x + 1") : nullptr; });
  EXPECT_EQ(expr_text(*replaced), "x + 1 + f(b.c, k=(x + 1) * d) - (x + 1)");
  EXPECT_EQ(substitute(e, [](const std::string&) { return ExprPtr(); }), e);  // untouched trees are shared
}

TEST(Expr, NumbersMadeByTheCompilerPrintAndParseBack) {
  for (double x : {-5.5, 0.0, 64.0, 1e-18, 1e20, -3.0, 0.1, 9007199254740993.0}) {
    const ExprPtr made = number_expr(x);
    EXPECT_EQ(number(expr_text(*made)), x);
    EXPECT_EQ(expr_text(*parse(expr_text(*made))), expr_text(*made));
  }
}

/// Equal but for locations.
bool same_tree(const Expr& a, const Expr& b) {
  if (a.kind != b.kind || a.text != b.text || a.number != b.number || a.is_integer != b.is_integer || a.flag != b.flag ||
      a.args.size() != b.args.size() || a.keywords.size() != b.keywords.size()) {
    return false;
  }
  for (size_t i = 0; i < a.args.size(); ++i) {
    if (!same_tree(*a.args[i], *b.args[i])) return false;
  }
  for (size_t i = 0; i < a.keywords.size(); ++i) {
    if (a.keywords[i].first != b.keywords[i].first || !same_tree(*a.keywords[i].second, *b.keywords[i].second)) return false;
  }
  return true;
}

struct RandomExpr {
  std::mt19937 random{7};
  int pick(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

  std::shared_ptr<Expr> make(int depth) {
    auto e = std::make_shared<Expr>();
    const int choice = depth == 0 ? pick(5) : pick(9);
    if (choice == 0) {
      return std::const_pointer_cast<Expr>(number_expr(pick(2) ? pick(100) : pick(1000) / 64.0));
    } else if (choice < 3) {
      e->kind = ExprKind::name;
      e->text = std::string(1, static_cast<char>('a' + pick(5)));
    } else if (choice == 3) {
      e->kind = pick(2) ? ExprKind::boolean : ExprKind::none;
    } else if (choice == 4) {
      e->kind = ExprKind::text;
      e->text = "q\"\\";
    } else if (choice == 5) {
      e->kind = ExprKind::unary;
      e->text = pick(2) ? "-" : "not";
      e->args = {make(depth - 1)};
    } else if (choice < 8) {
      static const char* const ops[] = {"or", "and", "<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "%", "@"};
      e->kind = ExprKind::binary;
      e->text = ops[pick(14)];
      e->args = {make(depth - 1), make(depth - 1)};
    } else {
      e->kind = pick(2) ? ExprKind::call : ExprKind::list;
      if (e->kind == ExprKind::call) e->text = "f";
      for (int i = pick(3); i > 0; --i) e->args.push_back(make(depth - 1));
      if (e->kind == ExprKind::call && pick(2)) e->keywords.emplace_back("k", make(depth - 1));
    }
    return e;
  }
};

TEST(Expr, RandomTreesPrintAndParseBack) {
  RandomExpr random;
  for (int i = 0; i < 5000; ++i) {
    const auto tree = random.make(1 + i % 6);
    const std::string text = expr_text(*tree);
    const ExprPtr back = parse(text);
    ASSERT_TRUE(same_tree(*tree, *back)) << text << "\n" << expr_text(*back);
  }
}

}  // namespace
}  // namespace ingot::ir
