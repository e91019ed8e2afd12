// How a call in an expression meets an op's signature.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/expr.h"
#include "ir/graph/op_def.h"

namespace ingot::models {

/// A call matched with the op's operands and attributes; nothing evaluated.
struct BoundCall {
  const ir::OpDef* def = nullptr;
  std::vector<ir::ExprPtr> operands;  ///< one per operand (any number for the last, if variadic); nullptr = absent
  std::vector<std::pair<const ir::AttrDef*, ir::ExprPtr>> attrs;
};

/// The op a model file may call by that name, or nullptr.
const ir::OpDef* find_callable(std::string_view name);
std::vector<std::string> callable_names();
/// The op behind an operator ("+", "-" with one operand, "not", ...).
std::string_view operator_op(const ir::Expr& expr);

/// Positional arguments are operands and attributes in the signature's order, ports by keyword only; `none` is an absent
/// operand or attribute. Located UserError when the arguments do not fit the signature.
BoundCall bind_call(const ir::OpDef& def, const ir::Expr& call);

/// The attribute's value. Only compile-time names may stand in it. Located UserError.
ir::Attr attr_value(const ir::OpDef& def, const ir::AttrDef& attr, const ir::Expr& expr, const ir::ConstantScope& scope);

/// Results that count as the value of a call: those before the first hidden one.
size_t visible_results(const ir::OpDef& def);

/// Is the expression made of compile-time names, literals and functions alone?
bool is_constant(const ir::Expr& expr, const std::function<bool(const std::string&)>& is_constant_name);

}  // namespace ingot::models
