// The expression of an initial value, parsed: let bindings, the value, and the random fields in it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ir/base/expr.h"

namespace ingot::runtime {

struct InitExpr {
  std::vector<std::pair<std::string, ir::ExprPtr>> lets;  ///< in order; a binding may use earlier ones
  ir::ExprPtr value;
  std::vector<const ir::Expr*> draws;  ///< calls of uniform, normal, orthogonal, in order of appearance

  /// The number of this call among the draws, -1 when it is another function.
  int draw_index(const ir::Expr& call) const;
  const ir::ExprPtr* find_let(const std::string& name) const;
};

/// Checks names, functions and numbers of arguments too; located UserError.
InitExpr parse_init(const std::string& text, ir::Loc loc);

}  // namespace ingot::runtime
