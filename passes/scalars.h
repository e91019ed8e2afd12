// Scalar expressions of the optimizer section as graph ops, and the schedules made of them.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/expr.h"
#include "passes/pass.h"
#include "passes/util.h"

namespace ingot::passes {

/// Turns an expression over hypers, bound names and numbers into f32[] values.
class Scalars {
 public:
  Scalars(ir::Builder& builder, PassContext& context) : b_(builder), context_(context) {}
  /// From here on `name` means this value.
  void bind(const std::string& name, ir::ValueId value) { bound_[name] = value; }
  /// UserError at the name (with the nearest) when it is neither bound nor a hyper.
  ir::ValueId build(const ir::Expr& expr);
  /// Reads a hyper; declares it first (with that initial value) when the model has none of that name.
  ir::ValueId hyper(const std::string& name, const std::string& init, ir::Loc loc);
  ir::Builder& b() { return b_; }

 private:
  ir::ValueId name(const ir::Expr& expr);
  ir::ValueId call(const ir::Expr& expr);

  ir::Builder& b_;
  PassContext& context_;
  std::map<std::string, ir::ValueId> bound_;
};

/// The arguments of a call in the order of `names`, given by position or by keyword; every one exactly once.
std::vector<ir::ExprPtr> bind_arguments(const ir::Expr& call, const std::vector<std::string>& names);

/// The name a schedule drives (its first argument) and the value it has when `done` updates (f32[]) have been made:
///   constant(lr)
///   cosine(lr, lr_final, warmup)    over `steps` updates, a hyper
std::pair<std::string, ir::ValueId> scheduled_lr(const ir::Expr& call, Scalars& scalars, ir::ValueId done);

}  // namespace ingot::passes
