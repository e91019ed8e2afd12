// Whole models on the card of this machine: golden files, the float64 training curve, and what must not change a bit. Every test
// skips itself where there is no card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "codegen/compile.h"
#include "ir/base/error.h"
#include "ir/plan/lanes.h"
#include "models/loader.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/tune.h"
#include "runtime/random_input.h"
#include "runtime/run_config.h"
#include "runtime/safetensors.h"
#include "runtime/train.h"
#include "tests/common/places.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/whole/biased_model.h"
#include "tools/ingot/verify.h"

namespace ingot {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

const codegen::Target* gpu() {
  static const std::unique_ptr<codegen::Target> target = []() -> std::unique_ptr<codegen::Target> {
    codegen::CudaTargetOptions options;
    options.cache.directory = tests::build_file("test-cache");
    try {
      options.arch = runtime::cuda::present_architecture();
    } catch (const ir::MachineError&) {
      return nullptr;
    }
    return codegen::make_cuda_target(options);
  }();
  return target.get();
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << "no GPU on this machine";
  }
};

models::LoadedModel load(const std::string& path, const Overrides& overrides) {
  models::LoadOptions options;
  options.overrides = overrides;
  return models::load_model(tests::source_file(path), options);
}

// ---------------------------------------------------------------- golden files

models::LoadedModel golden_rwkv7() {
  return load("models/rwkv7.yaml", {{"layers", "2"},
                                    {"width", "64"},
                                    {"head", "32"},
                                    {"vocab", "101"},
                                    {"batch", "2"},
                                    {"time", "37"},
                                    {"ffn", "256"},
                                    {"rank_w", "32"},
                                    {"rank_a", "32"},
                                    {"rank_v", "32"},
                                    {"rank_g", "64"},
                                    {"l2wrap", "0"}});
}

void judge(const models::LoadedModel& model, const tools::Golden& golden, const std::string& precision) {
  tools::VerifyOptions options;
  options.target = gpu();
  options.precision = precision;
  const tools::VerifyReport report = tools::verify(model, golden, options);
  EXPECT_FALSE(report.rows.empty());
  for (const tools::VerifyRow& row : report.rows) {
    EXPECT_TRUE(row.passed()) << fmt::format("{}: error {:.3g}, limit {:.3g} (own {:.3g})", row.name, row.error, row.limit,
                                             row.own);
  }
  EXPECT_TRUE(report.passed()) << fmt::format("median {:.3g}, limit {:.3g}", report.median, report.median_limit);
  fmt::print("{} {}: worst {} {:.2e}, median {:.2e}\n", golden.path, precision, report.rows[report.worst].name,
             report.rows[report.worst].error, report.median);
}

void judge(const models::LoadedModel& model, const std::string& file, const std::string& precision) {
  judge(model, tools::read_golden(tests::source_file("tests/golden/" + file)), precision);
}

TEST_F(Gpu, GoldenRwkv7F32) { judge(golden_rwkv7(), "rwkv7.safetensors", "f32"); }
TEST_F(Gpu, GoldenRwkv7Bf16) { judge(golden_rwkv7(), "rwkv7.safetensors", "bf16"); }
TEST_F(Gpu, GoldenRwkv7F16) { judge(golden_rwkv7(), "rwkv7.safetensors", "f16"); }
TEST_F(Gpu, GoldenWkv7F32) { judge(load("tests/models/wkv7_op.yaml", {}), "wkv7_op.safetensors", "f32"); }
TEST_F(Gpu, GoldenWkv7Bf16) { judge(load("tests/models/wkv7_op.yaml", {}), "wkv7_op.safetensors", "bf16"); }

TEST_F(Gpu, GoldenWkv7F16) { judge(load("tests/models/wkv7_op.yaml", {}), "wkv7_op.safetensors", "f16"); }

// Sizes that suit the library, which then must have kernels, and odd ones, where it may have none. Few positions: the model's
// state grows, and after eight some gradients times the loss scale are beyond f16 in the interpreter as well.
TEST_F(Gpu, ModelsWithBiases) {
  const Overrides even{{"width", "64"}, {"inner", "128"}, {"vocab", "32"}, {"batch", "8"}, {"time", "4"}};
  for (const bool odd : {false, true}) {
    const models::LoadedModel model = tests::biased_model(odd ? Overrides{} : even);
    for (const char* precision : {"f32", "bf16", "f16"}) {
      codegen::CompileOptions compile;
      compile.precision = precision;
      compile.programs = {"verify"};
      const ir::Plan plan = codegen::compile(model.module, *gpu(), compile);
      EXPECT_EQ(tests::biased_products(plan, "verify").size(), 2u);
      if (runtime::cuda::lacks_bias_kernels(plan)) {
        EXPECT_TRUE(odd) << precision;
        fmt::print("{}: the library has no kernel for a bias of odd sizes\n", precision);
        continue;
      }
      judge(model, tests::biased_golden(model), precision);
    }
  }
}

// ---------------------------------------------------------------- training

Overrides curve_model() {
  return {{"layers", "2"},      {"width", "64"},  {"head", "32"},   {"vocab", "256"}, {"batch", "4"},   {"time", "32"},
          {"ffn", "256"},       {"rank_w", "32"}, {"rank_a", "32"}, {"rank_v", "32"}, {"rank_g", "32"}, {"lr", "1e-3"},
          {"lr_final", "1e-4"}, {"warmup", "10"}, {"decay", "0.1"}, {"clip", "1.0"},  {"l2wrap", "0"}};
}

/// Heads of 64 and longer sequences: WKV7 by chunks.
Overrides chunk_model() {
  return {{"layers", "3"}, {"width", "192"}, {"head", "64"},   {"vocab", "256"}, {"batch", "3"},
          {"time", "150"}, {"rank_w", "32"}, {"rank_a", "32"}, {"rank_v", "32"}, {"rank_g", "32"},
          {"lr", "1e-3"},  {"warmup", "10"}, {"l2wrap", "0"}};
}

struct Outcome {
  std::vector<nlohmann::json> steps;
  std::string weights, moments;
};

ir::Plan compiled(const Overrides& overrides, const codegen::CompileOptions& compile, const codegen::Target& target) {
  return codegen::compile(load("models/rwkv7.yaml", overrides).module, target, compile);
}

Outcome trained(ir::Plan plan, runtime::TrainOptions options, const runtime::SessionOptions& session_options = {}) {
  runtime::ScratchFolder folder;
  options.out = folder.path("run");
  options.eval_every = 0;
  options.microbatches = runtime::plan_microbatches(plan);
  const runtime::TokenData data(tests::source_file("tests/data/tinyshakespeare_25k.txt"),
                                runtime::plan_data_options(plan, options.microbatches));
  const auto session = runtime::Session::open(std::move(plan), session_options);
  runtime::Progress progress(runtime::ProgressMode::none, stdout, 1);
  runtime::Signals signals;
  const runtime::TrainResult result = runtime::train(*session, data, options, progress, signals);
  Outcome outcome{{},
                  runtime::slurp(result.checkpoint + "/weights.safetensors"),
                  runtime::slurp(result.checkpoint + "/optimizer.safetensors")};
  std::istringstream in(runtime::slurp(options.out + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::json::parse(line);
    if (json.erase("tokens_per_s") > 0) outcome.steps.push_back(json);
  }
  return outcome;
}

runtime::TrainOptions steps(int64_t count) {
  runtime::TrainOptions options;
  options.steps = count;
  options.seed = 5;
  return options;
}

TEST_F(Gpu, FollowsTheFloat64Curve) {
  runtime::TrainOptions options = steps(150);
  options.init = tests::source_file("tests/golden/curve_rwkv7.safetensors");
  const Outcome got = trained(compiled(curve_model(), {}, *gpu()), options);
  const auto loss = runtime::Safetensors(options.init).read_doubles("out.loss");
  ASSERT_EQ(got.steps.size(), 150u);
  double worst = 0;
  for (size_t i = 0; i < 150; ++i) worst = std::max(worst, std::abs(got.steps[i]["loss"].get<double>() - loss[i]) / loss[i]);
  EXPECT_LE(worst, 1e-3);
  fmt::print("curve: loss within {:.2e}\n", worst);
}

TEST_F(Gpu, GraphsPoisonAndRerunsChangeNoBit) {
  for (const char* precision : {"f32", "bf16", "f16"}) {
    codegen::CompileOptions compile;
    compile.precision = precision;
    for (const Overrides& model : {curve_model(), chunk_model()}) {
      const Outcome first = trained(compiled(model, compile, *gpu()), steps(100));
      const auto same = [&](const runtime::SessionOptions& session, const char* what) {
        const Outcome again = trained(compiled(model, compile, *gpu()), steps(100), session);
        EXPECT_EQ(again.steps, first.steps) << precision << " " << what;
        EXPECT_TRUE(again.weights == first.weights) << precision << " " << what;
        EXPECT_TRUE(again.moments == first.moments) << precision << " " << what;
      };
      same({}, "again");
      runtime::SessionOptions one_by_one, poisoned;
      one_by_one.graph = false;
      poisoned.poison = true;
      same(one_by_one, "without graphs");
      same(poisoned, "poisoned");
    }
  }
}

TEST_F(Gpu, LanesChangeNoBit) {
  for (const Overrides& model : {curve_model(), chunk_model()}) {
    codegen::CompileOptions compile;
    compile.precision = "bf16";
    const Outcome one = trained(compiled(model, compile, *gpu()), steps(50));
    for (const int lanes : {2, 4}) {
      compile.lanes = lanes;
      const ir::Plan plan = compiled(model, compile, *gpu());
      EXPECT_GT(ir::lane_count(*plan.find_program("train")), 1);
      for (const bool graph : {true, false}) {
        runtime::SessionOptions session;
        session.graph = graph;
        const Outcome several = trained(plan, steps(50), session);
        EXPECT_EQ(several.steps, one.steps) << lanes << " lanes, graph " << graph;
        EXPECT_TRUE(several.weights == one.weights) << lanes << " lanes, graph " << graph;
        EXPECT_TRUE(several.moments == one.moments) << lanes << " lanes, graph " << graph;
      }
    }
  }
}

// 33 x 1024 positions of 65536 logits: in one tensor, and in parts of far fewer.
TEST_F(Gpu, LossOfMoreThan2To31Logits) {
  const Overrides model = {{"layers", "1"},  {"width", "64"},  {"head", "64"},   {"vocab", "65536"},
                           {"batch", "33"},  {"time", "1024"}, {"rank_w", "32"}, {"rank_a", "32"},
                           {"rank_v", "32"}, {"rank_g", "32"}, {"l2wrap", "0"}};
  const auto outputs = [&](int head_chunks, bool large) {
    codegen::CompileOptions compile;
    compile.precision = "bf16";
    compile.head_chunks = head_chunks;
    compile.programs = {"train"};
    ir::Plan plan = compiled(model, compile, *gpu());
    const bool any = std::any_of(plan.buffers.begin(), plan.buffers.end(), [](const ir::Buffer& b) {
      return b.role == ir::BufferRole::temp && b.type.elements() > int64_t{1} << 31;
    });
    EXPECT_EQ(any, large) << head_chunks;
    const auto session = runtime::Session::open(std::move(plan));
    session->initialise(5);
    std::vector<double> out;
    for (int step = 0; step < 3; ++step) {
      for (const ir::Port& port : session->plan().find_program("train")->inputs)
        session->set_input("train", port.name, runtime::random_input(session->plan(), port, 7));
      session->run("train");
      for (const char* name : {"loss", "grad_norm"}) out.push_back(session->output("train", name).to_doubles().at(0));
    }
    return out;
  };
  const std::vector<double> whole = outputs(1, true), parts = outputs(64, false);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], parts[i], 2e-3 * std::abs(parts[i])) << i;
}

TEST_F(Gpu, AccumulatesLikeTheCpu) {
  codegen::CompileOptions compile;
  compile.microbatches = 3;
  codegen::CpuTargetOptions host;
  host.cache.directory = tests::build_file("test-cache");
  const Outcome card = trained(compiled(curve_model(), compile, *gpu()), steps(20));
  const Outcome cpu = trained(compiled(curve_model(), compile, *codegen::make_cpu_target(host)), steps(20));
  for (size_t i = 0; i < cpu.steps.size(); ++i) {
    const double want = cpu.steps[i]["loss"], got = card.steps.at(i)["loss"];
    EXPECT_NEAR(got, want, 1e-3 * want) << "step " << i + 1;
  }
}

// States handed from window to window, documents that end with a line: by chunks in bf16, by the exact kernels else.
TEST_F(Gpu, CarriesStatesAndCutsDocumentsLikeTheCpu) {
  Overrides model = chunk_model();
  model.emplace_back("eod", "10");
  codegen::CpuTargetOptions host;
  host.cache.directory = tests::build_file("test-cache");
  codegen::CompileOptions compile;
  compile.carry_state = true;
  const Outcome cpu = trained(compiled(model, compile, *codegen::make_cpu_target(host)), steps(20));
  for (const auto& [precision, limit] : {std::pair("f32", 1e-3), {"bf16", 5e-3}, {"f16", 5e-3}}) {
    compile.precision = precision;
    const Outcome card = trained(compiled(model, compile, *gpu()), steps(20));
    for (size_t i = 0; i < cpu.steps.size(); ++i) {
      const double want = cpu.steps[i]["loss"], got = card.steps.at(i)["loss"];
      EXPECT_NEAR(got, want, limit * want) << precision << " step " << i + 1;
    }
  }
}

// The same data and seed in bf16 on the card and in f32 on the CPU: losses stay together.
TEST_F(Gpu, ChunksInBf16TrainLikeF32OnTheCpu) {
  codegen::CompileOptions bf16;
  bf16.precision = "bf16";
  codegen::CpuTargetOptions host;
  host.cache.directory = tests::build_file("test-cache");
  const Outcome card = trained(compiled(chunk_model(), bf16, *gpu()), steps(60));
  const Outcome cpu = trained(compiled(chunk_model(), {}, *codegen::make_cpu_target(host)), steps(60));
  for (size_t i = 9; i < cpu.steps.size(); i += 10) {
    const double want = cpu.steps[i]["loss"], got = card.steps.at(i)["loss"];
    EXPECT_NEAR(got, want, 5e-3 * want) << "step " << i + 1;
  }
}

TEST_F(Gpu, TunedPlansTrainAlike) {
  codegen::CompileOptions bf16;
  bf16.precision = "bf16";
  const ir::Plan plain = compiled(chunk_model(), bf16, *gpu()), tuned = runtime::cuda::tune(plain);
  for (const ir::Program& program : tuned.programs) {
    for (const ir::Call& call : program.calls) {
      EXPECT_EQ(call.gemm.algorithm.empty(), call.kind != ir::CallKind::gemm) << call.label;
    }
  }
  const Outcome first = trained(tuned, steps(20)), again = trained(tuned, steps(20)), untuned = trained(plain, steps(20));
  EXPECT_EQ(first.steps, again.steps);
  EXPECT_TRUE(first.weights == again.weights);
  for (size_t i = 0; i < first.steps.size(); ++i) {
    const double want = untuned.steps[i]["loss"], got = first.steps[i]["loss"];
    EXPECT_NEAR(got, want, 5e-3 * want) << "step " << i + 1;
  }
}

}  // namespace
}  // namespace ingot
