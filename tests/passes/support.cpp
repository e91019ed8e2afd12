#include "tests/passes/support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ir/graph/text.h"
#include "tests/common/random_graph.h"

namespace ingot::tests {
namespace {

bool bare(const std::string& text) { return text.find("graph @") == std::string::npos; }

std::string print_result(const ir::Module& module, bool graph_only) {
  const ir::PrintOptions plain{false};
  return graph_only ? ir::print(module.graphs.front(), plain) : ir::print(module, plain);
}

}  // namespace

ir::Module read_module(const std::string& text, const std::string& file) {
  if (!bare(text)) return ir::parse_module(text, file);
  ir::Module module;
  module.graphs.push_back(ir::parse_graph(text, file));
  return module;
}

void run_passes(ir::Module& module, const std::string& pipeline) {
  passes::PipelineOptions options;
  options.verify_roundtrip = true;
  options.dump_dir = testing::TempDir();  // where a reproducer goes
  ir::Graph graph = passes::run_pipeline(module.graphs.front(), module, passes::parse_pipeline(pipeline), options, "case");
  module.set_graph(std::move(graph));
}

std::string pass_result(const std::string& text, const std::string& pipeline) {
  try {
    ir::Module module = read_module(text);
    const std::string before = print_result(module, bare(text));
    run_passes(module, pipeline);
    const std::string after = print_result(module, bare(text));
    return after == before ? "unchanged" : after;
  } catch (const ir::UserError& error) {
    std::string lines;
    for (const ir::Diagnostic& d : error.diagnostics())
      lines += fmt::format("error {}:{}: {}\n", d.loc.line, d.loc.col, d.message);
    return lines;
  }
}

Named evaluate(const ir::Graph& graph, const Named& inputs, const Named& variables, ir::InterpretOptions options) {
  ir::InterpretResult result = ir::interpret(graph, inputs, variables, options);
  Named all;
  for (auto& [name, value] : result.outputs) all["output " + name] = std::move(value);
  for (auto& [name, value] : result.updates) all["update " + name] = std::move(value);
  return all;
}

double distance(const ir::Tensor& a, const ir::Tensor& b) {
  if (a.type.shape != b.type.shape) return std::numeric_limits<double>::infinity();
  double largest = 1, worst = 0;
  for (double v : a.data) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  for (size_t i = 0; i < a.data.size(); ++i) {
    const double x = a.data[i], y = b.data[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(x - y) / largest);
  }
  return worst;
}

double distance(const Named& a, const Named& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, distance(value, other->second));
  }
  return worst;
}

bool identical(const Named& a, const Named& b) {
  const auto same_bits = [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y) || (x != x && y != y);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& x, const auto& y) {
    return x.first == y.first && x.second.type.shape == y.second.type.shape &&
           std::equal(x.second.data.begin(), x.second.data.end(), y.second.data.begin(), y.second.data.end(), same_bits);
  });
}

Named draw_variables(const ir::Module& module, uint64_t seed, const std::map<std::string, double>& hypers) {
  Random random(seed);
  Named values;
  for (const ir::Variable& variable : module.variables) {
    ir::Tensor tensor(variable.type);
    const auto given = hypers.find(variable.name);
    const bool zero = variable.role == ir::VariableRole::state;
    for (double& v : tensor.data) v = given != hypers.end() ? given->second : zero ? 0 : random.real(-1, 1);
    values[variable.name] = std::move(tensor);
  }
  return values;
}

std::string text_of(const ir::Graph& graph) { return ir::print(graph, ir::PrintOptions{false}); }

}  // namespace ingot::tests
