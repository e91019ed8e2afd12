#include "ir/base/text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "ir/plan/plan.h"
#include "tests/plan/sample.h"

namespace ingot::ir {
namespace {

using testing::HasSubstr;

constexpr const char* kSample = R"text(ingot plan 3
name "sample"
target "cpu"
features "avx2 fma"
info "width" = "4"
info "precision" = "f32"
ignore "*.running_mean"
range tokens 0..100 or [-100] loc("model.yaml":2:1)
arena params 512
arena states 256
arena io 1024
arena work 1024
buffer %w: f32[4, 4] param in params at 0 bytes 64 loc("model.yaml":3:7)
buffer %w.bf16: bf16[4, 4] compute in params at 256 bytes 32 loc("model.yaml":3:7)
buffer %step: i32[] state in states at 0 bytes 4 loc("model.yaml":3:7)
buffer %"train/x": f32[4, 4] input of train in io at 0 bytes 64
buffer %"train/y": f32[4, 4] output of train in io at 256 bytes 64
buffer %"train/loss": f32[] output of train in io at 512 bytes 4
buffer %"train/h": f32[4, 4] temp of train in work at 0 bytes 64 live 0..2
buffer %"train/h.flat": f32[16] temp of train in work at 0 bytes 64 live 0..2 view of %"train/h"
buffer %"train/h.row": f32[4] temp of train in work at 16 bytes 16 live 0..2 view of %"train/h"
buffer %"train/g": f32[4, 4] temp of train in work at 256 bytes 64 live 1..3
buffer %"train/norm#0": bool[100] workspace of train in work at 512 bytes 100 live 2..2
kernel mul_1 symbol "mul_1" image "image.so" source "kernels/all.cpp" args 3 sizes 1 threads 0 shared 0 registers 0 spills 0
kernel cast_2 symbol "cast_2" image "image.so" source "kernels/all.cpp" args 2 sizes 1 threads 0 shared 0 registers 0 spills 0
kernel norm_3 symbol "norm_3" image "image.so" source "kernels/all.cpp" args 3 sizes 2 threads 0 shared 0 registers 0 spills 0
param %w: f32[4, 4] = "normal(0.02)" at %w lr 2.0 loc("model.yaml":3:7)
compute %w.bf16: bf16[4, 4] = "0" at %w.bf16 loc("model.yaml":3:7)
state %step: i32[] = "0" at %step loc("model.yaml":3:7)
file "image.so" bytes 12 hash "HASH0"
file "kernels/all.cpp" bytes 14 hash "HASH1"
file "model.yaml" bytes 9 hash "HASH2"
program init {
  init "w" (write %w) from "normal(0.02)"
  init "step" (write %step) from "0"
}
program prepare {
  launch "w.bf16" (read %w, write %w.bf16) kernel cast_2 sizes [16]
}
program train {
  input x = %"train/x"
  output y = %"train/y"
  output loss = %"train/loss"
  launch "h" (read %"train/x", read %w, write %"train/h") kernel mul_1 sizes [16] tasks 2 flops 16.0 bytes 192.0 loc("model.yaml":9:3, "gradient")
  gemm "g" (read %"train/h.flat", read %w, write %"train/g") m 4 n 4 k 4 batch 1 ta false tb true ld [4, 4, 4, 4] strides [0, 0, 0, 0] alpha 1.0 beta 0.0 algorithm ""
  launch "loss" (read %"train/h.row", write %"train/loss", inout %"train/norm#0") kernel norm_3 sizes [4, 1]
  copy "y" (read %"train/g", write %"train/y")
  fill "step" (write %step) value 1.0
}
)text";

std::string expected_sample() {
  std::string text = kSample;
  const char* contents[] = {"machine code", "void mul() {}\n", "width: 4\n"};
  for (int i = 0; i < 3; ++i) {
    const std::string mark = "HASH" + std::to_string(i);
    text.replace(text.find(mark), mark.size(), fmt::format("{:016x}", hash64(contents[i])));
  }
  return text;
}

std::string error_of(const std::string& text) {
  try {
    parse_plan(text);
  } catch (const UserError& error) {
    const Diagnostic& d = error.diagnostics().front();
    return d.loc.text() + ": " + d.message;
  }
  return "no error";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = expected_sample();
  text.replace(text.find(from), from.size(), to);
  return text;
}

// Files' contents stand outside the text: what is compared knows only their names.
void expect_same_but_contents(Plan a, Plan b) {
  for (auto* plan : {&a, &b}) {
    for (auto& [name, contents] : plan->files) contents.clear();
  }
  EXPECT_TRUE(same(a, b));
}

TEST(PlanText, PrintsEveryPart) { EXPECT_EQ(print_plan(sample_plan()), expected_sample()); }

TEST(PlanText, ParsesBackFieldByField) {
  const Plan plan = sample_plan();
  const Plan back = parse_plan(print_plan(plan));
  expect_same_but_contents(plan, back);
  EXPECT_EQ(back.listed.at("image.so"), (FileEntry{12, hash64("machine code")}));
}

TEST(PlanText, PrintsAPlanParsedFromTextAloneAsItWas) { EXPECT_EQ(print_plan(parse_plan(expected_sample())), expected_sample()); }

TEST(PlanText, RandomPlansRoundTrip) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Plan plan = random_plan(seed);
    const std::string text = print_plan(plan);
    const Plan back = parse_plan(text);
    expect_same_but_contents(plan, back);
    ASSERT_EQ(print_plan(back), text) << "seed " << seed;
  }
}

TEST(PlanText, RefusesWhatIsNoPlan) {
  EXPECT_EQ(error_of(""), "plan.txt:1:1: not a plan: the text does not begin with 'ingot plan'");
  EXPECT_THAT(error_of("PK\x03\x04"), HasSubstr("not a plan"));
  EXPECT_THAT(error_of("module rwkv7"), HasSubstr("not a plan"));
  EXPECT_EQ(error_of("ingot plan 7\nname"), "plan.txt:1:1: plan format 7; this program reads format 3: compile the model again");
  // Kernels had neither threads nor shared bytes.
  EXPECT_EQ(
      error_of("ingot plan 1\nname \"m\" target \"cpu\" features \"\"\nkernel k symbol \"k\" image \"i\" source \"s\" args 1 "
               "sizes 0 registers 0 spills 0\n"),
      "plan.txt:1:1: plan format 1; this program reads format 3: compile the model again");
}

TEST(PlanText, LocatesMistakes) {
  EXPECT_THAT(error_of(with("arena io", "arean io")),
              HasSubstr("plan.txt:11:1: no line of a plan begins with 'arean'; did you mean 'arena'?"));
  EXPECT_THAT(error_of(with("temp of train", "tmp of train")), HasSubstr("a role cannot be 'tmp'; did you mean 'temp'?"));
  EXPECT_THAT(error_of(with("f32[4, 4] temp", "f23[4, 4] temp")), HasSubstr("no dtype named 'f23'; did you mean 'f32'?"));
  EXPECT_THAT(error_of(with("view of %\"train/h\"", "view of %\"train/q\"")), HasSubstr("no buffer named %\"train/q\""));
  EXPECT_THAT(error_of(with("temp of train", "temp of trian")), HasSubstr("no program named 'trian'"));
  EXPECT_THAT(error_of(with("in work", "in wrok")), HasSubstr("no arena named 'wrok'"));
  EXPECT_THAT(error_of(with("%\"train/y\": f32", "%\"train/x\": f32")), HasSubstr("a second buffer named %\"train/x\""));
  EXPECT_THAT(error_of(with("  fill", "  fil")), HasSubstr("did you mean 'fill'?"));
  EXPECT_THAT(error_of(with("ld [4, 4, 4, 4]", "ld [4, 4, 4]")), HasSubstr("ld takes 4 integers, 3 given"));
  EXPECT_THAT(error_of(with("live 0..2", "live 0..99999999999")), HasSubstr("does not fit 32 bits"));
  EXPECT_THAT(error_of(with("file \"model.yaml\"", "file \"image.so\"")), HasSubstr("a second file of this name"));
}

// Any prefix is refused or, when it ends between two lines before the first program, is a plan with less in it: never a crash.
TEST(PlanText, EveryPrefixIsHandled) {
  const std::string text = expected_sample();
  for (size_t size = 0; size < text.size(); ++size) {
    try {
      (void)print_plan(parse_plan(text.substr(0, size)));
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace ingot::ir
