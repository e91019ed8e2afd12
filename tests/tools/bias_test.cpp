// Products with a bias as `ingot compile` and `ingot inspect` show them, and on a card whose library has no kernel for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/common/places.h"
#include "tests/common/program.h"

namespace ingot::tests {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

ProgramResult ingot(std::vector<std::string> words, const std::map<std::string, std::string>& more = {}) {
  words.insert(words.begin(), build_file("ingot"));
  std::map<std::string, std::string> environment{{"INGOT_CACHE_DIR", build_file("test-cache")}};
  environment.insert(more.begin(), more.end());
  return run_program(words, "", environment);
}

const std::string kBiased = source_file("tests/models/biased.yaml");

TEST(BiasCommand, IsShownAmongTheCalls) {
  const ScratchFolder folder;
  const std::string plan = folder.file("b.plan");
  ASSERT_EQ(ingot({"compile", kBiased, "--programs", "eval", "-o", plan}).code, 0);
  EXPECT_THAT(ingot({"inspect", plan, "--calls", "--program", "eval"}).out,
              ContainsRegex("gemm a\\.rows 21x35x21 NT \\+ bias \\(eval/[^ ]+, one\\.weight, one\\.bias, -> eval/a\\.rows\\)"));
  const nlohmann::json shown = nlohmann::json::parse(ingot({"inspect", plan, "--calls", "--json"}).out);
  int biases = 0;
  for (const auto& call : shown["calls"]["eval"]) {
    biases += call.contains("gemm") && call["gemm"].contains("bias");
  }
  EXPECT_EQ(biases, 2);
}

// What cannot be a product's is a kernel of ours again, with nothing asked of whoever compiles.
TEST(BiasCommand, IsAKernelWhereTheLibraryHasNone) {
  const ScratchFolder folder;
  const auto compile = [&](const std::string& target, std::vector<std::string> more, const char* no_bias) {
    std::vector<std::string> words{"compile", kBiased, "--programs",         "eval", "--no-tune", "--target",
                                   target,    "-o",    folder.file("b.plan")};
    words.insert(words.end(), more.begin(), more.end());
    std::map<std::string, std::string> fake{{"LD_LIBRARY_PATH", build_file("tests/fake_gpu")}, {"INGOT_FAKE_NO_BIAS", no_bias}};
    return ingot(words, target == "cuda" ? fake : std::map<std::string, std::string>{});
  };
  const auto calls = [&] { return ingot({"inspect", folder.file("b.plan"), "--calls", "--program", "eval"}).out; };
  // NVRTC does not bear the fake driver: the kernels of both plans come out of the cache.
  if (const ProgramResult real = compile("cuda:sm_90", {}, "0"); real.code != 0) GTEST_SKIP() << real.err;
  ASSERT_EQ(compile("cuda:sm_90", {"--disable", "bias"}, "0").code, 0);
  const std::string without = calls();
  EXPECT_THAT(without, Not(HasSubstr("+ bias")));
  const ProgramResult has = compile("cuda", {}, "0");
  ASSERT_EQ(has.code, 0) << has.err;
  EXPECT_THAT(calls(), HasSubstr("+ bias"));
  const ProgramResult lacks = compile("cuda", {}, "1");
  ASSERT_EQ(lacks.code, 0) << lacks.err;
  EXPECT_EQ(calls(), without);
}

}  // namespace
}  // namespace ingot::tests
