#include "passes/rules.h"

namespace ingot::passes {

const std::vector<Rule>& rules() {
  static const std::vector<Rule> list{adamw_rule()};
  return list;
}

ir::ValueId RuleContext::argument(const std::string& name) const {
  const auto at = arguments.find(name);
  ir::check(at != arguments.end(), "optimizer: the rule has no argument '" + name + "'");
  return at->second;
}

ir::ValueId RuleContext::state(const std::string& suffix) {
  ir::Variable variable;
  variable.name = param.name + "." + suffix;
  variable.role = ir::VariableRole::state;
  variable.type = {ir::DType::f32, param.type.shape};
  variable.loc = ir::derived(param.loc, "optimizer");
  pass.declare(variable);
  return b.variable(variable);
}

void RuleContext::update(const std::string& suffix, ir::ValueId updated) {
  b.graph().add_update({suffix.empty() ? param.name : param.name + "." + suffix, updated, ir::derived(param.loc, "optimizer")});
}

}  // namespace ingot::passes
