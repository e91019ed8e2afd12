// From a model file to a plan, with a target that compiles nothing.
#include "codegen/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "ir/base/error.h"
#include "ir/graph/text.h"
#include "models/loader.h"
#include "tests/codegen/fake_target.h"
#include "tests/common/places.h"

namespace ingot::codegen {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

const Overrides kSmall = {{"layers", "2"}, {"width", "64"},  {"head", "32"},   {"vocab", "101"}, {"batch", "2"},  {"time", "37"},
                          {"ffn", "256"},  {"rank_w", "32"}, {"rank_a", "32"}, {"rank_v", "32"}, {"rank_g", "64"}};

ir::Plan rwkv7(const CompileOptions& options, const Overrides& overrides = kSmall, std::vector<std::string> outputs = {}) {
  models::LoadOptions load;
  load.overrides = overrides;
  load.outputs = std::move(outputs);
  const models::LoadedModel model = models::load_model(tests::source_file("models/rwkv7.yaml"), load);
  return compile(model.module, FakeTarget{}, options, model.sources);
}

std::vector<std::string> program_names(const ir::Plan& plan) {
  std::vector<std::string> names;
  for (const ir::Program& program : plan.programs) names.push_back(program.name);
  return names;
}

std::string info(const ir::Plan& plan, const std::string& key) {
  for (const auto& [name, value] : plan.info) {
    if (name == key) return value;
  }
  return "";
}

TEST(Compile, MakesThePrograms) {
  EXPECT_THAT(program_names(rwkv7({})), testing::ElementsAre("init", "prepare", "train", "eval", "decode"));
  CompileOptions options;
  options.microbatches = 4;
  options.programs = {"train", "verify"};
  EXPECT_THAT(program_names(rwkv7(options)), testing::ElementsAre("init", "prepare", "first", "next", "last", "verify"));
}

TEST(Compile, TheSameModelGivesTheSamePlan) {
  CompileOptions options;
  options.precision = "bf16";
  const ir::Plan a = rwkv7(options), b = rwkv7(options);
  EXPECT_EQ(ir::print_plan(a), ir::print_plan(b));
  EXPECT_TRUE(ir::same(a, b));
}

TEST(Compile, KeepsTheGraphsOfEveryLevelAndTheSources) {
  const ir::Plan plan = rwkv7({});
  const ir::Module model = ir::parse_module(plan.files.at("graphs/model.ir"));
  EXPECT_NE(model.find_graph("loss"), nullptr);
  for (const char* program : {"train", "eval", "decode"}) {
    const ir::Module fused = ir::parse_module(plan.files.at(std::string("graphs/") + program + ".fused.ir"));
    EXPECT_EQ(fused.graph(program).level(), ir::Level::fused);
  }
  EXPECT_TRUE(
      std::any_of(plan.files.begin(), plan.files.end(), [](const auto& file) { return file.first.ends_with("rwkv7.yaml"); }));
}

// Every update, and every reader of a copy, finds it fresh: prepare makes it after a load, the update step renews it.
TEST(Compile, SixteenBitCopiesAreRenewedWithTheirParameters) {
  CompileOptions options;
  options.precision = "bf16";
  options.programs = {"eval", "train"};
  const ir::Plan plan = rwkv7(options);
  std::set<ir::BufferId> copies;
  for (const ir::Binding& b : plan.bindings) {
    if (b.variable.role == ir::VariableRole::compute) copies.insert(b.buffer);
  }
  // One call may write several that lie side by side.
  const auto holds = [&](ir::BufferId outer, ir::BufferId inner) {
    const ir::Buffer &a = plan.buffers[outer], &b = plan.buffers[inner];
    return a.arena == b.arena && a.offset <= b.offset && b.offset + b.bytes <= a.offset + a.bytes;
  };
  const auto written = [&](const char* program) {
    std::set<ir::BufferId> out;
    for (const ir::Call& call : plan.find_program(program)->calls) {
      for (const ir::Access& access : call.args) {
        if (access.buffer == ir::kNoBuffer || access.mode == ir::AccessMode::read) continue;
        std::copy_if(copies.begin(), copies.end(), std::inserter(out, out.end()),
                     [&](ir::BufferId copy) { return holds(access.buffer, copy); });
      }
    }
    return out;
  };
  EXPECT_GT(copies.size(), 20u);
  EXPECT_EQ(written("prepare"), copies);
  EXPECT_EQ(written("train"), copies);
  EXPECT_TRUE(written("eval").empty());
}

TEST(Compile, TheOptimizerStepIsInPlace) {
  const ir::Plan plan = rwkv7({});
  for (const ir::Call& call : plan.find_program("train")->calls) {
    if (call.kind == ir::CallKind::copy) {
      EXPECT_EQ(call.label, "step") << "a parameter or moment is copied";
    }
  }
}

void expect_near_bound(const ir::Plan& plan, double slack) {
  for (const ir::Program& program : plan.programs) {
    const std::string report = info(plan, "memory." + program.name);
    long long temps = 0, total = 0, bound = 0, placed = 0;
    if (std::sscanf(report.c_str(), "temps %lld total %lld bound %lld placed %lld", &temps, &total, &bound, &placed) != 4)
      continue;
    EXPECT_LE(static_cast<double>(placed), (1 + slack) * static_cast<double>(bound)) << program.name << ": " << report;
  }
}

TEST(Compile, PlacesMemoryAtTheBound) {
  CompileOptions options;
  expect_near_bound(rwkv7(options), 0.02);  // few lives of odd sizes
  options.precision = "bf16";
  options.microbatches = 2;
  options.programs = {"train"};
  expect_near_bound(rwkv7(options), 0.005);
  expect_near_bound(rwkv7(options, {{"layers", "6"}, {"width", "512"}, {"vocab", "1000"}, {"batch", "4"}, {"time", "256"}}),
                    0.005);
}

// Kernels are counted by shape and kind, not by layer.
// Equal layers share every kernel. The gradient of v_first is a sum over all layers cut into kernels of limited size, so depth
// may still decide whether the last of them has a shape of its own.
TEST(Compile, KernelsDoNotGrowWithDepth) {
  CompileOptions options;
  options.programs = {"train"};
  const auto kernels = [&](const char* layers) {
    Overrides overrides = kSmall;
    overrides[0].second = layers;
    return rwkv7(options, overrides).kernels.size();
  };
  const size_t shallow = kernels("8");
  EXPECT_LE(kernels("16"), shallow + 1);
  EXPECT_LE(kernels("24"), shallow + 1);
}

TEST(Compile, AnExtraOutputChangesNoOtherCall) {
  CompileOptions options;
  options.programs = {"eval"};
  const ir::Plan plain = rwkv7(options), tapped = rwkv7(options, kSmall, {"blocks.0.att.xr"});
  const auto calls = [](const ir::Plan& plan) {
    std::vector<std::string> list;
    for (const ir::Call& call : plan.find_program("eval")->calls) {
      if (call.kind != ir::CallKind::copy) list.push_back(call.label + " " + call.kernel);
    }
    return list;
  };
  EXPECT_EQ(calls(plain), calls(tapped));
  EXPECT_EQ(tapped.find_program("eval")->outputs.size(), plain.find_program("eval")->outputs.size() + 1);
}

}  // namespace
}  // namespace ingot::codegen
