// What an update rule is to the pass `optimizer`. A rule is one file rule_<name>.cpp that defines one function returning a
// Rule, listed in rules.cpp: another optimizer touches nothing else.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "passes/pass.h"
#include "passes/util.h"

namespace ingot::passes {

/// What a rule is given for one parameter. All scalars are f32[] (ok: bool[]).
struct RuleContext {
  ir::Builder& b;
  PassContext& pass;
  const ir::Variable& param;
  ir::ValueId value = ir::kNone;                 ///< the parameter before the step
  ir::ValueId gradient = ir::kNone;              ///< of the sum of losses
  ir::ValueId scale = ir::kNone;                 ///< times this: of the clipped mean
  ir::ValueId step = ir::kNone;                  ///< number of this update, from 1 (f32)
  ir::ValueId ok = ir::kNone;                    ///< false: every state and the parameter must stay as they are
  std::map<std::string, ir::ValueId> arguments;  ///< by the rule's argument names; `lr` and `decay` with the group's factors

  ir::ValueId argument(const std::string& name) const;
  /// Declares the state `<param>.<suffix>` (f32, the parameter's shape, zeros) and reads it.
  ir::ValueId state(const std::string& suffix);
  void update(const std::string& suffix, ir::ValueId value);  ///< "" = the parameter itself
};

struct Rule {
  std::string name;
  std::vector<std::string> arguments;  ///< in the order of the model file; `lr` first; `decay`, if any, is the weight decay
  /// Scalars that every parameter shares (bias corrections): name -> value, added to `arguments`.
  std::function<std::map<std::string, ir::ValueId>(RuleContext&)> shared;
  std::function<void(RuleContext&)> apply;
};

const std::vector<Rule>& rules();

Rule adamw_rule();

}  // namespace ingot::passes
