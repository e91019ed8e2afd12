// ingot verify MODEL.yaml GOLDEN.safetensors [key=value ...]: the model's results and gradients against a golden file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/ingot/commands.h"
#include "tools/ingot/common.h"
#include "tools/ingot/verify.h"
#include "tools/shared/exit.h"
#include "tools/shared/parse.h"

namespace ingot::tools {
namespace {

struct VerifyFlags {
  std::string model, golden;
  std::vector<std::string> overrides;
  std::string target = "cpu", precision = "f32";
  double tolerance = -1;
  bool json = false;
};

const char* mark(const VerifyReport& report, size_t i) {
  if (!report.rows[i].passed()) return i == report.worst ? "FAILS, worst" : "FAILS";
  return i == report.worst ? "worst" : "";
}

void print_table(const VerifyReport& report) {
  size_t names = 6, shapes = 5;
  for (const VerifyRow& row : report.rows) {
    names = std::max(names, row.name.size());
    shapes = std::max(shapes, ir::shape_text(row.shape).size());
  }
  // A tensor judged by its own graph's rounding has a limit of its own.
  const bool own = std::any_of(report.rows.begin(), report.rows.end(), [](const VerifyRow& row) { return row.own >= 0; });
  std::string text = fmt::format("{:<{}}  {:<{}}  {:>9}", "tensor", names, "shape", shapes, "error");
  text += own ? fmt::format("  {:>9}  {:>9}\n", "rounding", "limit") : "\n";
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const VerifyRow& row = report.rows[i];
    std::string line = fmt::format("{:<{}}  {:<{}}  {:>9.2e}", row.name, names, ir::shape_text(row.shape), shapes, row.error);
    if (own) line += fmt::format("  {:>9.2e}  {:>9.2e}", row.own, row.limit);
    line += fmt::format("  {}", mark(report, i));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  write_text("", text);
}

std::string verdict(const VerifyReport& report, const VerifyFlags& flags) {
  const VerifyRow& worst = report.rows[report.worst];
  const auto failed = std::count_if(report.rows.begin(), report.rows.end(), [](const VerifyRow& row) { return !row.passed(); });
  std::string text =
      fmt::format("{} tensors on {} in {}: worst {:.2e} ({}, limit {:.1e}), median of the gradients {:.2e}", report.rows.size(),
                  flags.target, flags.precision, worst.error, worst.name, worst.limit, report.median);
  if (report.median_limit > 0) text += fmt::format(" (limit {:.1e})", report.median_limit);
  if (failed > 0) return text + fmt::format("; {} past the limit\n", failed);
  return text + (report.passed() ? "; all within\n" : "; the median is past its limit\n");
}

nlohmann::ordered_json number(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;  // JSON has no NaN
}

nlohmann::ordered_json report_json(const VerifyReport& report, const VerifyFlags& flags) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const VerifyRow& row : report.rows) {
    nlohmann::ordered_json entry = {{"name", row.name}, {"shape", row.shape}, {"error", number(row.error)}, {"limit", row.limit}};
    if (row.own >= 0) entry["rounding"] = number(row.own);
    entry["passed"] = row.passed();
    tensors.push_back(std::move(entry));
  }
  nlohmann::ordered_json json = {{"model", flags.model},
                                 {"golden", flags.golden},
                                 {"target", flags.target},
                                 {"precision", flags.precision},
                                 {"passed", report.passed()},
                                 {"worst", report.rows[report.worst].name},
                                 {"median", number(report.median)},
                                 {"unchecked", report.unchecked}};
  json["tensors"] = std::move(tensors);
  return json;
}

void run_verify(const VerifyFlags& flags) {
  if (!flags.target.starts_with("cuda")) one_of(flags.target, {"reference", "cpu", "cuda", "cuda:sm_90"}, "--target");
  ModelOptions source;
  source.path = flags.model;
  source.overrides = flags.overrides;
  const models::LoadedModel model = load_model(source);
  const std::unique_ptr<codegen::Target> target = flags.target == "reference" ? nullptr : make_target(flags.target);
  VerifyOptions options;
  options.target = target.get();
  options.precision = one_of(flags.precision, {"f32", "bf16", "f16"}, "--precision");
  if (flags.tolerance >= 0) options.tolerance = flags.tolerance;
  const VerifyReport report = verify(model, read_golden(flags.golden), options);
  if (flags.json) {
    print_json(report_json(report, flags));
  } else {
    print_table(report);
    for (const std::string& name : report.unchecked) write_text("", fmt::format("not in the file: {}\n", name));
    write_text("", verdict(report, flags));
  }
  if (!report.passed()) throw Exit{kUserMistake};
}

}  // namespace

void add_verify_command(CLI::App& app) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command = app.add_subcommand(
      "verify", "Compare a model's outputs, loss and gradients with a golden file, one by one; exit 1 past the tolerance");
  command->add_option("model", flags->model, "MODEL.yaml")->required();
  command->add_option("golden", flags->golden, "GOLDEN.safetensors: param.*, in.*, out.*, grad.* (of the mean loss)")->required();
  command->add_option("overrides", flags->overrides, "key=value: config and train keys, batch, time");
  command->add_option("--target", flags->target, "cpu, or reference (the interpreter in double)");
  command->add_option("--precision", flags->precision, "f32, bf16 or f16: the dtype gemms compute in");
  command
      ->add_option("--tol", flags->tolerance,
                   "largest relative error of any tensor (default: reference 1e-9, f32 2e-5 on the CPU and 1e-4 on a GPU, 16 bits by their own rounding)")
      ->check(not_negative);
  command->add_flag("--json", flags->json, "for scripts");
  command->callback([flags] { run_verify(*flags); });
}

}  // namespace ingot::tools
