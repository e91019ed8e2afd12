// The expression language of model files: lexer, Pratt parser, tree. models/ turns trees into ops and compile-time values;
// runtime/ evaluates initial values; passes/ read the optimizer's rule. Precedence as in Python:
//   or < and < not < comparisons < + - < * / % @ < unary - < call
// Names may hold dots and begin with an underscore. Literals: numbers (also 1e-4, 1.e-4, 1E-4), "strings", true, false, none,
// [lists]. Calls take positional, then keyword arguments. Depth is limited (200), so hostile nesting is an error and not a crash.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/base/loc.h"

namespace ingot::ir {

enum class ExprKind : uint8_t { number, boolean, text, none, name, unary, binary, call, list };

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

struct Expr {
  ExprKind kind = ExprKind::none;
  Loc loc;
  double number = 0;
  bool is_integer = false;                                ///< the number's literal had neither point nor exponent
  bool flag = false;                                      ///< boolean
  std::string text;                                       ///< string contents, name, operator ("+", "not", "<=", ...), or callee
  std::vector<ExprPtr> args;                              ///< operands, positional arguments, list items
  std::vector<std::pair<std::string, ExprPtr>> keywords;  ///< calls
  std::vector<Loc> keyword_locs;
};

/// Parses the whole text; `start` is the location of its first byte (columns are counted from there). Located UserError.
ExprPtr parse_expr(std::string_view text, Loc start);
/// A literal (a negative one is the negation of a literal, as the parser makes it).
ExprPtr number_expr(double value, Loc loc = {});
/// Prints with the fewest parentheses that parse back to the same tree; numbers in shortest form.
std::string expr_text(const Expr& expr);

/// A compile-time value: number, bool, string, or list.
struct Constant;
using ConstantList = std::vector<Constant>;
struct Constant {
  std::variant<std::monostate, double, bool, std::string, ConstantList> value;  ///< monostate = none
  bool is_number() const { return std::holds_alternative<double>(value); }
  double number() const { return std::get<double>(value); }
};
std::string constant_text(const Constant& value);

/// Looks a name up; nullptr result = unknown (the evaluator then reports it, with the nearest of `names`).
struct ConstantScope {
  std::function<const Constant*(const std::string& name)> find;
  std::function<std::vector<std::string>()> names;
};

/// Evaluates at compile time. Functions: min max abs sqrt exp log expm1 log1p pow round (half to even) floor ceil sin cos tanh,
/// cycle(n, a, b, ...) (a list of n items), len, select. Names and strings: block names in `cycle` and lists are bare names
/// that evaluate to strings when unknown to the scope and `bare_names` is set. Division by zero, unknown names, results that
/// are not finite, and type errors are located UserErrors. Overflowing sizes are caught by the caller.
Constant evaluate(const Expr& expr, const ConstantScope& scope, bool bare_names = false);
/// The names of those functions, sorted.
const std::vector<std::string>& evaluator_functions();

/// Where the expression begins (`loc` of an operation is its sign).
Loc expr_start(const Expr& expr);

/// Every name the expression mentions (not callees, not keywords), in order of appearance, once each.
std::vector<std::string> names_in(const Expr& expr);

/// The same tree with names replaced by what `replace` returns (nullptr = keep).
ExprPtr substitute(const ExprPtr& expr, const std::function<ExprPtr(const std::string& name)>& replace);

}  // namespace ingot::ir
