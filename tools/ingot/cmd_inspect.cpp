// ingot inspect FILE: what is in a plan, a dumped graph or a model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "ir/graph/text.h"
#include "tools/ingot/commands.h"
#include "tools/ingot/common.h"
#include "tools/ingot/graph_text.h"
#include "tools/ingot/plan_memory.h"
#include "tools/ingot/plan_text.h"
#include "tools/ingot/text_diff.h"
#include "tools/shared/parse.h"

namespace ingot::tools {
namespace {

struct InspectOptions {
  ModelOptions model;
  std::string level, program, why, other, dot;
  bool calls = false, buffers = false, kernels = false, memory = false, saved = false, json = false;
};

[[noreturn]] void refuse(const std::string& message) { throw ir::UserError(ir::make_loc("<command line>", 0, 0), message); }

/// What a file holds, in the forms the questions need.
struct Subject {
  std::string path;
  std::optional<ir::Plan> plan;
  std::optional<ir::Module> module;  ///< of a model or a graph file
  bool is_model = false;
};

Subject open_subject(const InspectOptions& options, const std::string& path) {
  Subject subject;
  subject.path = path;
  if (!options.model.overrides.empty() && !is_model_file(path)) {
    refuse(fmt::format("'{}' changes a model; {} is compiled already", options.model.overrides.front(), path));
  }
  if (is_plan_file(path)) {
    ModelOptions model = options.model;
    model.path = path;
    refuse_compile_flags(model);
    subject.plan = ir::read_plan(path);
  } else if (is_model_file(path)) {
    ModelOptions model = options.model;
    model.path = path;
    subject.module = load_model(model).module;
    subject.is_model = true;
  } else {
    subject.module = read_graph_file(path);
    if (subject.module->graphs.empty()) throw ir::UserError(ir::make_loc(path, 0, 0), "the file holds no graph");
  }
  return subject;
}

/// A model's programs run through their pipelines; the last state of each at the wanted level.
ir::Module at_level(const InspectOptions& options, const ir::Module& loaded) {
  const codegen::CompileOptions compile = compile_options(options.model);
  std::vector<std::string> programs = {"eval", "train"};
  if (loaded.find_graph("decode")) programs.insert(programs.begin(), "decode");
  if (!options.program.empty())
    programs = {one_of(options.program, {"train", "first", "next", "last", "eval", "decode", "verify"}, "--program")};
  ir::Module module = loaded;
  std::vector<ir::Graph> found;
  for (const std::string& program : programs) {
    const ir::Graph* start = module.find_graph(program == "decode" ? "decode" : "loss");
    if (!start) refuse(fmt::format("the model has no @decode to make '{}' from", program));
    ir::Graph graph = *start;
    graph.set_name(program);
    std::optional<ir::Graph> last;
    for (const passes::PassStep& step : passes::parse_pipeline(codegen::program_pipeline(program, compile))) {
      graph = passes::run_pipeline(graph, module, {step}, {}, program);
      if (ir::level_name(graph.level()) == options.level) last = graph;
    }
    if (last) found.push_back(std::move(*last));
  }
  if (found.empty()) refuse(fmt::format("no program of this model is ever at level {}", options.level));
  std::erase_if(module.graphs, [](const ir::Graph& graph) { return graph.name() != "prepare"; });
  for (ir::Graph& graph : found) module.set_graph(std::move(graph));
  return module;
}

/// The graphs of a plan as it keeps them: "graphs/model.ir", "graphs/train.core.ir", ...
std::string plan_graphs(const ir::Plan& plan, const std::string& level, const std::string& program) {
  std::string text;
  std::vector<std::string> names;
  for (const auto& [name, content] : plan.files) {
    if (!name.starts_with("graphs/")) continue;
    names.push_back(name);
    const bool fits = level == "model" ? name == "graphs/model.ir" : name.ends_with("." + level + ".ir");
    if (fits && (program.empty() || level == "model" || name == "graphs/" + program + "." + level + ".ir")) text += content;
  }
  if (text.empty())
    refuse(fmt::format("the plan keeps no graph at level {}{} (it has {})", level, program.empty() ? "" : " of " + program,
                       fmt::join(names, ", ")));
  return text;
}

/// The graphs a file's questions are about: a module's own, or all that a plan keeps.
std::vector<ir::Graph> graphs_of(const Subject& subject) {
  if (subject.module) return subject.module->graphs;
  std::vector<ir::Graph> graphs;
  for (const auto& [name, content] : subject.plan->files) {
    if (!name.starts_with("graphs/")) continue;
    for (ir::Graph& graph : ir::parse_module(content, name).graphs) {
      if (name.starts_with("graphs/prepare.") || graph.name() != "prepare") graphs.push_back(std::move(graph));
    }
  }
  return graphs;
}

std::string only_program(const std::vector<ir::Graph>& graphs, const std::string& program,
                         const std::function<std::string(const ir::Graph&)>& show) {
  std::string text;
  std::vector<std::string> names;
  for (const ir::Graph& graph : graphs) {
    names.push_back(graph.name());
    if (program.empty() || graph.name() == program) text += show(graph);
  }
  if (!program.empty() && std::find(names.begin(), names.end(), program) == names.end()) one_of(program, names, "--program");
  return text;
}

std::string why(const Subject& subject, const InspectOptions& options) {
  const std::string name = options.why.starts_with("%") ? options.why.substr(1) : options.why;
  const std::vector<ir::Graph> graphs = graphs_of(subject);
  std::string text = subject.plan ? plan_why(*subject.plan, name) : "";
  if (subject.module) {
    if (const ir::Variable* v = subject.module->find_variable(name)) {
      text += fmt::format("{} %{}: {} = {}  {}\n", ir::variable_role_name(v->role), v->name, v->type.text(), ir::quoted(v->init),
                          v->loc.text());
    }
  }
  text += only_program(graphs, options.program, [&](const ir::Graph& graph) { return graph_why(graph, name); });
  if (!text.empty()) return text;
  std::vector<std::string> names;
  for (const ir::Graph& graph : graphs) {
    for (const ir::Value& value : graph.values()) names.push_back(value.name);
  }
  const std::string nearest = ir::nearest_name(name, names);
  throw ir::UserError(
      ir::make_loc(subject.path, 0, 0),
      fmt::format("nothing here is called '{}'{}", name, nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

/// The text two files are compared by: a plan's plan.txt, a module without places.
std::string comparable(const Subject& subject) {
  return subject.plan ? ir::print_plan(*subject.plan) : ir::print(*subject.module, {.locations = false});
}

void diff(const Subject& subject, const InspectOptions& options) {
  const Subject other = open_subject(options, options.other);
  if (subject.plan.has_value() != other.plan.has_value()) refuse("a plan can be compared with a plan only");
  const std::string text = text_diff(comparable(subject), comparable(other));
  if (options.json) return print_json({{"same", text.empty()}, {"difference", text}});
  write_text("", text.empty() ? "no difference\n" : text);
}

std::string plan_parts(const ir::Plan& plan, const InspectOptions& options) {
  std::string text;
  if (options.calls) text += plan_calls(plan, options.program);
  if (options.buffers) text += plan_buffers(plan, options.program);
  if (options.kernels) text += plan_kernels(plan);
  if (options.memory) text += plan_memory(plan);
  if (options.saved) text += saved_text(saved_report(plan));
  return text;
}

nlohmann::ordered_json plan_parts_json(const ir::Plan& plan, const InspectOptions& options) {
  nlohmann::ordered_json json;
  if (options.calls) json["calls"] = plan_calls_json(plan, options.program);
  if (options.buffers) json["buffers"] = plan_buffers_json(plan, options.program);
  if (options.kernels) json["kernels"] = plan_kernels_json(plan);
  if (options.memory) json["memory"] = plan_memory_json(plan);
  if (options.saved) json["saved"] = saved_json(saved_report(plan));
  return json;
}

void run_inspect(const InspectOptions& options) {
  if (!options.level.empty()) one_of(options.level, {"model", "train", "core", "fused"}, "--at");
  Subject subject = open_subject(options, options.model.path);
  const bool wants_parts = options.calls || options.buffers || options.kernels || options.memory || options.saved;
  if (wants_parts && !subject.plan)
    refuse(fmt::format("--calls, --buffers, --kernels, --memory and --saved are about plans; {} is none (compile it first)",
                       subject.path));
  if (!options.level.empty() && subject.is_model && options.level != "model") subject.module = at_level(options, *subject.module);

  if (!options.other.empty()) return diff(subject, options);
  if (!options.why.empty()) return write_text("", why(subject, options));
  if (!options.dot.empty()) return write_text(options.dot, only_program(graphs_of(subject), options.program, graph_dot));
  if (wants_parts && options.json) return print_json(plan_parts_json(*subject.plan, options));
  if (wants_parts) return write_text("", plan_parts(*subject.plan, options));
  if (options.json) return print_json(subject.plan ? plan_json(*subject.plan) : module_json(*subject.module));
  if (options.level.empty()) return write_text("", subject.plan ? plan_summary(*subject.plan) : module_summary(*subject.module));
  if (subject.plan) return write_text("", plan_graphs(*subject.plan, options.level, options.program));
  ir::Module shown = *subject.module;
  std::erase_if(shown.graphs, [&](const ir::Graph& graph) { return ir::level_name(graph.level()) != options.level; });
  if (shown.graphs.empty()) refuse(fmt::format("{} holds no graph at level {}", subject.path, options.level));
  write_text("", ir::print(shown));
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Look into a plan, a dumped graph or a model");
  add_model_options(*command, options->model, "FILE.plan, FILE.ir or MODEL.yaml");
  command->add_option("--at", options->level, "print the graphs at a level: model, train, core, fused");
  command->add_option("--program", options->program, "only this program or graph");
  command->add_flag("--calls", options->calls, "every call of every program: flops, bytes, arguments, line");
  command->add_flag("--buffers", options->buffers, "every buffer: role, bytes, place, live range");
  command->add_flag("--kernels", options->kernels, "every kernel and how often it is called");
  command->add_flag("--memory", options->memory,
                    "arenas, bytes by role; per program the peak and who is alive there, bound and placed");
  command->add_flag("--saved", options->saved, "what the forward keeps for the backward, in bytes and passes of [tokens, width]");
  command->add_option("--why", options->why, "where a value or variable comes from and who reads it");
  command->add_option("--diff", options->other, "what differs in another file of the same kind");
  command->add_option("--dot", options->dot, "write the graphs as Graphviz to this file (- is the standard output)");
  command->add_flag("--json", options->json, "for scripts");
  command->callback([options] { run_inspect(*options); });
}

}  // namespace ingot::tools
