#include "models/groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/base/text.h"

namespace ingot::models {
namespace {

int64_t long_axes(const ir::Shape& shape) {
  return std::count_if(shape.begin(), shape.end(), [](int64_t n) { return n > 1; });
}

/// Every name a parameter or value of the model could have, were all conditions true and every layer of every kind: a pattern
/// that speaks of none of them is a mistake, one that speaks of another choice of blocks is not.
class PossibleNames {
 public:
  PossibleNames(const Description& model, size_t layers) : model_(model) {
    add(model.main, "");
    if (!model.stack) return;
    const std::string& prefix = model.stack->prefix.text;
    const size_t at = prefix.find("{layer}");
    for (size_t layer = 0; layer < layers; ++layer) {
      const std::string here = fmt::format("{}{}{}.", prefix.substr(0, at), layer, prefix.substr(at + 7));
      for (const BlockText& block : model.blocks) add(block, here);
    }
  }

  bool any(const std::string& pattern, bool values) const {
    const auto matches = [&](const std::string& name) { return ir::glob_match(pattern, name); };
    return std::any_of(params_.begin(), params_.end(), matches) ||
           (values && std::any_of(values_.begin(), values_.end(), matches));
  }

 private:
  void add(const BlockText& block, const std::string& prefix) {
    if (++depth_ < 16) {
      for (const ParamText& param : block.params) params_.push_back(prefix + param.name.text);
      for (const Statement& statement : block.graph) {
        for (const Word& name : statement.names) values_.push_back(prefix + name.text);
      }
      for (const UseText& use : block.use) {
        if (const BlockText* used = model_.find_block(use.block.text)) add(*used, fmt::format("{}{}.", prefix, use.prefix.text));
      }
    }
    --depth_;
  }

  const Description& model_;
  std::vector<std::string> params_, values_;
  int depth_ = 0;
};

}  // namespace

void check_patterns(const Description& model, size_t layers, Report& report) {
  if (!model.optimizer && model.pin.empty()) return;
  const PossibleNames names(model, layers);
  for (const GroupText& group : model.optimizer ? model.optimizer->groups : std::vector<GroupText>()) {
    if (!names.any(group.match.text, false)) {
      report.error(group.match.loc, fmt::format("no parameter of the model is called {}", group.match.text));
    }
  }
  for (const Word& pattern : model.pin) {
    if (!names.any(pattern.text, true)) {
      report.error(pattern.loc, fmt::format("pin: no value and no parameter is called {}", pattern.text));
    }
  }
}

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

ir::PrecisionSpec precision_spec(const Description& model, const Built& built) {
  ir::PrecisionSpec spec;
  const auto add = [&](const std::string& name) {
    if (std::find(spec.pin.begin(), spec.pin.end(), name) == spec.pin.end()) spec.pin.push_back(name);
  };
  for (const Word& pattern : model.pin) add(pattern.text);
  // A name given to another block's value matches through the name that value has in the graph.
  for (const Word& pattern : model.pin) {
    for (const auto& [name, id] : built.names) {
      if (ir::glob_match(pattern.text, name) && built.graph.value(id).name != name) add(built.graph.value(id).name);
    }
  }
  if (model.residual_f32) {
    for (const std::string& name : built.residual) add(name);
  }
  return spec;
}

}  // namespace ingot::models
