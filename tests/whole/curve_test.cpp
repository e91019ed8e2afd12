// Whole training runs: the float64 curve (tests/golden/README.md), and what must not change a bit of one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "codegen/compile.h"
#include "models/loader.h"
#include "runtime/run_config.h"
#include "runtime/safetensors.h"
#include "runtime/train.h"
#include "tests/common/places.h"
#include "tests/runtime/scratch_folder.h"

namespace ingot::runtime {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

const char* const kText = "tests/data/tinyshakespeare_25k.txt";
const char* const kCurve = "tests/golden/curve_rwkv7.safetensors";

Overrides curve_model() {
  return {{"layers", "2"},      {"width", "64"},  {"head", "32"},   {"vocab", "256"}, {"batch", "4"},   {"time", "32"},
          {"ffn", "256"},       {"rank_w", "32"}, {"rank_a", "32"}, {"rank_v", "32"}, {"rank_g", "32"}, {"lr", "1e-3"},
          {"lr_final", "1e-4"}, {"warmup", "10"}, {"decay", "0.1"}, {"clip", "1.0"},  {"l2wrap", "0"}};
}

Overrides with(Overrides base, const Overrides& more) {
  for (const auto& [key, value] : more) {
    std::erase_if(base, [&](const auto& pair) { return pair.first == key; });
    base.emplace_back(key, value);
  }
  return base;
}

ir::Plan compiled(const Overrides& overrides, codegen::CompileOptions options = {}) {
  models::LoadOptions load;
  load.overrides = overrides;
  codegen::CpuTargetOptions target;
  target.cache.directory = tests::build_file("test-cache");
  const ir::Module module = models::load_model(tests::source_file("models/rwkv7.yaml"), load).module;
  return codegen::compile(module, *codegen::make_cpu_target(target), options);
}

struct Outcome {
  std::vector<nlohmann::json> steps;  ///< of metrics.jsonl, without times
  std::string weights, moments;       ///< files of the last checkpoint
};

Outcome trained(ir::Plan plan, TrainOptions options, const SessionOptions& session_options = {},
                const std::string& text = tests::source_file(kText)) {
  options.microbatches = plan_microbatches(plan);
  const TokenData data(text, plan_data_options(plan, options.microbatches));
  const auto session = Session::open(std::move(plan), session_options);
  Progress progress(ProgressMode::none, stdout, 1);
  Signals signals;
  const TrainResult result = train(*session, data, options, progress, signals);
  Outcome outcome{{}, slurp(result.checkpoint + "/weights.safetensors"), slurp(result.checkpoint + "/optimizer.safetensors")};
  std::istringstream in(slurp(options.out + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::json::parse(line);
    if (json.erase("tokens_per_s") > 0) outcome.steps.push_back(json);
  }
  return outcome;
}

double relative(double got, double want) { return std::abs(got - want) / std::abs(want); }

TEST(Curve, ReproducesTheFloat64Run) {
  ScratchFolder folder;
  TrainOptions options;
  options.out = folder.path("run");
  options.steps = 150;
  options.init = tests::source_file(kCurve);
  options.eval_every = 50;  // changes nothing of what is compared
  const Outcome got = trained(compiled(curve_model()), options);
  const Safetensors curve(tests::source_file(kCurve));
  const auto loss = curve.read_doubles("out.loss"), norm = curve.read_doubles("out.grad_norm"), lr = curve.read_doubles("out.lr");
  ASSERT_EQ(got.steps.size(), 150u);
  for (size_t i = 0; i < 150; ++i) {
    EXPECT_LE(relative(got.steps[i]["loss"], loss[i]), 1e-4) << "step " << i + 1;
    EXPECT_LE(relative(got.steps[i]["lr"], lr[i]), 1e-4) << "step " << i + 1;
    EXPECT_LE(relative(got.steps[i]["grad_norm"], norm[i]), 1e-2) << "step " << i + 1;
  }
}

// A shorter run of a smaller model, for what must agree bit for bit.
Overrides small_model() {
  return with(curve_model(), {{"width", "32"}, {"head", "16"}, {"ffn", "64"}, {"time", "20"}, {"warmup", "2"}});
}

TrainOptions eight_steps(const ScratchFolder& folder) {
  TrainOptions options;
  options.out = folder.path("run");
  options.steps = 8;
  options.eval_every = 0;
  options.seed = 5;
  return options;
}

void expect_same(const Outcome& got, const Outcome& want, const char* what) {
  EXPECT_EQ(got.steps, want.steps) << what;
  EXPECT_TRUE(got.weights == want.weights) << what << ": weights differ";
  EXPECT_TRUE(got.moments == want.moments) << what << ": moments differ";
}

const Outcome& plain_run() {
  static const Outcome outcome = [] {
    ScratchFolder folder;
    SessionOptions one;
    one.threads = 1;
    return trained(compiled(small_model()), eight_steps(folder), one);
  }();
  return outcome;
}

TEST(Curve, ThreadsPoisonAndPlacementChangeNoBit) {
  for (const int threads : {2, 5}) {
    ScratchFolder folder;
    SessionOptions options;
    options.threads = threads;
    expect_same(trained(compiled(small_model()), eight_steps(folder), options), plain_run(), "threads");
  }
  SessionOptions watched;
  watched.poison = watched.check_nan = watched.trace = true;
  ScratchFolder poison_folder, apart_folder;
  expect_same(trained(compiled(small_model()), eight_steps(poison_folder), watched), plain_run(), "poison");
  codegen::CompileOptions apart;
  apart.reuse_memory = false;
  expect_same(trained(compiled(small_model(), apart), eight_steps(apart_folder)), plain_run(),
              "every temp with bytes of its own");
}

TEST(Curve, EvaluationsAndCheckpointsChangeNoBit) {
  ScratchFolder folder;
  TrainOptions options = eight_steps(folder);
  options.eval_every = options.save_every = 1;
  expect_same(trained(compiled(small_model()), options), plain_run(), "evaluations and checkpoints");
}

TEST(Curve, StoppedTwiceAndResumedChangesNoBit) {
  for (const char* precision : {"f32", "bf16", "f16"}) {
    codegen::CompileOptions compile;
    compile.precision = precision;
    const ir::Plan plan = compiled(small_model(), compile);
    ScratchFolder whole_folder, folder;
    const Outcome whole = trained(plan, eight_steps(whole_folder));
    TrainOptions options = eight_steps(folder);
    options.save_every = 3;
    trained(plan, options);
    options.resume = true;
    for (const char* lost : {"/step-00000008", "/step-00000006"}) std::filesystem::remove_all(options.out + lost);
    trained(plan, options);  // from 3
    std::filesystem::remove_all(options.out + "/step-00000008");
    expect_same(trained(plan, options), whole, precision);  // from 6
  }
}

// Stretches of three windows a row: the run goes round more than twice, and is stopped inside a stretch and where one begins.
TEST(Curve, CarriedStatesBeginAnewWithTheDataAndResume) {
  for (const int microbatches : {1, 2}) {
    codegen::CompileOptions compile;
    compile.carry_state = true;
    compile.microbatches = microbatches;
    const ir::Plan plan = compiled(with(small_model(), {{"lr", "0"}, {"lr_final", "0"}}), compile);
    const ir::Plan moving = compiled(small_model(), compile);
    ScratchFolder text_folder;
    const std::string text = text_folder.write("text.txt", slurp(tests::source_file(kText)).substr(0, 4 * 20 * 3 + 10));
    ScratchFolder still_folder, whole_folder, folder;
    const Outcome still = trained(plan, eight_steps(still_folder), {}, text);
    ASSERT_EQ(still.steps.size(), 8u);
    for (size_t i = 0; i + 3 < 8; ++i) EXPECT_EQ(still.steps[i]["loss"], still.steps[i + 3]["loss"]) << "step " << i + 1;
    EXPECT_NE(still.steps[0]["loss"], still.steps[1]["loss"]);
    const Outcome whole = trained(moving, eight_steps(whole_folder), {}, text);
    EXPECT_NE(whole.moments.find("train.carry."), std::string::npos);
    TrainOptions options = eight_steps(folder);
    options.save_every = 3;
    trained(moving, options, {}, text);
    options.resume = true;
    for (const char* lost : {"/step-00000008", "/step-00000006"}) std::filesystem::remove_all(options.out + lost);
    options.save_every = 2;
    trained(moving, options, {}, text);  // from 3
    for (const char* lost : {"/step-00000008", "/step-00000006"}) std::filesystem::remove_all(options.out + lost);
    expect_same(trained(moving, options, {}, text), whole, "carried");  // from 4
  }
}

TEST(Curve, CarriedStatesBelongToWindowsOfOneLength) {
  codegen::CompileOptions compile;
  compile.carry_state = true;
  ScratchFolder folder;
  TrainOptions options = eight_steps(folder);
  trained(compiled(small_model(), compile), options);
  options.resume = true;
  options.steps = 9;
  options.allow_change = {"time", "steps", "data"};
  EXPECT_EQ(error_of([&] {
              trained(compiled(with(small_model(), {{"time", "10"}}), compile), options);
            }),
            "error: with --carry-state `time` cannot change (20 -> 10): the states saved belong to where windows of that length "
            "ended");
}

// A loss scale far too large comes down by itself, a step each; no step before it fits counts as one that went wrong, and what
// they leave is what a run beginning with that scale has.
TEST(Curve, InF16TheLossScaleComesDownByItself) {
  codegen::CompileOptions compile;
  compile.precision = "f16";
  ir::Plan plan = compiled(small_model(), compile);
  const auto binding = std::find_if(plan.bindings.begin(), plan.bindings.end(),
                                    [](const ir::Binding& b) { return b.variable.name == "loss_scale"; });
  ASSERT_NE(binding, plan.bindings.end());
  for (ir::Program& program : plan.programs) {
    for (ir::Call& call : program.calls) {
      if (program.name == "init" && call.args.at(0).buffer == binding->buffer) call.init = "16777216";
    }
  }
  ScratchFolder folder;
  TrainOptions options = eight_steps(folder);
  options.steps = 20;
  options.patience = 2;
  const Outcome got = trained(plan, options);
  ASSERT_EQ(got.steps.size(), 20u);
  size_t overflows = 0;
  while (overflows < 20 && got.steps[overflows]["grad_norm"].is_null()) {
    EXPECT_EQ(got.steps[overflows]["loss_scale"].get<double>(), 8388608 / std::pow(2.0, overflows)) << "step " << overflows + 1;
    EXPECT_EQ(got.steps[overflows]["lr"], got.steps[0]["lr"]) << "the counter of steps stood still";
    ++overflows;
  }
  EXPECT_GT(overflows, 4u);
  ASSERT_LT(overflows, 14u);
  for (size_t i = overflows; i < 20; ++i) {
    EXPECT_FALSE(got.steps[i]["grad_norm"].is_null()) << "step " << i + 1;
    EXPECT_EQ(got.steps[i]["loss_scale"], got.steps[overflows - 1]["loss_scale"]) << "step " << i + 1;
  }
}

// The same windows as one batch of 4 and as two of 2: equal up to the order of sums.
TEST(Curve, MicrobatchesMakeTheSameUpdate) {
  ScratchFolder folder;
  codegen::CompileOptions compile;
  compile.microbatches = 2;
  const Outcome got = trained(compiled(with(small_model(), {{"batch", "2"}}), compile), eight_steps(folder));
  ASSERT_EQ(got.steps.size(), plain_run().steps.size());
  for (size_t i = 0; i < got.steps.size(); ++i) {
    const auto &a = got.steps[i], &b = plain_run().steps[i];
    EXPECT_EQ(a["tokens"], b["tokens"]);
    EXPECT_LE(relative(a["loss"], b["loss"]), 1e-5) << "step " << i + 1;
    EXPECT_LE(relative(a["grad_norm"], b["grad_norm"]), 1e-4) << "step " << i + 1;
  }
}

}  // namespace
}  // namespace ingot::runtime
