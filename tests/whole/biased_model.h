// A model whose products have biases, random parameters and inputs for it, and what the interpreter makes of them.
#pragma once
#include <random>

#include "tests/common/places.h"
#include "tools/ingot/verify.h"

namespace ingot::tests {

using Overrides = std::vector<std::pair<std::string, std::string>>;

inline models::LoadedModel biased_model(const Overrides& overrides = {}) {
  models::LoadOptions options;
  options.overrides = overrides;
  return models::load_model(source_file("tests/models/biased.yaml"), options);
}

/// Results of the interpreter in double: outputs and gradients, named as in a golden file.
inline tools::Golden biased_golden(const models::LoadedModel& model) {
  tools::Golden golden{"biased", {}, {}, {}, {}};
  std::mt19937 random(7);
  for (const ir::Variable& v : model.module.variables) {
    if (v.role != ir::VariableRole::param) continue;
    ir::Tensor& tensor = golden.params[v.name] = ir::Tensor(v.type);
    for (double& x : tensor.data) x = std::uniform_real_distribution<double>(-0.3, 0.3)(random);
  }
  for (const ir::Op& op : model.module.graph("loss").ops()) {
    if (op.name() != "input") continue;
    const ir::Value& value = model.module.graph("loss").value(op.results[0]);
    ir::Tensor& tensor = golden.inputs[value.name] = ir::Tensor(value.type);
    for (double& x : tensor.data) x = static_cast<double>(random() % 29);
  }
  for (auto& [name, tensor] : tools::run_reference(model, golden, "f32", false)) {
    if (name.starts_with("grad.")) golden.gradients[name.substr(5)] = tensor;
    if (name.starts_with("out.") && name != "out.count") golden.outputs[name.substr(4)] = tensor;
  }
  return golden;
}

/// Products with a bias in a program of the plan, by label.
inline std::vector<std::string> biased_products(const ir::Plan& plan, const std::string& program) {
  std::vector<std::string> labels;
  for (const ir::Call& call : plan.find_program(program)->calls) {
    if (call.gemm.has_bias()) labels.push_back(call.label);
  }
  return labels;
}

}  // namespace ingot::tests
