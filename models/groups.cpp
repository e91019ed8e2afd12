#include "models/groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/base/text.h"

namespace ingot::models {
namespace {

int64_t long_axes(const ir::Shape& shape) {
  return std::count_if(shape.begin(), shape.end(), [](int64_t n) { return n > 1; });
}

}  // namespace

void apply_groups(const Description& model, std::vector<ir::Variable>& variables, Report& report) {
  if (!model.optimizer || !model.optimizer->groups_complete) return;
  const std::vector<GroupText>& groups = model.optimizer->groups;
  for (ir::Variable& variable : variables) {
    if (variable.role != ir::VariableRole::param) continue;
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const GroupText& g) {
      return ir::glob_match(g.match.text, variable.name) && long_axes(variable.type.shape) >= g.min_rank;
    });
    if (group == groups.end()) {
      report.error(
          variable.loc,
          fmt::format("no optimizer group matches the parameter {} (rank {})", variable.name, long_axes(variable.type.shape)),
          {{model.optimizer->loc, "the groups are here; a last one {match: \"*\"} takes what is left"}});
      continue;
    }
    variable.lr_factor = group->lr;
    variable.decay_factor = group->decay;
  }
}

ir::PrecisionSpec precision_spec(const Description& model, const Built& built, Report& report) {
  ir::PrecisionSpec spec;
  const auto add = [&](const std::string& name) {
    if (std::find(spec.pin.begin(), spec.pin.end(), name) == spec.pin.end()) spec.pin.push_back(name);
  };
  for (const Word& pattern : model.pin) add(pattern.text);
  for (const Word& pattern : model.pin) {
    bool any = std::any_of(built.variables.begin(), built.variables.end(),
                           [&](const auto& v) { return ir::glob_match(pattern.text, v.name); });
    for (const auto& [name, id] : built.names) {
      if (!ir::glob_match(pattern.text, name)) continue;
      any = true;
      // A name given to another block's value matches through the name that value has in the graph.
      if (built.graph.value(id).name != name) add(built.graph.value(id).name);
    }
    if (!any) report.error(pattern.loc, fmt::format("pin: no value and no parameter is called {}", pattern.text));
  }
  if (model.residual_f32) {
    for (const std::string& name : built.residual) add(name);
  }
  return spec;
}

}  // namespace ingot::models
