#include "passes/pass.h"

#include <algorithm>

#include "passes/passes.h"

namespace ingot::passes {

std::string PassContext::option(std::string_view name, std::string_view fallback) const {
  const auto at = options.find(std::string(name));
  return at == options.end() ? std::string(fallback) : at->second;
}

void PassContext::declare(ir::Variable variable) {
  if (const ir::Variable* existing = module.find_variable(variable.name)) {
    // The place may differ: @train and @verify both derive a moment from the same parameter.
    variable.loc = existing->loc;
    ir::check(*existing == variable, "the variable '" + variable.name + "' exists already and is another one");
    return;
  }
  module.variables.push_back(std::move(variable));
}

const std::vector<PassInfo>& pass_table() {
  static const std::vector<PassInfo> table{
      carry_pass(),     canonicalize_pass(), fold_pass(),       cse_pass(),       dce_pass(),        lerp_pass(),
      autocast_pass(),  configure_pass(),    outputs_pass(),    autodiff_pass(),  accumulate_pass(), optimizer_pass(),
      decompose_pass(), chunk_head_pass(),   gemm_shape_pass(), recompute_pass(), bias_pass(),       prepare_pass(),
      fuse_pass(),      split_adds_pass(),   schedule_pass(),   siblings_pass(),  check_pass()};
  return table;
}

const PassInfo* find_pass(std::string_view name) {
  const auto at = std::find_if(pass_table().begin(), pass_table().end(), [&](const PassInfo& p) { return p.name == name; });
  return at == pass_table().end() ? nullptr : &*at;
}

}  // namespace ingot::passes
