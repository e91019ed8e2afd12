// Text pipelines: parsing them, running them, and everything a person may ask of a run (dumps, times, a stop, a reproducer).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <fstream>

#include "ir/base/text.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "passes/pass.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::Module;
using ir::UserError;

// ---------------------------------------------------------------- parsing

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<PassStep> run() {
    std::vector<PassStep> steps;
    for (skip(true); !done(); skip(true)) steps.push_back(step());
    return steps;
  }

 private:
  bool done() const { return at_ == text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  void advance() {
    if (text_[at_++] == '\n') {
      ++line_;
      line_start_ = at_;
    }
  }

  // Blanks and comments; with `separators` also the commas between passes.
  void skip(bool separators) {
    while (!done()) {
      if (peek() == '#') {
        while (!done() && peek() != '\n') advance();
      } else if (std::isspace(static_cast<unsigned char>(peek())) || (separators && peek() == ',')) {
        advance();
      } else {
        return;
      }
    }
  }

  ir::Loc here() const { return ir::make_loc("<passes>", line_, static_cast<int>(at_ - line_start_) + 1); }
  [[noreturn]] void fail(ir::Loc loc, const std::string& message) const { throw UserError(loc, message); }

  std::string word(std::string_view what) {
    const size_t from = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_' || peek() == '-' || peek() == '.') advance();
    if (at_ == from) fail(here(), fmt::format("a {} is expected here", what));
    return std::string(text_.substr(from, at_ - from));
  }

  static std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
    const std::string nearest = ir::nearest_name(name, known);
    return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
  }

  PassStep step() {
    const ir::Loc loc = here();
    const std::string name = word("pass name");
    PassStep made;
    made.info = find_pass(name);
    if (!made.info) {
      std::vector<std::string> known;
      for (const PassInfo& info : pass_table()) known.push_back(info.name);
      fail(loc, fmt::format("there is no pass '{}'{}", name, suggestion(name, known)));
    }
    if (peek() == '{') options(made);
    // Two passes on one line need a comma.
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') advance();
    if (!done() && peek() != ',' && peek() != '\n' && peek() != '#')
      fail(here(), "a comma or a line break is expected between passes");
    return made;
  }

  void options(PassStep& made) {
    advance();  // {
    for (skip(false); peek() != '}'; skip(false)) {
      const ir::Loc loc = here();
      const std::string name = word("option name");
      const std::vector<std::string>& known = made.info->options;
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        fail(loc, fmt::format("the pass '{}' has no option '{}'{}", made.info->name, name, suggestion(name, known)));
      }
      skip(false);
      if (peek() != '=') fail(here(), fmt::format("'=' is expected after the option '{}'", name));
      advance();
      skip(false);
      if (!made.options.emplace(name, value()).second) fail(loc, fmt::format("the option '{}' is given twice", name));
      skip(false);
      if (peek() == ',') {
        advance();
      } else if (peek() != '}') {
        fail(here(), "',' or '}' is expected after an option");
      }
    }
    advance();  // }
  }

  std::string value() {
    const size_t from = at_;
    while (!done() && peek() != ',' && peek() != '}' && !std::isspace(static_cast<unsigned char>(peek()))) advance();
    if (at_ == from) fail(here(), "a value is expected after '='");
    return std::string(text_.substr(from, at_ - from));
  }

  std::string_view text_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
};

// ---------------------------------------------------------------- running

std::string step_text(const PassStep& step) {
  std::string text = step.info->name;
  for (const auto& [name, value] : step.options)
    text += (text.back() == '}' || text == step.info->name ? "{" : ", ") + name + "=" + value;
  return step.options.empty() ? text : text + "}";
}

// What a pass may see of the module and change: its declarations, and @prepare.
Module declarations(const Module& module) {
  Module copy;
  copy.name = module.name;
  copy.variables = module.variables;
  copy.ranges = module.ranges;
  copy.optimizer = module.optimizer;
  copy.precision = module.precision;
  copy.checkpoint_ignore = module.checkpoint_ignore;
  copy.info = module.info;
  if (const Graph* prepare = module.find_graph("prepare")) copy.graphs.push_back(*prepare);
  return copy;
}

// A module that feeds back in: the graph being worked on stands first.
Module snapshot(const Module& module, const Graph& graph) {
  Module copy = declarations(module);
  if (copy.find_graph(graph.name())) copy.graphs.clear();
  copy.graphs.insert(copy.graphs.begin(), graph);
  return copy;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw UserError(ir::Loc{}, fmt::format("cannot write '{}'", path));
}

std::string in_folder(const std::string& folder, const std::string& file) { return folder.empty() ? file : folder + "/" + file; }

void check_roundtrip(const Module& module, std::string_view pass) {
  const std::string text = ir::print(module);
  const Module back = ir::parse_module(text, "<roundtrip>");
  ir::check(ir::same(module, back), fmt::format("after '{}': the module differs from its own text read back", pass));
  ir::check(ir::print(back) == text, fmt::format("after '{}': the text differs once printed, read and printed again", pass));
}

class Run {
 public:
  Run(Module& module, const PipelineOptions& options, std::string_view program)
      : module_(module), options_(options), program_(program) {}

  Graph steps(Graph graph, const std::vector<PassStep>& list) {
    check_names(list);
    for (const PassStep& step : list) {
      if (!disabled(step.info->name)) graph = one(graph, step);
      if (step.info->name == options_.stop_after) break;
    }
    return graph;
  }

 private:
  bool disabled(const std::string& pass) const {
    return std::find(options_.disable.begin(), options_.disable.end(), pass) != options_.disable.end();
  }

  static void check_name(const std::string& name, const char* flag) {
    if (find_pass(name)) return;
    std::vector<std::string> known;
    for (const PassInfo& info : pass_table()) known.push_back(info.name);
    const std::string nearest = ir::nearest_name(name, known);
    throw UserError(ir::Loc{}, fmt::format("{}: there is no pass '{}'{}", flag, name,
                                           nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)));
  }

  void check_names(const std::vector<PassStep>& list) const {
    for (const std::string& name : options_.dump_after) {
      if (name != "all") check_name(name, "dump-after");
    }
    for (const std::string& name : options_.disable) {
      check_name(name, "disable");
      if (find_pass(name)->needed) {
        throw UserError(ir::Loc{}, fmt::format("disable: the result cannot do without the pass '{}'", name));
      }
    }
    if (options_.stop_after.empty()) return;
    check_name(options_.stop_after, "stop-after");
    const bool runs =
        std::any_of(list.begin(), list.end(), [&](const PassStep& s) { return s.info->name == options_.stop_after; });
    // A pipeline without that pass runs to its end: `--stop-after autodiff` must not fail on @eval.
    if (!runs && options_.remarks)
      options_.remarks->push_back(fmt::format("{}: has no pass '{}'", program_, options_.stop_after));
  }

  Graph one(const Graph& before, const PassStep& step) {
    const Module module_before = declarations(module_);
    const auto start = std::chrono::steady_clock::now();
    try {
      PassContext context{module_, step.options, options_.remarks, &options_.kernel_attrs};
      Graph after = step.info->run(before, context);
      ir::verify(after, &module_);
      if (options_.times) {
        const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
        options_.times->push_back({step.info->name, spent.count(), before.ops().size(), after.ops().size()});
      }
      if (options_.verify_roundtrip) check_roundtrip(snapshot(module_, after), step.info->name);
      dump(after, step.info->name);
      return after;
    } catch (const UserError&) {
      throw;
    } catch (const ir::MachineError&) {
      throw;
    } catch (const std::exception& error) {
      throw ir::InternalError(fmt::format("pass '{}' on @{}: {}\n{}", step.info->name, program_, error.what(),
                                          reproducer(snapshot(module_before, before), step, error.what())));
    }
  }

  void dump(const Graph& graph, const std::string& pass) {
    ++count_;
    const auto& wanted = options_.dump_after;
    const bool all = std::find(wanted.begin(), wanted.end(), "all") != wanted.end();
    if (!all && std::find(wanted.begin(), wanted.end(), pass) == wanted.end()) return;
    write_file(in_folder(options_.dump_dir, fmt::format("{}.{:02}.{}.ir", program_, count_, pass)),
               ir::print(snapshot(module_, graph)));
  }

  // Says where the reproducer went, or why there is none: the first error must not be hidden by a second.
  std::string reproducer(const Module& before, const PassStep& step, std::string_view what) const {
    const std::string path = in_folder(options_.dump_dir, fmt::format("ingot-reproducer-{}.ir", step.info->name));
    std::string reason(what.substr(0, what.find('\n')));
    try {
      write_file(path,
                 fmt::format("// {}\n// ingot opt {} --passes \"{}\"\n{}", reason, path, step_text(step), ir::print(before)));
    } catch (const std::exception& second) {
      return fmt::format("no reproducer could be written: {}", second.what());
    }
    return fmt::format("a reproducer is in {}", path);
  }

  Module& module_;
  const PipelineOptions& options_;
  std::string program_;
  int count_ = 0;
};

}  // namespace

std::vector<PassStep> parse_pipeline(std::string_view text) { return Parser(text).run(); }

Graph run_pipeline(const Graph& graph, Module& module, const std::vector<PassStep>& steps, const PipelineOptions& options,
                   std::string_view program) {
  return Run(module, options, program).steps(graph, steps);
}

}  // namespace ingot::passes
