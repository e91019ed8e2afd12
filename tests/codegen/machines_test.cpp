// Code for machines with narrower vectors than this one: as right, and where both have fused multiply-add the same to the last
// bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/codegen/kernel_bench.h"

namespace ingot {
namespace {

std::vector<std::vector<double>> results_on(const std::string& arch, const std::vector<std::string>& texts) {
  codegen::CpuTargetOptions options = testing::test_options();
  options.arch = arch;
  testing::KernelBench bench(options);
  bench.set_tolerance(2e-5);
  for (const std::string& text : texts) bench.add(text, -0.3, 0.3);
  bench.run();
  return bench.results();
}

std::vector<std::string> sums() {
  return {
      "input %x: f32[100003]\n%y = sum(%x) {axes: [0]}: f32[]\n",
      "input %x: f32[37, 333]\n%y = sum(%x) {axes: [1]}: f32[37]\n%z = max(%x) {axes: [1]}: f32[37]\n%u = min(%x) {axes: [1]}: "
      "f32[37]\n",
      "input %x: bf16[300, 65]\n%y = sum(%x) {axes: [1], dtype: f32}: f32[300]\n%z = sum(%x) {axes: [0], dtype: f32}: f32[65]\n",
      "input %x: f32[700, 65]\n%y = sum(%x) {axes: [0]}: f32[65]\n%z = cumsum(%x) {axis: 0}: f32[700, 65]\n"};
}

std::vector<std::string> recurrences() {
  std::vector<std::string> texts;
  for (int head : {16, 48, 64}) {
    const std::string rows = fmt::format("f32[1, 21, 2, {}]", head), state = fmt::format("f32[1, 2, {0}, {0}]", head);
    const std::string saved = fmt::format("f32[1, 2, 2, {0}, {0}]", head);
    std::string text;
    for (const char* name : {"r", "w", "k", "v", "a", "b", "dy"}) text += fmt::format("input %{}: {}\n", name, rows);
    text += fmt::format("input %s0: {}\n", state);
    text += fmt::format("%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b, %s0) {{chunk: 16}}: {}, {}, {}\n", rows, state, saved);
    text += fmt::format(
        "%dr, %dw, %dk, %dv, %da, %db, %ds = wkv7_grad(%r, %w, %k, %v, %a, %b, %c, %dy) {{chunk: 16}}: {0}, {0}, {0}, {0}, {0}, "
        "{0}, {1}\n",
        rows, state);
    texts.push_back(text);
  }
  return texts;
}

std::vector<std::string> functions() {
  std::vector<std::string> texts;
  for (const char* op : {"exp", "tanh", "sigmoid", "softplus", "sin", "square"}) {
    texts.push_back(fmt::format("input %x: f32[777]\n%y = {}(%x): f32[777]\n", op));
    texts.push_back(fmt::format("input %x: f16[777]\n%y = {}(%x): f16[777]\n", op));
  }
  return texts;
}

bool has_v3() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"); }
bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

TEST(CpuMachines, TheOldestMachineIsRight) {
  results_on("x86-64", sums());
  results_on("x86-64", recurrences());
  results_on("x86-64", functions());
}

TEST(CpuMachines, SumsAreTheSameOnEveryMachine) { EXPECT_EQ(results_on("x86-64", sums()), results_on("native", sums())); }

TEST(CpuMachines, MachinesWithFusedMultiplyAddAgreeToTheLastBit) {
  if (!has_v4()) GTEST_SKIP() << "needs a machine with AVX-512 to compare with";
  EXPECT_EQ(results_on("x86-64-v3", recurrences()), results_on("x86-64-v4", recurrences()));
  EXPECT_EQ(results_on("x86-64-v3", functions()), results_on("x86-64-v4", functions()));
}

TEST(CpuMachines, TheseAreRightWithSixteenRegisters) {
  if (!has_v3()) GTEST_SKIP() << "needs a machine with AVX2";
  results_on("x86-64-v3", sums());
  results_on("x86-64-v3", recurrences());
}

}  // namespace
}  // namespace ingot
