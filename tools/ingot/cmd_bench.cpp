// ingot bench MODEL.yaml|X.plan: step time, and where it goes by kind of call and by kernel.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "runtime/cuda/tune.h"
#include "tools/ingot/alone.h"
#include "tools/ingot/bench.h"
#include "tools/ingot/commands.h"
#include "tools/ingot/common.h"
#include "tools/ingot/op_bench.h"
#include "tools/shared/parse.h"

namespace ingot::tools {
namespace {

struct BenchFlags {
  ModelOptions model;
  BenchOptions bench;
  std::string op, alone;  ///< an op by its name, one of the program by a value it makes
  int64_t calls = 0;
  bool json = false;
};

/// What must be compiled so that the program is there. The parts of a step come together; init and prepare are always made.
std::string compiled_for(const std::string& program) {
  one_of(program, {"train", "first", "next", "last", "eval", "decode", "verify", "init", "prepare"}, "--program");
  if (program == "first" || program == "next" || program == "last") return "train";
  return program == "init" || program == "prepare" ? "eval" : program;
}

void run_op(BenchFlags flags) {
  // The word where a model would stand is the first override.
  if (!flags.model.path.empty()) flags.model.overrides.insert(flags.model.overrides.begin(), flags.model.path);
  const OpBenchReport report = bench_op(flags.op, flags.model, flags.bench);
  if (flags.json) return print_json(op_bench_json(report));
  write_text("", op_bench_text(report));
}

ir::Plan whole_plan(const ModelOptions& model, const std::string& program) {
  return is_plan_file(model.path) ? open_plan(model) : compile_model(model, {compiled_for(program)});
}

/// One op: only its product is tuned, if it is one.
ir::Plan plan_alone(const BenchFlags& flags) {
  ModelOptions model = flags.model;
  if (!is_plan_file(model.path)) model.no_tune = true;
  ir::Plan plan = alone(whole_plan(model, flags.bench.program), flags.bench.program, flags.alone, model.arch);
  const bool tuned = plan.target.starts_with("cuda") && !flags.model.no_tune;
  return tuned ? runtime::cuda::tune(std::move(plan)) : plan;
}

void run_bench(const BenchFlags& flags) {
  if (!flags.op.empty()) return run_op(flags);
  if (flags.model.path.empty()) throw ir::UserError({}, "bench needs a MODEL.yaml, an X.plan or --op NAME");
  const BenchReport report =
      bench(flags.alone.empty() ? whole_plan(flags.model, flags.bench.program) : plan_alone(flags), flags.bench);
  if (flags.json) return print_json(bench_json(report));
  write_text("", bench_text(report, static_cast<size_t>(flags.calls)));
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command =
      app.add_subcommand("bench", "Time a program on random data: the step, kinds of calls, kernels, against ceilings");
  add_model_options(*command, flags->model, "MODEL.yaml or X.plan; none with --op");
  command->get_option("model")->required(false);
  CLI::Option* op =
      command->add_option("--op", flags->op, "one op alone, forward and gradient (wkv7): time, rates, errors against double");
  command
      ->add_option("--alone", flags->alone, "only the kernel or product of the program that makes this value, a fused region say")
      ->excludes(op);
  add_seed_option(*command, flags->bench.seed);
  command->add_option("--program", flags->bench.program, "which program to run (train)");
  command->add_option("--steps", flags->bench.steps, "measured replays (10)")->check(CLI::Range(1, 1 << 20));
  command->add_option("--warmup", flags->bench.warmup, "replays before them (2)")->check(CLI::Range(0, 1 << 20));
  command->add_option("--threads", flags->bench.threads, "0 = all cores");
  command->add_option("--calls", flags->calls, "also show this many single calls, the slowest first")->check(not_negative);
  command->add_flag("--library", flags->bench.library, "also time the library's own products of the same shapes, one by one");
  command->add_flag("--json", flags->json, "for scripts: plain numbers, every call");
  command->callback([flags] { run_bench(*flags); });
}

}  // namespace ingot::tools
