// ingot opt FILE.ir --passes "cse, dce": any pipeline on any dumped graph.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "ir/graph/text.h"
#include "passes/pass.h"
#include "tools/ingot/commands.h"
#include "tools/ingot/common.h"
#include "tools/ingot/pipeline_options.h"

namespace ingot::tools {
namespace {

struct OptOptions {
  std::string file, passes, graph, output;
  bool no_locations = false, list = false;
  PipelineFlags flags;
};

void list_passes() {
  for (const passes::PassInfo& info : passes::pass_table()) {
    std::string options;
    for (const std::string& option : info.options) options += (options.empty() ? "{" : ", ") + option + "=";
    write_text("", fmt::format("{}{}{}\n    {}\n", info.name, options, options.empty() ? "" : "}", info.summary));
  }
}

/// The graph the passes run on: the one named, else the first (a dump has the one worked on first).
size_t chosen_graph(const ir::Module& module, const std::string& name, const std::string& file) {
  if (module.graphs.empty()) throw ir::UserError(ir::make_loc(file, 0, 0), "the file holds no graph");
  if (name.empty()) return 0;
  std::vector<std::string> names;
  for (size_t i = 0; i < module.graphs.size(); ++i) {
    if (module.graphs[i].name() == name) return i;
    names.push_back(module.graphs[i].name());
  }
  const std::string nearest = ir::nearest_name(name, names);
  throw ir::UserError(ir::make_loc(file, 0, 0), fmt::format("there is no graph @{}{}", name,
                                                            nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

void run_opt(OptOptions& options) {
  if (options.list) return list_passes();
  if (options.file.empty()) throw ir::UserError(ir::make_loc("<command line>", 0, 0), "opt needs a FILE.ir (or --list)");
  ir::Module module = read_graph_file(options.file);
  const size_t index = chosen_graph(module, options.graph, options.file);
  const std::string program = module.graphs[index].name();
  const std::vector<passes::PassStep> steps = passes::parse_pipeline(options.passes);
  const ir::Graph before = module.graphs[index];
  ir::Graph after = passes::run_pipeline(before, module, steps, options.flags.options(), program);
  // Passes may have added graphs (@prepare): find the place again by name.
  for (ir::Graph& graph : module.graphs) {
    if (graph.name() != program) continue;
    graph = std::move(after);
    break;
  }
  write_text(options.output, ir::print(module, {.locations = !options.no_locations}));
  for (const std::string& remark : options.flags.remarks) std::fputs((remark + "\n").c_str(), stderr);
  if (options.flags.time_passes) std::fputs(options.flags.times_text().c_str(), stderr);
}

}  // namespace

void add_opt_command(CLI::App& app) {
  auto options = std::make_shared<OptOptions>();
  CLI::App* command = app.add_subcommand("opt", "Run any pipeline of passes on any dumped graph");
  command->add_option("file", options->file, "FILE.ir: a module, a graph or bare op lines; - is the standard input");
  command->add_option("--passes", options->passes, "\"cse, autocast{dtype=bf16}, dce\"; none: only read, verify and print");
  command->add_option("--graph", options->graph, "which graph of the file (default: the first)");
  command->add_option("-o,--output", options->output, "where the module goes (default: the standard output)");
  command->add_flag("--no-locations", options->no_locations, "leave out loc(...)");
  command->add_flag("--list", options->list, "list all passes and their options");
  add_pipeline_flags(*command, options->flags);
  command->callback([options] { run_opt(*options); });
}

}  // namespace ingot::tools
