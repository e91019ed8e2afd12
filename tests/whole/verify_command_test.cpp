// `ingot verify` as users type it: table, --json, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/safetensors.h"
#include "tests/common/places.h"
#include "tests/runtime/scratch_folder.h"

namespace ingot::tools {
namespace {

struct Ran {
  int code = -1;
  std::string text;  ///< both streams
};

Ran run_verify(const std::string& arguments) {
  const std::string command = "cd " + tests::source_file("") + " && INGOT_CACHE_DIR=" + tests::build_file("test-cache") + " " +
                              tests::build_file("ingot") + " verify " + arguments + " 2>&1";
  Ran ran;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> part;
  for (size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) ran.text.append(part.data(), n);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return ran;
}

const std::string kModel =
    "models/rwkv7.yaml tests/golden/rwkv7.safetensors layers=2 width=64 head=32 vocab=101 batch=2 time=37 ffn=256 "
    "rank_w=32 rank_a=32 rank_v=32 rank_g=64 l2wrap=0 ";
const std::string kOp = "tests/models/wkv7_op.yaml tests/golden/wkv7_op.safetensors ";

TEST(VerifyCommand, ShowsEveryTensorAndTheWorst) {
  const Ran ran = run_verify(kModel);
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_THAT(ran.text, testing::HasSubstr("grad.blocks.1.att.receptance.weight"));
  EXPECT_THAT(ran.text, testing::HasSubstr("71 tensors on cpu in f32: worst"));
  EXPECT_THAT(ran.text, testing::HasSubstr("all within"));
}

TEST(VerifyCommand, WritesJson) {
  const Ran ran = run_verify(kOp + "--target reference --json");
  EXPECT_EQ(ran.code, 0) << ran.text;
  const auto json = nlohmann::json::parse(ran.text);
  EXPECT_EQ(json.at("passed"), true);
  EXPECT_EQ(json.at("tensors").size(), 10u);
  for (const auto& tensor : json.at("tensors")) EXPECT_LE(tensor.at("error").get<double>(), 1e-9) << tensor.at("name");
}

TEST(VerifyCommand, PastTheToleranceIsOne) {
  const Ran ran = run_verify(kOp + "--tol 1e-12");
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.text, testing::HasSubstr("FAILS, worst"));
  EXPECT_THAT(ran.text, testing::HasSubstr("10 past the limit"));
}

TEST(VerifyCommand, MistakesAreSentences) {
  const Ran other = run_verify("tests/models/wkv7_op.yaml tests/golden/rwkv7.safetensors");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.text, testing::HasSubstr("holds no param.r, which the model needs (f32[2, 37, 2, 64])"));
  const Ran shape = run_verify(kOp + "time=36");
  EXPECT_EQ(shape.code, 1);
  EXPECT_THAT(shape.text, testing::HasSubstr("has shape [2, 37, 2, 64], the model's is [2, 36, 2, 64]"));
  const Ran target = run_verify(kOp + "--target cpy");
  EXPECT_EQ(target.code, 1);
  EXPECT_THAT(target.text, testing::HasSubstr("cpu"));
  for (const std::string tolerance : {"nan", "inf", "-1"}) {
    const Ran ran = run_verify(kOp + "--tol " + tolerance);
    EXPECT_EQ(ran.code, 1) << "nothing is past a tolerance of " << tolerance;
    EXPECT_THAT(ran.text, testing::HasSubstr("--tol: " + tolerance + "; it is a number from 0 up"));
  }
}

TEST(VerifyCommand, AFileWithoutResultsHasNothingToCompare) {
  const runtime::ScratchFolder folder;
  const runtime::Safetensors full(tests::source_file("tests/golden/wkv7_op.safetensors"));
  std::map<std::string, runtime::HostTensor> kept;
  for (const auto& [name, info] : full.tensors()) {
    if (name.starts_with("param.") || name.starts_with("in.")) kept[name] = full.read(name, ir::DType::f32);
  }
  runtime::write_safetensors(folder.path("bare.safetensors"), kept, {});
  const Ran ran = run_verify("tests/models/wkv7_op.yaml " + folder.path("bare.safetensors"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.text, testing::EndsWith("holds no out.NAME and no grad.NAME, so there is nothing to compare\n"));
}

}  // namespace
}  // namespace ingot::tools
