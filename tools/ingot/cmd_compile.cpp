// ingot compile MODEL.yaml -o X.plan [key=value ...]: the whole way from equations to a plan.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "ir/graph/text.h"
#include "tools/ingot/commands.h"
#include "tools/ingot/common.h"
#include "tools/ingot/pipeline_options.h"
#include "tools/ingot/plan_text.h"
#include "tools/shared/parse.h"
#include "tools/shared/units.h"

namespace ingot::tools {
namespace {

struct CompileCommand {
  ModelOptions model;
  PipelineFlags flags;
  std::string output, programs = "train,eval,decode", explain;
  bool no_reuse = false, json = false;
};

std::vector<std::string> chosen_programs(const CompileCommand& command, const ir::Module& module) {
  std::vector<std::string> programs = comma_list(command.programs);
  for (const std::string& program : programs) one_of(program, {"train", "eval", "decode", "verify"}, "a program of --programs");
  if (!module.find_graph("decode")) std::erase(programs, "decode");
  return programs;
}

/// --stop-after: there is no plan yet; the graphs as far as they got, as one module.
void print_stopped(const CompileCommand& command, const ir::Module& loaded, const codegen::CompileOptions& options) {
  ir::Module module = loaded;
  std::vector<std::string> programs;
  for (const std::string& program : options.programs) {
    if (program != "train") programs.push_back(program);
  }
  // Last, as compile() does: they renew whatever copies the others asked for.
  if (programs.size() < options.programs.size()) {
    const std::vector<std::string> steps =
        options.microbatches > 1 ? std::vector<std::string>{"first", "next", "last"} : std::vector<std::string>{"train"};
    programs.insert(programs.end(), steps.begin(), steps.end());
  }
  std::vector<ir::Graph> graphs;
  for (const std::string& program : programs) graphs.push_back(codegen::build_program(module, program, options));
  std::erase_if(module.graphs, [](const ir::Graph& graph) { return graph.name() == "loss" || graph.name() == "decode"; });
  for (ir::Graph& graph : graphs) module.set_graph(std::move(graph));
  write_text(command.output, ir::print(module));
}

void report(const CompileCommand& command, const ir::Plan& plan, double seconds) {
  if (command.json) {
    nlohmann::ordered_json json = plan_json(plan);
    json["file"] = command.output;
    json["seconds"] = seconds;
    return print_json(json);
  }
  write_text("", plan_summary(plan) + fmt::format("{} written in {}\n", command.output, seconds_text(seconds)));
}

void run_compile(CompileCommand& command) {
  const auto start = std::chrono::steady_clock::now();
  if (command.output.empty() && command.flags.stop_after.empty()) {
    throw ir::UserError(ir::make_loc("<command line>", 0, 0), "compile needs -o X.plan to write the plan to");
  }
  codegen::CompileOptions options = compile_options(command.model);
  const auto target = make_target(command.model.target, command.model.arch);  // refuses an unknown one before anything is loaded
  const models::LoadedModel model = load_model(command.model);
  options.programs = chosen_programs(command, model.module);
  options.reuse_memory = !command.no_reuse;
  for (const std::string& what : comma_list(command.explain)) {
    one_of(what, {"fuse", "lerp"}, "--explain");
    (what == "fuse" ? options.explain_fuse : options.explain_lerp) = true;
  }
  options.pipeline = command.flags.options();
  if (!command.flags.stop_after.empty()) {
    print_stopped(command, model.module, codegen::for_target(options, *target));
  } else {
    const ir::Plan plan = compile_model(model, command.model, options);
    ir::write_plan(plan, command.output);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    report(command, plan, spent.count());
  }
  for (const std::string& remark : command.flags.remarks) std::fputs((remark + "\n").c_str(), stderr);
  if (command.flags.time_passes) std::fputs(command.flags.times_text().c_str(), stderr);
}

}  // namespace

void add_compile_command(CLI::App& app) {
  auto options = std::make_shared<CompileCommand>();
  CLI::App* command =
      app.add_subcommand("compile", "Compile a model to a plan. A plan holds native code: trust it as you would a program");
  add_model_options(*command, options->model);
  command->add_option("-o,--output", options->output,
                      "X.plan; with --stop-after where the graphs go (default: the standard output)");
  command->add_option("--programs", options->programs,
                      "of train, eval, decode, verify; default train,eval,decode (init and prepare are always made)");
  command->add_flag("--no-reuse", options->no_reuse,
                    "give every temporary bytes of its own (to tell a planning mistake from others)");
  command->add_option(
      "--explain", options->explain,
      "fuse: why each edge between two kernels was not fused; lerp: what it would save and cost to take products of mixed "
      "rows apart; or both, with a comma");
  command->add_flag("--json", options->json, "report for scripts");
  add_pipeline_flags(*command, options->flags);
  command->callback([options] { run_compile(*options); });
}

}  // namespace ingot::tools
