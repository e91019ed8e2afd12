#include "codegen/compile.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/lower.h"
#include "ir/base/error.h"
#include "ir/graph/text.h"

namespace ingot::codegen {
namespace {

constexpr const char* kVersion = "0.1.0";

// `train` in microbatches is three programs; a model without @decode has no decode program.
std::vector<std::string> program_list(const ir::Module& module, const CompileOptions& options) {
  std::vector<std::string> list;
  const auto add = [&](const std::string& name) {
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  };
  for (const std::string& name : options.programs) {
    if (name == "train" && options.microbatches > 1) {
      for (const char* part : {"first", "next", "last"}) add(part);
    } else if (name != "decode" || module.find_graph("decode")) {
      add(name);
    }
  }
  return list;
}

// A module of this graph alone, with the variables it may read: every dump is a valid input.
std::string dump(const ir::Module& module, const ir::Graph& graph) {
  ir::Module one = module;
  one.graphs.clear();
  one.set_graph(graph);
  return ir::print(one);
}

void describe(const CompileOptions& options, ir::Plan& plan) {
  plan.info.emplace_back("ingot.version", kVersion);
  plan.info.emplace_back("options.precision", options.precision);
  plan.info.emplace_back("options.grads", options.grads);
  plan.info.emplace_back("options.microbatches", std::to_string(options.microbatches));
  if (options.carry_state) plan.info.emplace_back("options.carry_state", "true");
  if (options.lanes > 0) plan.info.emplace_back("options.lanes", std::to_string(options.lanes));
  plan.info.emplace_back("options.reuse_memory", options.reuse_memory ? "true" : "false");
  if (!options.pipeline.disable.empty())
    plan.info.emplace_back("options.disable", fmt::format("{}", fmt::join(options.pipeline.disable, ",")));
}

}  // namespace

ir::Attrs Target::configure(const ir::Graph&, const ir::Op& op) const { return op.attrs; }

Launch Target::add_sums(const std::vector<RowSum>&) const {
  throw ir::InternalError("the target " + name() + " leaves sums to wait and has no launch that adds them");
}

CompileOptions for_target(CompileOptions options, const Target& target) {
  options.adds_other_dtypes = target.adds_other_dtypes();
  options.gemm_costs = target.gemm_costs();
  options.pipeline.kernel_attrs = [&target](const ir::Graph& graph, const ir::Op& op) { return target.configure(graph, op); };
  return options;
}

ir::Plan compile(ir::Module module, const Target& target, const CompileOptions& wishes,
                 const std::map<std::string, std::string>& sources) {
  const CompileOptions options = for_target(wishes, target);
  ir::check(options.pipeline.stop_after.empty(), "compile: a pipeline that stops early makes no plan");
  std::map<std::string, std::string> files = sources;
  files["graphs/model.ir"] = ir::print(module);

  // Programs that update parameters are built last: they renew whatever copies the others asked for.
  const std::vector<std::string> names = program_list(module, options);
  std::vector<std::pair<std::string, ir::Graph>> programs;
  const auto updates_params = [](const std::string& name) { return name == "train" || name == "last"; };
  std::vector<std::string> order = names;
  std::stable_partition(order.begin(), order.end(), [&](const std::string& name) { return !updates_params(name); });
  std::map<std::string, ir::Graph> built;
  for (const std::string& name : order) built.emplace(name, build_program(module, name, options));
  for (const std::string& name : names) programs.emplace_back(name, std::move(built.at(name)));

  for (const auto& [name, graph] : programs)
    files[fmt::format("graphs/{}.{}.ir", name, ir::level_name(graph.level()))] = dump(module, graph);
  if (const ir::Graph* prepare = module.find_graph("prepare")) files["graphs/prepare.core.ir"] = dump(module, *prepare);

  ir::Plan plan = assemble(module, programs, target, options);
  describe(options, plan);
  plan.files.merge(files);
  ir::check(files.empty(), "compile: two files of one name in the plan");
  return plan;
}

}  // namespace ingot::codegen
