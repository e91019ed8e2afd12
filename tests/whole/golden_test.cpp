// Whole models against float64 results from an independent source (tests/golden/README.md), and odd sizes against the
// interpreter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>

#include "tests/common/places.h"
#include "tools/ingot/verify.h"

namespace ingot::tools {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;


models::LoadedModel load(const std::string& path, const Overrides& overrides) {
  models::LoadOptions options;
  options.overrides = overrides;
  return models::load_model(tests::source_file(path), options);
}

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

models::LoadedModel golden_wkv7() { return load("tests/models/wkv7_op.yaml", {}); }

std::unique_ptr<codegen::Target> cpu_with(const std::string& arch) {
  codegen::CpuTargetOptions options;
  options.cache.directory = tests::build_file("test-cache");
  options.arch = arch;
  return codegen::make_cpu_target(options);
}

const codegen::Target* cpu() {
  static const std::unique_ptr<codegen::Target> target = cpu_with("native");
  return target.get();
}

// Every tensor by itself: a failure names it.
void expect_all_pass(const VerifyReport& report) {
  EXPECT_FALSE(report.rows.empty());
  for (const VerifyRow& row : report.rows) {
    EXPECT_TRUE(row.passed()) << fmt::format("{}: error {:.3g}, limit {:.3g} (own {:.3g})", row.name, row.error, row.limit,
                                             row.own);
  }
  EXPECT_TRUE(report.passed()) << fmt::format("median {:.3g}, limit {:.3g}", report.median, report.median_limit);
  if (!report.rows.empty()) {
    const VerifyRow& worst = report.rows[report.worst];
    ::testing::Test::RecordProperty("worst", fmt::format("{} {:.3g}", worst.name, worst.error));
  }
}

/// Without a target: the reference.
VerifyReport judge(const models::LoadedModel& model, const std::string& file, const codegen::Target* target,
                   const std::string& precision) {
  VerifyOptions options;
  options.target = target;
  options.precision = precision;
  return verify(model, read_golden(tests::source_file("tests/golden/" + file)), options);
}

size_t count_gradients(const VerifyReport& report) {
  return static_cast<size_t>(
      std::count_if(report.rows.begin(), report.rows.end(), [](const VerifyRow& row) { return row.name.starts_with("grad."); }));
}

TEST(Golden, Rwkv7Reference) {
  const VerifyReport report = judge(golden_rwkv7(), "rwkv7.safetensors", nullptr, "f32");
  expect_all_pass(report);
  EXPECT_EQ(count_gradients(report), 69u);
  EXPECT_TRUE(report.unchecked.empty()) << report.unchecked[0];
}

TEST(Golden, Rwkv7Cpu) { expect_all_pass(judge(golden_rwkv7(), "rwkv7.safetensors", cpu(), "f32")); }

TEST(Golden, Rwkv7CpuBf16) { expect_all_pass(judge(golden_rwkv7(), "rwkv7.safetensors", cpu(), "bf16")); }

TEST(Golden, Rwkv7CpuF16) { expect_all_pass(judge(golden_rwkv7(), "rwkv7.safetensors", cpu(), "f16")); }

// Kernels that run on any x86-64: no fused multiply-add, four lanes.
TEST(Golden, Rwkv7CpuPortable) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "for x86-64";
#endif
  const auto portable = cpu_with("x86-64");
  expect_all_pass(judge(golden_rwkv7(), "rwkv7.safetensors", portable.get(), "f32"));
  expect_all_pass(judge(golden_rwkv7(), "rwkv7.safetensors", portable.get(), "bf16"));
}

TEST(Golden, Wkv7Reference) {
  const VerifyReport report = judge(golden_wkv7(), "wkv7_op.safetensors", nullptr, "f32");
  expect_all_pass(report);
  EXPECT_EQ(count_gradients(report), 7u);
}

TEST(Golden, Wkv7Cpu) { expect_all_pass(judge(golden_wkv7(), "wkv7_op.safetensors", cpu(), "f32")); }

TEST(Golden, Wkv7CpuBf16) { expect_all_pass(judge(golden_wkv7(), "wkv7_op.safetensors", cpu(), "bf16")); }

TEST(Golden, Wkv7CpuF16) { expect_all_pass(judge(golden_wkv7(), "wkv7_op.safetensors", cpu(), "f16")); }

// A wrong golden value must not pass.
TEST(Golden, AWrongGradientFails) {
  const models::LoadedModel model = golden_wkv7();
  Golden golden = read_golden(tests::source_file("tests/golden/wkv7_op.safetensors"));
  golden.gradients["w"].data[5] *= 1.01;
  const VerifyReport report = verify(model, golden, {});
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.rows[report.worst].name, "grad.w");
}

TEST(Golden, AFileOfAnotherModelIsRefused) {
  try {
    verify(golden_wkv7(), read_golden(tests::source_file("tests/golden/rwkv7.safetensors")), {});
    FAIL();
  } catch (const ir::UserError& error) {
    EXPECT_GT(error.diagnostics().size(), 1u);
    EXPECT_NE(error.diagnostics()[0].message.find("param.r"), std::string::npos) << error.diagnostics()[0].message;
  }
}

TEST(Golden, ATokenPastTheVocabularyIsRefused) {
  Golden golden = read_golden(tests::source_file("tests/golden/rwkv7.safetensors"));
  golden.inputs["tokens"].data[3] = 101;
  try {
    verify(golden_rwkv7(), golden, {});
    FAIL();
  } catch (const ir::UserError& error) {
    EXPECT_NE(error.diagnostics()[0].message.find("holds 101 at position 3"), std::string::npos)
        << error.diagnostics()[0].message;
  }
}

// ---------------------------------------------------------------- odd sizes against the interpreter

/// Parameters of ordinary size; tokens and targets in range, some ignored.
Golden random_values(const models::LoadedModel& model, uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&](double lo, double hi) { return lo + (hi - lo) * static_cast<double>(random()) / 4294967295.0; };
  Golden golden{"random values", {}, {}, {}, {}};
  for (const ir::Variable& v : model.module.variables) {
    if (v.role != ir::VariableRole::param) continue;
    const double centre = v.name.find("ln") != std::string::npos && v.name.ends_with(".weight") ? 1 : 0;
    ir::Tensor tensor(v.type);
    for (double& x : tensor.data) x = static_cast<float>(centre + uniform(-0.3, 0.3));
    golden.params[v.name] = std::move(tensor);
  }
  const ir::Graph& loss = model.module.graph("loss");
  for (const ir::Op& op : loss.ops()) {
    if (op.name() != "input") continue;
    const ir::Value& value = loss.value(op.results[0]);
    const auto range = std::find_if(model.module.ranges.begin(), model.module.ranges.end(),
                                    [&](const ir::InputRange& r) { return r.input == value.name; });
    ir::Tensor tensor(value.type);
    for (double& x : tensor.data) {
      if (range == model.module.ranges.end()) {
        x = static_cast<float>(uniform(-1, 1));
      } else {
        const bool ignored = !range->also.empty() && random() % 4 == 0;
        x = ignored ? static_cast<double>(range->also[0]) : std::floor(uniform(0, static_cast<double>(range->hi) + 0.999));
      }
    }
    golden.inputs[value.name] = std::move(tensor);
  }
  return golden;
}

struct Variant {
  std::string name, model;
  Overrides overrides;
  friend void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }
};

Variant rwkv7(std::string name, const Overrides& overrides) {
  Variant variant{std::move(name), "models/rwkv7.yaml", {{"layers", "2"}, {"vocab", "11"}, {"ffn", "24"}}};
  for (const auto& [key, rank] : Overrides{{"rank_w", "4"}, {"rank_a", "5"}, {"rank_v", "3"}, {"rank_g", "8"}}) {
    variant.overrides.emplace_back(key, rank);
  }
  variant.overrides.insert(variant.overrides.end(), overrides.begin(), overrides.end());
  return variant;
}
/// The op alone has few kernels to compile: the sizes that matter to it alone.
Variant wkv7(std::string name, const Overrides& overrides) { return {std::move(name), "tests/models/wkv7_op.yaml", overrides}; }

class OddSizes : public ::testing::TestWithParam<Variant> {};

TEST_P(OddSizes, CpuEqualsTheInterpreter) {
  const models::LoadedModel model = load(GetParam().model, GetParam().overrides);
  const Golden values = random_values(model, 7);
  VerifyOptions options;
  options.target = cpu();
  const Tensors exact = run_reference(model, values, "f32", false), rounded = run_reference(model, values, "f32", true);
  const Tensors got = run_target(model, values, options);
  ASSERT_EQ(got.size(), exact.size());
  for (const auto& [name, tensor] : exact) {
    // Random values may be badly conditioned: then rounding each value to f32 alone moves the answer, and sums in f32 a little
    // more.
    const double own = relative_error(rounded.at(name), tensor), error = relative_error(got.at(name), tensor);
    EXPECT_TRUE(error <= std::max(2e-5, 16 * own)) << fmt::format("{}: error {:.3g}, of rounding alone {:.3g}", name, error, own);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, OddSizes,
    ::testing::Values(
        rwkv7("one_position", {{"width", "32"}, {"head", "16"}, {"batch", "3"}, {"time", "1"}}),
        rwkv7("one_of_everything", {{"width", "16"}, {"head", "16"}, {"batch", "1"}, {"time", "1"}, {"layers", "1"}}),
        rwkv7("one_head_one_sequence", {{"width", "32"}, {"head", "32"}, {"batch", "1"}, {"time", "16"}}),
        rwkv7("ragged_time", {{"width", "48"}, {"head", "16"}, {"batch", "2"}, {"time", "17"}}),
        rwkv7("no_ln0_l2wrap",
              {{"width", "32"}, {"head", "16"}, {"batch", "2"}, {"time", "6"}, {"ln0", "false"}, {"l2wrap", "0.01"}}),
        wkv7("wkv7_head_16", {{"head", "16"}, {"heads", "3"}, {"batch", "2"}, {"time", "1"}}),
        wkv7("wkv7_head_20", {{"head", "20"}, {"heads", "1"}, {"batch", "1"}, {"time", "15"}}),
        wkv7("wkv7_head_64", {{"head", "64"}, {"heads", "2"}, {"batch", "1"}, {"time", "33"}}),
        wkv7("wkv7_head_128", {{"head", "128"}, {"heads", "1"}, {"batch", "2"}, {"time", "18"}})),
    [](const auto& variant) { return variant.param.name; });

}  // namespace
}  // namespace ingot::tools
