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

namespace {

std::string state_name(const ir::Variable& param, const std::string& suffix) {
  return suffix.empty() ? param.name : param.name + "." + suffix;
}

}  // namespace

ir::ValueId RuleContext::state(const std::string& suffix) {
  std::vector<ir::ValueId> values;
  for (const Trained& part : packed.parts) {
    ir::Variable variable;
    variable.name = state_name(part.variable, suffix);
    variable.role = ir::VariableRole::state;
    variable.type = {ir::DType::f32, part.variable.type.shape};
    variable.loc = ir::derived(part.variable.loc, "optimizer");
    pass.declare(variable);
    values.push_back(b.variable(variable));
  }
  b.set_name("packed." + suffix);
  return packed.pack(b, values);
}

void RuleContext::update(const std::string& suffix, ir::ValueId updated) {
  const ir::Loc loc = b.loc();
  for (size_t i = 0; i < packed.parts.size(); ++i) {
    const ir::Variable& param = packed.parts[i].variable;
    const std::string name = state_name(param, suffix);
    b.set_loc(ir::derived(param.loc, "optimizer"));
    b.set_name(name + ".new");
    b.graph().add_update({name, packed.part(b, updated, i), b.loc()});
  }
  b.set_loc(loc);
}

}  // namespace ingot::passes
