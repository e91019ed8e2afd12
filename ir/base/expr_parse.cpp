// Pratt parser of the expression language.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/base/error.h"
#include "ir/base/expr.h"
#include "ir/base/expr_lexer.h"
#include "ir/base/expr_tables.h"

namespace ingot::ir {
namespace {

constexpr int kMaxDepth = 200;

struct Parsed {
  ExprPtr expr;
  int depth = 1;
};

class Parser {
 public:
  Parser(std::string_view text, Loc start) : tokens_(lex_expr(text, start)) {}

  ExprPtr run() {
    if (token().kind == TokenKind::end) fail("an expression is missing");
    Parsed parsed = expression(0);
    if (token().kind != TokenKind::end) {
      if (token().is("=")) fail("unexpected `=`; a comparison is written `==`");
      if (token().is(",")) fail("unexpected `,`; several values are written as a list [a, b]");
      fail(fmt::format("unexpected {} after the expression; an operator is missing", token_text(token())));
    }
    return parsed.expr;
  }

 private:
  const Token& token() const { return tokens_[at_]; }
  Token take() { return tokens_[at_++]; }
  [[noreturn]] void fail(const std::string& message) const { throw UserError(token().loc, message); }

  static std::shared_ptr<Expr> make(ExprKind kind, const Token& at) {
    auto expr = std::make_shared<Expr>();
    expr->kind = kind;
    expr->loc = at.loc;
    expr->text = at.text;
    return expr;
  }

  Parsed bounded(Parsed parsed, int child_depth) const {
    parsed.depth = child_depth + 1;
    if (parsed.depth > kMaxDepth)
      throw UserError(parsed.expr->loc, fmt::format("this expression nests more than {} deep", kMaxDepth));
    return parsed;
  }

  Parsed expression(int minimum) {
    if (++nesting_ > kMaxDepth) fail(fmt::format("this expression nests more than {} deep", kMaxDepth));
    Parsed left = prefix(minimum);
    while (true) {
      const BinaryOperator* op = is_operator(token()) ? find_binary_operator(token().text) : nullptr;
      if (op == nullptr || op->precedence < minimum) break;
      const Token sign = take();
      Parsed right = expression(op->precedence + 1);
      auto expr = make(ExprKind::binary, sign);
      expr->args = {left.expr, right.expr};
      left = bounded({expr}, std::max(left.depth, right.depth));
      const BinaryOperator* next = is_operator(token()) ? find_binary_operator(token().text) : nullptr;
      if (op->comparison && next != nullptr && next->comparison) fail("comparisons do not chain; write `a < b and b < c`");
    }
    --nesting_;
    return left;
  }

  static bool is_operator(const Token& t) { return t.kind == TokenKind::symbol || t.is_word("and") || t.is_word("or"); }

  Parsed prefix(int minimum) {
    const bool negation = token().is_word("not");
    if (!negation && !token().is("-")) return primary();
    if (negation && minimum > kNotPrecedence) fail("`not` needs parentheses here");
    const Token sign = take();
    Parsed operand = expression(negation ? kNotPrecedence : kUnaryPrecedence);
    auto expr = make(ExprKind::unary, sign);
    expr->args = {operand.expr};
    return bounded({expr}, operand.depth);
  }

  Parsed primary() {
    if (token().is("(")) {
      const Token open = take();
      Parsed inner = expression(0);
      close(")", open);
      return inner;
    }
    if (token().is("[")) return list();
    if (token().kind == TokenKind::name) return word();
    if (token().kind == TokenKind::number) {
      const Token t = take();
      auto expr = make(ExprKind::number, t);
      expr->text.clear();
      expr->number = t.number;
      expr->is_integer = t.is_integer;
      return {expr};
    }
    if (token().kind == TokenKind::text) return {make(ExprKind::text, take())};
    fail(fmt::format("a value is expected before {}", token_text(token())));
  }

  Parsed word() {
    const Token t = take();
    if (t.text == "true" || t.text == "false") {
      auto expr = make(ExprKind::boolean, t);
      expr->flag = t.text == "true";
      expr->text.clear();
      return {expr};
    }
    if (t.text == "none") {
      auto expr = make(ExprKind::none, t);
      expr->text.clear();
      return {expr};
    }
    if (t.text == "and" || t.text == "or") throw UserError(t.loc, fmt::format("a value is expected before `{}`", t.text));
    return token().is("(") ? call(t) : Parsed{make(ExprKind::name, t)};
  }

  Parsed call(const Token& callee) {
    const Token open = take();
    auto expr = make(ExprKind::call, callee);
    int depth = 0;
    while (!token().is(")")) {
      if (token().kind == TokenKind::name && tokens_[at_ + 1].is("=")) {
        const Token key = take();
        take();
        const bool again =
            std::any_of(expr->keywords.begin(), expr->keywords.end(), [&](const auto& k) { return k.first == key.text; });
        if (again) throw UserError(key.loc, fmt::format("{}: `{}` is given twice", callee.text, key.text));
        Parsed value = expression(0);
        depth = std::max(depth, value.depth);
        expr->keywords.emplace_back(key.text, value.expr);
        expr->keyword_locs.push_back(key.loc);
      } else {
        if (!expr->keywords.empty()) fail(fmt::format("{}: a positional argument cannot follow a keyword argument", callee.text));
        Parsed value = expression(0);
        depth = std::max(depth, value.depth);
        expr->args.push_back(value.expr);
      }
      if (!separator(")", open)) break;
    }
    close(")", open);
    return bounded({expr}, depth);
  }

  Parsed list() {
    const Token open = take();
    auto expr = make(ExprKind::list, open);
    expr->text.clear();
    int depth = 0;
    while (!token().is("]")) {
      Parsed item = expression(0);
      depth = std::max(depth, item.depth);
      expr->args.push_back(item.expr);
      if (!separator("]", open)) break;
    }
    close("]", open);
    return bounded({expr}, depth);
  }

  /// Takes a comma between items; false at the closing bracket.
  bool separator(std::string_view closer, const Token& open) {
    if (token().is(closer)) return false;
    if (!token().is(",")) not_closed(closer, open);
    take();
    if (token().is(closer)) fail(fmt::format("a value is expected after `,`, before `{}`", closer));
    return true;
  }

  void close(std::string_view closer, const Token& open) {
    if (!token().is(closer)) not_closed(closer, open);
    take();
  }

  [[noreturn]] void not_closed(std::string_view closer, const Token& open) const {
    if (token().kind == TokenKind::end) throw UserError(open.loc, fmt::format("`{}` is never closed", open.text));
    fail(fmt::format("`,` or `{}` is expected before {}", closer, token_text(token())));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

ExprPtr parse_expr(std::string_view text, Loc start) { return Parser(text, start).run(); }

}  // namespace ingot::ir
