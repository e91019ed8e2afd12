// A target that compiles nothing: a launch per op whose text names the op, so that lowering can be tested as text.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "codegen/target.h"
#include "ir/graph/op_def.h"

namespace ingot::codegen {

class FakeTarget final : public Target {
 public:
  std::string name() const override { return "fake"; }

  OpLaunches lower(const OpSite& site) const override {
    Launch launch;
    launch.stem = std::string(site.op.name());
    launch.text = "KERNEL " + launch.stem + std::to_string(site.op.operands.size());
    if (site.op.region) launch.text += " " + std::to_string(ir::structural_hash(*site.op.region));
    const int operands = static_cast<int>(site.op.operands.size()), results = static_cast<int>(site.op.results.size());
    for (int i = 0; i < operands; ++i) launch.args.push_back({LaunchArg::Kind::operand, i, ir::AccessMode::read});
    for (int i = 0; i < results; ++i) launch.args.push_back({LaunchArg::Kind::result, i, ir::AccessMode::write});
    OpLaunches out;
    for (const auto& [operand, rows] : site.partials) {
      if (adds_numbers) out.added.push_back(operand);
    }
    if (waiting.contains(launch.stem)) {
      const ir::Type& type = site.graph.type(site.op.results[0]);
      launch.args.back() = {LaunchArg::Kind::workspace, 0, ir::AccessMode::write};
      out.launches = {launch};
      out.sums = {{0, 0, {kPartials, type.elements(), type.dtype}}};
      out.workspace_bytes = {out.sums[0].sum.bytes()};
      return out;
    }
    const auto scratch = workspaces.find(launch.stem);
    if (scratch == workspaces.end()) {
      out.launches = {launch};
      return out;
    }
    // Two launches that pass something on in a workspace.
    Launch before = launch;
    before.text += " first";
    before.args = {launch.args[0], {LaunchArg::Kind::workspace, 0, ir::AccessMode::write}};
    launch.args.push_back({LaunchArg::Kind::workspace, 0, ir::AccessMode::read});
    launch.text += " second";
    out.launches = {before, launch};
    out.workspace_bytes = {scratch->second};
    return out;
  }

  Launch add_sums(const std::vector<RowSum>& sums) const override {
    Launch launch;
    launch.stem = "sums";
    launch.text = "KERNEL sums" + std::to_string(sums.size());
    for (int i = 0; i < static_cast<int>(sums.size()); ++i) {
      launch.args.push_back({LaunchArg::Kind::workspace, i, ir::AccessMode::read});
      if (sums[static_cast<size_t>(i)].plus) {
        launch.text += "+";
        launch.args.push_back({LaunchArg::Kind::operand, i, ir::AccessMode::read});
      }
      launch.args.push_back({LaunchArg::Kind::result, i, ir::AccessMode::write});
    }
    return launch;
  }
  SumLimits sum_limits() const override { return limits; }

  int64_t gemm_workspace_bytes() const override { return gemm_workspace; }

  std::string refuses(const ir::Graph&, const ir::Op& op) const override { return op.name() == refused ? "not today" : ""; }

  BuiltKernels build(const std::vector<KernelText>& kernels) const override {
    BuiltKernels out;
    for (const KernelText& k : kernels) {
      ir::Kernel kernel;
      kernel.image = "image";
      kernel.source = "kernels.txt";
      kernel.symbol = k.name;
      out.kernels.push_back(kernel);
      out.files["kernels.txt"] += k.text + "\n";
    }
    out.files["image"] = "";
    return out;
  }

  std::map<std::string, int64_t> workspaces;  ///< ops that need scratch
  std::set<std::string> waiting;              ///< ops of one result that leave it to be added from partials
  bool adds_numbers = false;                  ///< regions add the partials of numbers that only they read
  SumLimits limits;
  static constexpr int64_t kPartials = 2;  ///< rows of them
  std::string refused;
  int64_t gemm_workspace = 0;
};

}  // namespace ingot::codegen
