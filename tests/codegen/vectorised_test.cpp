// Inner loops over the columns of a region must vectorise: one branch in a long body makes the whole loop scalar, ten times
// slower and as right as before, so only the compiler's own report shows it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/codegen/kernel_bench.h"
#include "tests/common/program.h"

namespace ingot::testing {
namespace {

// A lerp with the row before, rounded and stored in 16 bits, and sums over rows that neighbours' tiles compute too.
std::string region(const std::string& dtype) {
  const std::string x = dtype + "[2, 512, 64]", f = "f32[2, 512, 64]", w = "f32[64]";
  return "graph @main at fused {\ninput %x: " + x + "\ninput %w: " + w +
         "\n%y, %s, %t = fuse(%x, %w) {kind: \"row\", rows: 1024} (%a: " + x + ", %b: " + w +
         ") {\n  %f = cast(%a) {dtype: f32}: " + f + "\n  %g = mul(%f, %b): " + f + "\n  %e = exp(%g): " + f +
         "\n  %p = shift_rows(%e) {by: 1}: " + f + "\n  %d = sub(%p, %e): " + f + "\n  %h = sigmoid(%d): " + f +
         "\n  %u = cast(%h) {dtype: " + dtype + "}: " + x + "\n  %v = sum(%d) {axes: [0, 1]}: " + w +
         "\n  %k = sum(%e) {axes: [0, 1]}: " + w + "\n  yield %u, %v, %k\n}: " + x + ", " + w + ", " + w + "\n}";
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(Vectorised, NoLoopOverColumnsIsScalar) {
#if !defined(__GNUC__) || defined(__clang__) || !defined(__x86_64__)
  GTEST_SKIP() << "reads the reports of GCC for x86-64";
#endif
  const ingot::tests::ScratchFolder folder;
  const std::string script =
      folder.write("compiler", fmt::format("#!/bin/sh\nexec c++ -fopt-info-vec-optimized={}/report.$$ \"$@\"\n", folder.path()));
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  codegen::CpuTargetOptions options;
  options.compiler = script;
  options.cache = {folder.file("cache"), true};
  KernelBench bench(options);
  bench.set_tolerance(2e-5);
  for (const char* dtype : {"f32", "bf16", "f16"}) bench.add(region(dtype));
  bench.run();

  std::string reports;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename().string().starts_with("report.")) reports += ingot::tests::file_content(entry.path().string());
  }
  int loops = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("cache"))) {
    if (entry.path().extension() != ".cpp") continue;
    const std::vector<std::string> lines = lines_of(entry.path());
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!lines[i].starts_with("for (int64_t n = 0;")) continue;
      ++loops;
      const std::string place = fmt::format("{}:{}:", entry.path().filename().string(), i + 1);
      EXPECT_NE(reports.find(place), std::string::npos) << place << " is scalar";
    }
  }
  EXPECT_GE(loops, 3);
}

}  // namespace
}  // namespace ingot::testing
