#include "runtime/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/random_input.h"
#include "runtime/safetensors.h"

namespace ingot::runtime {
namespace {

std::string program_name(const ir::Plan& plan, const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  if (plan.find_program("eval")) return "eval";
  std::vector<std::string> names;
  for (const ir::Program& p : plan.programs) {
    if (p.name != "init" && p.name != "prepare") names.push_back(p.name);
  }
  if (names.size() == 1) return names[0];
  throw ir::UserError(ir::Loc{}, fmt::format("say which program to run with --program: {}", fmt::join(names, ", ")));
}

class Runner {
 public:
  Runner(const std::string& path, const RunPlanOptions& options) : options_(options) {
    session_ = Session::open(ir::read_plan(path), options.session);
    program_ = session_->plan().find_program(program_name(session_->plan(), options.program));
    if (!program_) unknown("program", options.program, names_of_programs());
    if (session_->plan().find_program("init")) session_->initialise(options.seed);
    std::optional<Safetensors> file;
    if (!options.in.empty()) file.emplace(options.in);
    if (file) write_variables(*file);
    for (const ir::Port& port : program_->inputs) give(port, file);
  }

  // Milliseconds of each replay.
  std::vector<double> run() {
    std::vector<double> times;
    for (int64_t i = 0; i < options_.repeat; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      session_->run(program_->name);
      times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    return times;
  }

  std::map<std::string, HostTensor> outputs() const {
    std::map<std::string, HostTensor> all;
    for (const ir::Port& port : program_->outputs) all.emplace("out." + port.name, session_->output(program_->name, port.name));
    return all;
  }
  const Session& session() const { return *session_; }
  const std::string& program() const { return program_->name; }

 private:
  std::vector<std::string> names_of_programs() const {
    std::vector<std::string> names;
    for (const ir::Program& p : session_->plan().programs) names.push_back(p.name);
    return names;
  }

  [[noreturn]] static void unknown(const std::string& what, const std::string& name, const std::vector<std::string>& names) {
    const std::string near = ir::nearest_name(name, names);
    throw ir::UserError(ir::Loc{}, fmt::format("the plan has no {} '{}'{}", what, name,
                                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }

  bool is_input(const std::string& name) const {
    return std::any_of(program_->inputs.begin(), program_->inputs.end(), [&](const ir::Port& p) { return p.name == name; });
  }

  void write_variables(const Safetensors& file) {
    bool wrote = false;
    for (const auto& [key, tensor] : file.tensors()) {
      if (key.starts_with("out.") || key.starts_with("grad.") || is_input(key)) continue;
      if (key.starts_with("in.") && is_input(key.substr(3))) continue;
      std::string name = key;
      for (const char* prefix : {"param.", "state."}) {
        if (key.starts_with(prefix)) name = key.substr(6);
      }
      const ir::Binding* binding = session_->plan().find_binding(name);
      if (!binding) unknown("variable or input", key, candidates());
      session_->write_variable(name, file.read(key, binding->variable.type.dtype));
      wrote = true;
    }
    if (wrote && session_->plan().find_program("prepare")) session_->run("prepare");
  }

  std::vector<std::string> candidates() const {
    std::vector<std::string> names;
    for (const ir::Binding& b : session_->plan().bindings)
      names.push_back(b.variable.name), names.push_back("param." + b.variable.name);
    for (const ir::Port& p : program_->inputs) names.push_back(p.name), names.push_back("in." + p.name);
    return names;
  }

  void give(const ir::Port& port, const std::optional<Safetensors>& file) {
    const ir::DType dtype = session_->plan().buffers[port.buffer].type.dtype;
    for (const std::string& key : {port.name, "in." + port.name}) {
      if (!file || !file->has(key)) continue;
      // Integers keep the file's width until their range has been checked.
      const bool wide = file->find(key).type == FileType::i64 && !ir::is_float(dtype);
      return session_->set_input(program_->name, port.name, file->read(key, wide ? ir::DType::i64 : dtype));
    }
    session_->set_input(program_->name, port.name, random_input(session_->plan(), port, options_.seed));
  }

  const RunPlanOptions& options_;
  std::unique_ptr<Session> session_;
  const ir::Program* program_ = nullptr;
};

double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

void compare(const std::map<std::string, HostTensor>& got, const std::map<std::string, HostTensor>& want, double tolerance,
             RunPlanResult& result) {
  for (const auto& [name, tensor] : got) {
    const auto other = want.find(name);
    if (other == want.end() || other->second.type.shape != tensor.type.shape) {
      result.text += fmt::format("{:<24} only one of the plans has it, or with another shape\n", name);
      result.agrees = false;
      continue;
    }
    const double error = relative_error(tensor.to_doubles(), other->second.to_doubles());
    const bool fine = error <= tolerance;  // false for NaN
    result.text += fmt::format("{:<24} {:.3e}{}\n", name, error, fine ? "" : "  past the tolerance");
    result.agrees = result.agrees && fine;
  }
}

}  // namespace

RunPlanResult run_plan(const RunPlanOptions& options) {
  if (options.repeat < 1) throw ir::UserError(ir::Loc{}, fmt::format("--repeat {}; it is at least 1", options.repeat));
  RunPlanOptions watched = options;
  watched.session.trace = !options.trace.empty();
  Runner runner(options.plan, watched);
  std::vector<double> times = runner.run();
  std::sort(times.begin(), times.end());
  RunPlanResult result;
  result.text = fmt::format("{}: {} replay{}, median {:.3f} ms, least {:.3f} ms\n", runner.program(), options.repeat,
                            options.repeat == 1 ? "" : "s", times[times.size() / 2], times[0]);
  const auto outputs = runner.outputs();
  for (const auto& [name, tensor] : outputs) {
    if (tensor.type.rank() == 0) result.text += fmt::format("{:<24} {}\n", name, ir::real_text(tensor.to_doubles()[0]));
  }
  if (!options.out.empty()) write_safetensors(options.out, outputs);
  if (!options.trace.empty()) write_file(options.trace, runner.session().trace().json());
  if (options.against.empty()) return result;
  Runner reference(options.against, options);
  reference.run();
  compare(outputs, reference.outputs(), options.tolerance, result);
  return result;
}

}  // namespace ingot::runtime
