#include "tools/ingot/op_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "models/op_models.h"
#include "runtime/random_input.h"
#include "runtime/session.h"
#include "tools/ingot/verify.h"
#include "tools/shared/parse.h"
#include "tools/shared/units.h"

namespace ingot::tools {
namespace {

// The largest the interpreter is given: some hundred thousand elements an operand.
const std::map<std::string, int64_t>& checked_most() {
  static const std::map<std::string, int64_t> most = {{"batch", 2}, {"time", 80}, {"heads", 2}};
  return most;
}

models::LoadedModel load_op(const std::string& op, const std::vector<std::pair<std::string, std::string>>& overrides) {
  std::vector<std::string> names;
  for (const auto& [name, text] : models::op_models()) names.push_back(name);
  one_of(op, names, "--op");
  models::LoadOptions load;
  load.overrides = overrides;
  return models::load_model_text(std::string(models::op_models().at(op)), op + ".yaml", load);
}

std::string sizes_text(const models::LoadedModel& model) {
  std::vector<std::string> words;
  for (const auto& [name, value] : model.config) words.push_back(fmt::format("{}={}", name, ir::constant_text(value)));
  return fmt::format("{}", fmt::join(words, " "));
}

/// Overrides that make the model small enough for the interpreter.
std::vector<std::pair<std::string, std::string>> shrunk(const models::LoadedModel& model,
                                                        std::vector<std::pair<std::string, std::string>> overrides) {
  for (const auto& [name, most] : checked_most()) {
    const auto found = model.config.find(name);
    if (found == model.config.end() || std::get<double>(found->second.value) <= static_cast<double>(most)) continue;
    std::erase_if(overrides, [&](const auto& o) { return o.first == name; });
    overrides.emplace_back(name, std::to_string(most));
  }
  return overrides;
}

codegen::CompileOptions only_verify(const ModelOptions& options) {
  codegen::CompileOptions compile = compile_options(options);
  compile.programs = {"verify"};
  return compile;
}

/// Random operands, rounded to what the op is given: the errors are its own.
Golden random_operands(const models::LoadedModel& model, const ModelOptions& options, const BenchOptions& bench) {
  const ir::DType narrow = ir::dtype_from_name(options.precision).value();
  const auto session = runtime::Session::open(compile_model(model, options, only_verify(options)), {.threads = bench.threads});
  session->initialise(bench.seed);
  const auto tensor = [&](const runtime::HostTensor& host) {
    ir::Tensor out(host.type);
    out.data = host.to_doubles();
    for (double& x : out.data) x = ir::round_to(narrow, x);
    return out;
  };
  Golden golden;
  for (const ir::Variable& v : model.module.variables) {
    if (v.role == ir::VariableRole::param) golden.params[v.name] = tensor(session->read_variable(v.name));
  }
  for (const ir::Port& port : session->plan().find_program("verify")->inputs)
    golden.inputs[port.name] = tensor(runtime::random_input(session->plan(), port, bench.seed));
  return golden;
}

void check(OpBenchReport& report, const models::LoadedModel& model, const ModelOptions& options, const BenchOptions& bench) {
  report.checked_sizes = sizes_text(model);
  report.shrunk = report.checked_sizes != report.sizes;
  const Golden golden = random_operands(model, options, bench);
  const std::unique_ptr<codegen::Target> target = make_target(options.target, options.arch);
  VerifyOptions verify;
  verify.target = target.get();
  verify.precision = options.precision;
  verify.threads = bench.threads;
  const Tensors want = run_reference(model, golden, "f32", false), got = run_target(model, golden, verify);
  for (const auto& [name, tensor] : want) {
    if (name != "out.count" && name != "out.loss") report.errors.emplace_back(name, relative_error(got.at(name), tensor));
  }
}

}  // namespace

OpBenchReport bench_op(const std::string& op, const ModelOptions& options, const BenchOptions& bench) {
  const auto overrides = assignments(options.overrides);
  const models::LoadedModel model = load_op(op, overrides);
  OpBenchReport report;
  report.op = op;
  report.precision = options.precision;
  report.sizes = sizes_text(model);
  check(report, load_op(op, shrunk(model, overrides)), options, bench);
  BenchOptions timed = bench;
  timed.program = "verify";
  const BenchReport all = tools::bench(compile_model(model, options, only_verify(options)), timed);
  report.threads = all.threads;
  report.ceilings = all.ceilings;
  for (const BenchRow& row : all.kernels) {
    if (row.name.starts_with(op + "_")) report.kernels.push_back(row);
  }
  ir::check(!report.kernels.empty(), "bench --op: the plan has no kernel of " + op);
  const auto is_gradient = [&](const BenchRow& row) { return row.name.starts_with(op + "_grad"); };
  std::stable_sort(report.kernels.begin(), report.kernels.end(),
                   [&](const BenchRow& a, const BenchRow& b) { return is_gradient(a) < is_gradient(b); });
  return report;
}

std::string op_bench_text(const OpBenchReport& report) {
  std::string text =
      fmt::format("{} alone, {}, {}, {}\n", report.op, report.sizes, report.precision, plural(report.threads, "thread"));
  text += fmt::format("  ceiling    copy {}, measured now\n", rate_text(report.ceilings.copy, "B"));
  for (const BenchRow& row : report.kernels) {
    text +=
        fmt::format("  {:<28} {:>10}  {:>10} moved  {:>12}  {:>14}  {:.1f}% of the copy\n", row.name, seconds_text(row.seconds),
                    bytes_text(static_cast<int64_t>(row.bytes)), rate_text(row.bytes / row.seconds, "B"),
                    rate_text(row.flops / row.seconds, "FLOP"), 100 * row.least_seconds / row.seconds);
  }
  text += fmt::format("errors against the interpreter in double ({}{})\n", report.shrunk ? "made smaller: " : "",
                      report.checked_sizes);
  for (const auto& [name, error] : report.errors) text += fmt::format("  {:<12} {:.2e}\n", name, error);
  return text;
}

nlohmann::ordered_json op_bench_json(const OpBenchReport& report) {
  nlohmann::ordered_json json{{"op", report.op},
                              {"sizes", report.sizes},
                              {"precision", report.precision},
                              {"threads", report.threads},
                              {"copy_bytes_per_second", report.ceilings.copy},
                              {"checked_sizes", report.checked_sizes},
                              {"shrunk", report.shrunk}};
  for (const BenchRow& row : report.kernels)
    json["kernels"].push_back({{"name", row.name}, {"seconds", row.seconds}, {"flops", row.flops}, {"bytes", row.bytes}});
  for (const auto& [name, error] : report.errors) json["errors"][name] = error;
  return json;
}

}  // namespace ingot::tools
