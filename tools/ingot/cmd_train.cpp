// ingot train MODEL.yaml|X.plan --data FILE: compile, train, validate, keep checkpoints, resume.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "ir/base/error.h"
#include "runtime/cuda/tune.h"
#include "runtime/run_config.h"
#include "runtime/train.h"
#include "tools/ingot/commands.h"
#include "tools/ingot/common.h"
#include "tools/shared/exit.h"
#include "tools/shared/parse.h"

namespace ingot::tools {
namespace {

struct TrainFlags {
  ModelOptions model;
  runtime::TrainOptions train;
  std::string data, data_format = "auto", progress = "auto", allow_change;
  double holdout = 0.05;
  int64_t log_every = 10;
  int threads = 0;
  bool no_graph = false;
};

void add_flags(CLI::App& command, TrainFlags& f) {
  add_model_options(command, f.model, "MODEL.yaml or X.plan");
  add_seed_option(command, f.train.seed);
  command.add_option("--data", f.data, "a text file (its bytes are the tokens) or a file of token ids (.u16, .i32)")->required();
  command.add_option("--data-format", f.data_format, "auto (by the file's ending), bytes, u16 or i32");
  command.add_option("--holdout", f.holdout, "share of the data's end kept for validation (0.05)");
  command.add_option("--out", f.train.out, "folder for metrics.jsonl, checkpoints and the plan");
  command.add_option("--steps", f.train.steps, "optimizer updates of the whole run (1000)");
  command.add_option("--init", f.train.init, "weights to start from (safetensors)");
  command.add_flag("--partial", f.train.partial, "load those weights of --init that fit");
  command.add_flag("--resume", f.train.resume, "continue the run in --out from its newest complete checkpoint");
  command.add_option("--resume-from", f.train.resume_from, "continue from this checkpoint folder and no other");
  command.add_option("--allow-change", f.allow_change, "config keys a resumed run may differ in: lr,steps");
  command.add_option("--save-every", f.train.save_every, "steps between checkpoints (0: at the end only)");
  command.add_option("--eval-every", f.train.eval_every, "steps between validations (100; 0: never)");
  command.add_option("--eval-batches", f.train.eval_batches, "held-out batches a validation reads (16; 0: all)");
  command.add_option("--log-every", f.log_every, "steps between lines when the output is no terminal (10)");
  command.add_option("--keep-checkpoints", f.train.keep, "how many checkpoints stay (3)");
  command.add_option("--patience", f.train.patience, "steps in a row without a finite loss before the run stops itself (5)");
  command.add_option("--progress", f.progress, "auto, plain or none");
  command.add_flag("--no-graph", f.no_graph,
                   "GPU: run the calls of a step one by one instead of replaying a captured graph; same results, slower, and a "
                   "call that fails is named");
  command.add_option("--threads", f.threads, "0 = all cores; never changes a result");
}

bool smart_terminal() {
  const char* kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && kind && std::string(kind) != "dumb";
}

// A model is compiled with its overrides; a plan takes those that are train scalars.
ir::Plan plan_to_train(TrainFlags& f) {
  if (!is_plan_file(f.model.path)) {
    // A run that goes on keeps the algorithms it began with: measured again, others might win and change last bits.
    const std::string began_with = f.train.out + "/model.plan";
    if (!f.train.resume || f.model.target != "cuda" || !std::filesystem::exists(began_with)) return compile_model(f.model);
    f.model.no_tune = true;
    return runtime::cuda::with_algorithms_of(compile_model(f.model), ir::read_plan(began_with));
  }
  refuse_compile_flags(f.model);
  f.train.hypers = assignments(f.model.overrides);
  return ir::read_plan(f.model.path);
}

void train(TrainFlags& f) {
  runtime::Signals signals;
  f.train.allow_change = comma_list(f.allow_change);
  runtime::Progress progress(runtime::progress_mode(f.progress, smart_terminal()), stdout, f.log_every);
  runtime::check_run_folder(f.train);
  runtime::SessionOptions session_options;
  session_options.threads = f.threads;
  session_options.graph = !f.no_graph;
  session_options.wait = f.no_graph;
  ir::Plan plan = plan_to_train(f);
  f.train.microbatches = runtime::plan_microbatches(plan);
  runtime::DataOptions data_options = runtime::plan_data_options(plan, f.train.microbatches);
  data_options.format = runtime::token_format_named(f.data_format);
  data_options.holdout = f.holdout;
  const runtime::TokenData data(f.data, data_options);
  const auto session = runtime::Session::open(std::move(plan), session_options);
  const runtime::TrainResult result = runtime::train(*session, data, f.train, progress, signals);
  const std::string saved = result.checkpoint.empty() ? "nothing saved (no --out)" : "saved " + result.checkpoint;
  switch (result.end) {
    case runtime::TrainEnd::finished:
      return progress.say(fmt::format("finished {} steps; {}", result.step, saved));
    case runtime::TrainEnd::signal:
      progress.warn(fmt::format("stopped by signal {} after step {}; {}", result.signal, result.step, saved));
      throw Exit{128 + result.signal};
    case runtime::TrainEnd::diverged:
      throw Stopped(result.reason);
  }
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = app.add_subcommand("train", "Train a model on a file of text or tokens");
  add_flags(*command, *flags);
  command->callback([flags] { train(*flags); });
}

}  // namespace ingot::tools
