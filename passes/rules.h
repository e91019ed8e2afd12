// What an update rule is to the pass `optimizer`. A rule is one file rule_<name>.cpp that defines one function returning a
// Rule, listed in rules.cpp: another optimizer touches nothing else.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "passes/packed.h"
#include "passes/pass.h"
#include "passes/util.h"

namespace ingot::passes {

/// What a rule is given for parameters packed side by side: matrices [rows, Packed::kRow] (packed.h). All scalars are f32[] (ok:
/// bool[]). What a rule makes of zeros must be zero: that is what lies between the parameters, and it stays.
struct RuleContext {
  ir::Builder& b;
  PassContext& pass;
  const Packed& packed;
  ir::ValueId value = ir::kNone;     ///< the parameters before the step
  ir::ValueId gradient = ir::kNone;  ///< of the sum of losses
  ir::ValueId scale = ir::kNone;     ///< times this: of the clipped mean
  ir::ValueId step = ir::kNone;      ///< number of this update, from 1 (f32)
  ir::ValueId ok = ir::kNone;        ///< false: every state and parameter must stay as they are
  /// By the rule's argument names; `lr` and `decay` times the groups' factors: f32[] or, where these differ, f32[rows, 1].
  std::map<std::string, ir::ValueId> arguments;

  ir::ValueId argument(const std::string& name) const;
  /// Declares the states `<param>.<suffix>` (f32, each parameter's shape, zeros) and reads them packed.
  ir::ValueId state(const std::string& suffix);
  void update(const std::string& suffix, ir::ValueId value);  ///< "" = the parameters themselves
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
