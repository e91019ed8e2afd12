// Graph in, calls out. Kernel names are shown without their hash; lines that say nothing about lowering are left out.
#include "codegen/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "ir/graph/text.h"
#include "tests/codegen/lowered.h"

namespace ingot::codegen {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Lower, OpOrderIsCallOrder) {
  EXPECT_EQ(lowered(R"(
    input %x: f32[4, 64]
    %a = exp(%x): f32[4, 64]
    %b = mul(%a, %x): f32[4, 64]
    output y = %b
  )"),
            R"(buffer %"p/x": f32[4, 64] input of p in io at 0 bytes 1024
buffer %"p/a": f32[4, 64] temp of p in work at 0 bytes 1024 live 0..1
buffer %"p/b": f32[4, 64] output of p in io at 1024 bytes 1024
input x = %"p/x"
output y = %"p/b"
launch "a" (read %"p/x", write %"p/a") kernel exp
launch "b" (read %"p/a", read %"p/x", write %"p/b") kernel mul
)");
}

TEST(Lower, ContiguousViewsCostNoCall) {
  EXPECT_EQ(lowered(R"(
    input %x: f32[4, 64]
    %e = exp(%x): f32[4, 64]
    %r = reshape(%e) {shape: [2, 128]}: f32[2, 128]
    %s = slice(%r) {starts: [1, 0], sizes: [1, 128]}: f32[1, 128]
    %y = log(%s): f32[1, 128]
    %z = log(%r): f32[2, 128]
    output y = %y
    output z = %z
  )"),
            R"(buffer %"p/x": f32[4, 64] input of p in io at 0 bytes 1024
buffer %"p/e": f32[4, 64] temp of p in work at 0 bytes 1024 live 0..2
buffer %"p/s": f32[1, 128] temp of p in work at 512 bytes 512 live 0..2 view of %"p/e"
buffer %"p/y": f32[1, 128] output of p in io at 1024 bytes 512
buffer %"p/r": f32[2, 128] temp of p in work at 0 bytes 1024 live 0..2 view of %"p/e"
buffer %"p/z": f32[2, 128] output of p in io at 1536 bytes 1024
input x = %"p/x"
output y = %"p/y"
output z = %"p/z"
launch "e" (read %"p/x", write %"p/e") kernel exp
launch "y" (read %"p/s", write %"p/y") kernel log
launch "z" (read %"p/r", write %"p/z") kernel log
)");
}

TEST(Lower, APartOfAPartIsAPart) {
  EXPECT_THAT(lowered(R"(
    input %x: f32[4, 64]
    %half = slice(%x) {starts: [2, 0], sizes: [2, 64]}: f32[2, 64]
    %quarter = slice(%half) {starts: [1, 0], sizes: [1, 64]}: f32[1, 64]
    %y = exp(%quarter): f32[1, 64]
    output y = %y
  )"),
              HasSubstr("buffer %\"p/quarter\": f32[1, 64] input of p in io at 768 bytes 256 view of %\"p/x\""));
}

TEST(Lower, AStridedViewIsALaunch) {
  EXPECT_THAT(lowered(R"(
    input %x: f32[4, 64]
    %t = transpose(%x) {perm: [1, 0]}: f32[64, 4]
    %s = slice(%x) {starts: [0, 3], sizes: [4, 2]}: f32[4, 2]
    output t = %t
    output s = %s
  )"),
              HasSubstr("launch \"t\" (read %\"p/x\", write %\"p/t\") kernel transpose\nlaunch \"s\" (read %\"p/x\", write "
                        "%\"p/s\") kernel slice"));
}

TEST(Lower, ConstantsAreFilledOnceAndShared) {
  EXPECT_EQ(lowered(R"(
    input %x: f32[4]
    %two = constant() {value: 2.0, dtype: f32}: f32[]
    %again = constant() {value: 2.0, dtype: f32}: f32[]
    %unread = constant() {value: 3.0, dtype: f32}: f32[]
    %zeros = broadcast(%two) {shape: [8]}: f32[8]
    %a = mul(%x, %two): f32[4]
    %b = add(%a, %again): f32[4]
    output y = %b
    output zeros = %zeros
    output two = %two
  )"),
            R"(buffer %"p/x": f32[4] input of p in io at 0 bytes 16
buffer %"p/zeros": f32[8] output of p in io at 256 bytes 32
buffer %"p/two": f32[] temp of p in work at 0 bytes 4 live 1..4
buffer %"p/a": f32[4] temp of p in work at 256 bytes 16 live 2..3
buffer %"p/b": f32[4] output of p in io at 512 bytes 16
buffer %"p/two#out": f32[] output of p in io at 768 bytes 4
input x = %"p/x"
output y = %"p/b"
output zeros = %"p/zeros"
output two = %"p/two#out"
fill "zeros" (write %"p/zeros") value 2.0
fill "two" (write %"p/two") value 2.0
launch "a" (read %"p/x", read %"p/two", write %"p/a") kernel mul
launch "b" (read %"p/a", read %"p/two", write %"p/b") kernel add
copy "two" (read %"p/two", write %"p/two#out")
)");
}

TEST(Lower, AWeightUnderABatchIsOneProduct) {
  EXPECT_THAT(
      lowered(R"(
    input %x: bf16[2, 8, 16]
    input %w: bf16[32, 16]
    %y = matmul(%x, %w) {ta: false, tb: true, dtype: f32}: f32[2, 8, 32]
    output y = %y
  )"),
      HasSubstr(
          "gemm \"y\" (read %\"p/x\", read %\"p/w\", write %\"p/y\") m 16 n 32 k 16 batch 1 ta false tb true ld [16, 16, 0, 32] "
          "strides [0, 0, 0, 0] alpha 1.0 beta 0.0"));
}

TEST(Lower, BatchesAreWalkedByStrides) {
  EXPECT_THAT(lowered(R"(
    input %x: f32[2, 3, 8, 16]
    input %w: f32[2, 3, 16, 4]
    %y = matmul(%x, %w) {ta: false, tb: false}: f32[2, 3, 8, 4]
    output y = %y
  )"),
              HasSubstr("m 8 n 4 k 16 batch 6 ta false tb false ld [16, 4, 0, 4] strides [128, 64, 0, 32]"));
}

TEST(Lower, ASharedOperandHasStrideZero) {
  EXPECT_THAT(lowered(R"(
    input %x: f32[16, 8]
    input %w: f32[5, 16, 4]
    %y = matmul(%x, %w) {ta: true, tb: false}: f32[5, 8, 4]
    output y = %y
  )"),
              HasSubstr("m 8 n 4 k 16 batch 5 ta true tb false ld [8, 4, 0, 4] strides [0, 64, 0, 32]"));
}

TEST(Lower, BroadcastsThatNoStrideWalksAreSeveralCalls) {
  EXPECT_EQ(lowered(R"(
    input %x: f32[2, 1, 3, 4]
    input %w: f32[5, 4, 2]
    %y = matmul(%x, %w) {ta: false, tb: false}: f32[2, 5, 3, 2]
    output y = %y
  )"),
            R"(buffer %"p/x": f32[2, 1, 3, 4] input of p in io at 0 bytes 96
buffer %"p/w": f32[5, 4, 2] input of p in io at 256 bytes 160
buffer %"p/x[0:12]": f32[12] input of p in io at 0 bytes 48 view of %"p/x"
buffer %"p/y": f32[2, 5, 3, 2] output of p in io at 512 bytes 240
buffer %"p/y[0:30]": f32[30] output of p in io at 512 bytes 120 view of %"p/y"
buffer %"p/x[12:24]": f32[12] input of p in io at 48 bytes 48 view of %"p/x"
buffer %"p/y[30:60]": f32[30] output of p in io at 632 bytes 120 view of %"p/y"
input x = %"p/x"
input w = %"p/w"
output y = %"p/y"
gemm "y" (read %"p/x[0:12]", read %"p/w", write %"p/y[0:30]") m 3 n 2 k 4 batch 5 ta false tb false ld [4, 2, 0, 2] strides [0, 8, 0, 6] alpha 1.0 beta 0.0 algorithm ""
gemm "y" (read %"p/x[12:24]", read %"p/w", write %"p/y[30:60]") m 3 n 2 k 4 batch 5 ta false tb false ld [4, 2, 0, 2] strides [0, 8, 0, 6] alpha 1.0 beta 0.0 algorithm ""
)");
}

TEST(Lower, ADeadResultIsAnAbsentArgument) {
  FakeTarget target;
  EXPECT_THAT(lowered(R"(
    input %r: f32[1, 16, 2, 16]
    input %s: f32[1, 2, 16, 16]
    %y, %last, %saved = wkv7(%r, %r, %r, %r, %r, %r, %s, none) {chunk: 16}: f32[1, 16, 2, 16], f32[1, 2, 16, 16], f32[1, 2, 1, 16, 16]
    output y = %y
  )",
                      target),
              HasSubstr("read %\"p/s\", read none, write %\"p/y\", write none, write none) kernel wkv7"));
}

TEST(Lower, WhatNothingDependsOnIsNotThere) {
  EXPECT_THAT(lowered(R"(
    input %x: f32[4]
    %a = exp(%x): f32[4]
    %b = log(%x): f32[4]
    output b = %b
  )"),
              Not(HasSubstr("exp")));
}

TEST(Lower, WorkspacesLiveForTheLaunchesOfTheirOp) {
  FakeTarget target;
  target.workspaces["exp"] = 300;
  EXPECT_EQ(lowered(R"(
    input %x: f32[4]
    %a = exp(%x): f32[4]
    %b = exp(%a): f32[4]
    output b = %b
  )",
                    target),
            R"(buffer %"p/x": f32[4] input of p in io at 0 bytes 16
buffer %"p/a#0": bool[300] workspace of p in work at 0 bytes 300 live 0..1
buffer %"p/a": f32[4] temp of p in work at 512 bytes 16 live 1..3
buffer %"p/b#0": bool[300] workspace of p in work at 0 bytes 300 live 2..3
buffer %"p/b": f32[4] output of p in io at 256 bytes 16
input x = %"p/x"
output b = %"p/b"
launch "a" (read %"p/x", write %"p/a#0") kernel exp
launch "a" (read %"p/x", write %"p/a", read %"p/a#0") kernel exp
launch "b" (read %"p/a", write %"p/b#0") kernel exp
launch "b" (read %"p/a", write %"p/b", read %"p/b#0") kernel exp
)");
}

// ---------------------------------------------------------------- packs

TEST(LowerPack, PartsAreWrittenWhereTheyBelong) {
  EXPECT_EQ(lowered(R"(
    input %x: f32[64]
    %a = exp(%x): f32[64]
    %b = log(%x): f32[64]
    %p = concat(%a, %x, %b) {axis: 0}: f32[192]
    %y = tanh(%p): f32[192]
    output y = %y
  )"),
            R"(buffer %"p/x": f32[64] input of p in io at 0 bytes 256
buffer %"p/p": f32[192] temp of p in work at 0 bytes 768 live 0..3
buffer %"p/a": f32[64] temp of p in work at 0 bytes 256 live 0..3 view of %"p/p"
buffer %"p/b": f32[64] temp of p in work at 512 bytes 256 live 0..3 view of %"p/p"
buffer %"p/p[1]": f32[64] temp of p in work at 256 bytes 256 live 0..3 view of %"p/p"
buffer %"p/y": f32[192] output of p in io at 256 bytes 768
input x = %"p/x"
output y = %"p/y"
launch "a" (read %"p/x", write %"p/a") kernel exp
launch "b" (read %"p/x", write %"p/b") kernel log
copy "p" (read %"p/x", write %"p/p[1]")
launch "y" (read %"p/p", write %"p/y") kernel tanh
)");
}

TEST(LowerPack, InAnotherPackToo) {
  EXPECT_EQ(lowered(R"(
    input %x: f32[1, 64]
    %a = exp(%x): f32[1, 64]
    %zero = constant() {value: 0.0, dtype: f32}: f32[]
    %none = broadcast(%zero) {shape: [1, 64]}: f32[1, 64]
    %p = concat(%a, %none) {axis: 1}: f32[1, 128]
    %b = log(%x): f32[1, 64]
    %q = concat(%b, %p, %b) {axis: 1}: f32[1, 256]
    %y = tanh(%q): f32[1, 256]
    output y = %y
  )"),
            R"(buffer %"p/x": f32[1, 64] input of p in io at 0 bytes 256
buffer %"p/q": f32[1, 256] temp of p in work at 0 bytes 1024 live 0..4
buffer %"p/a": f32[1, 64] temp of p in work at 256 bytes 256 live 0..4 view of %"p/q"
buffer %"p/p": f32[1, 128] temp of p in work at 256 bytes 512 live 0..4 view of %"p/q"
buffer %"p/p[1]": f32[1, 64] temp of p in work at 512 bytes 256 live 0..4 view of %"p/q"
buffer %"p/b": f32[1, 64] temp of p in work at 0 bytes 256 live 0..4 view of %"p/q"
buffer %"p/q[2]": f32[1, 64] temp of p in work at 768 bytes 256 live 0..4 view of %"p/q"
buffer %"p/y": f32[1, 256] output of p in io at 256 bytes 1024
input x = %"p/x"
output y = %"p/y"
launch "a" (read %"p/x", write %"p/a") kernel exp
fill "p" (write %"p/p[1]")
launch "b" (read %"p/x", write %"p/b") kernel log
copy "q" (read %"p/b", write %"p/q[2]")
launch "y" (read %"p/q", write %"p/y") kernel tanh
)");
}

TEST(LowerPack, WhatIsAnOutputOrStridedIsNot) {
  EXPECT_EQ(lowered(R"(
    input %x: f32[2, 64]
    %a = exp(%x): f32[2, 64]
    %b = log(%x): f32[2, 64]
    %p = concat(%a, %a) {axis: 0}: f32[4, 64]
    %q = concat(%b, %x) {axis: 1}: f32[2, 128]
    output a = %a
    output p = %p
    output q = %q
  )"),
            R"(buffer %"p/x": f32[2, 64] input of p in io at 0 bytes 512
buffer %"p/a": f32[2, 64] output of p in io at 512 bytes 512
buffer %"p/b": f32[2, 64] temp of p in work at 0 bytes 512 live 1..3
buffer %"p/p": f32[4, 64] output of p in io at 1024 bytes 1024
buffer %"p/q": f32[2, 128] output of p in io at 2048 bytes 1024
input x = %"p/x"
output a = %"p/a"
output p = %"p/p"
output q = %"p/q"
launch "a" (read %"p/x", write %"p/a") kernel exp
launch "b" (read %"p/x", write %"p/b") kernel log
launch "p" (read %"p/a", read %"p/a", write %"p/p") kernel concat
launch "q" (read %"p/b", read %"p/x", write %"p/q") kernel concat
)");
}

// ---------------------------------------------------------------- updates

constexpr const char* kW = "state %w: f32[4] = \"0\"\nstate %v: f32[4] = \"0\"\n";

std::string calls(const std::string& body, const std::string& variables = kW) {
  std::istringstream lines(lowered(body, {}, variables));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("buffer") && !line.starts_with("input") && !line.starts_with("output")) out += line + "\n";
  }
  return out;
}

TEST(LowerUpdate, IsWrittenInPlaceWhenTheOldValueIsRead) {
  EXPECT_EQ(calls(R"(
    input %x: f32[4]
    state %w: f32[4]
    %y = mul(%w, %x): f32[4]
    %n = exp(%y): f32[4]
    output y = %y
    update %w = %n
  )"),
            "launch \"y\" (read %w, read %\"p/x\", write %\"p/y\") kernel mul\n"
            "launch \"n\" (read %\"p/y\", write %w) kernel exp\n");
}

TEST(LowerUpdate, IsCopiedWhenTheMakerMayNotWriteOverTheOldValue) {
  EXPECT_EQ(calls(R"(
    state %w: f32[4]
    %n = cumsum(%w) {axis: 0}: f32[4]
    update %w = %n
  )"),
            "launch \"n\" (read %w, write %\"p/n\") kernel cumsum\n"
            "copy \"w\" (read %\"p/n\", write %w)\n");
}

TEST(LowerUpdate, AnElementwiseMakerWritesOverTheOldValue) {
  EXPECT_EQ(calls(R"(
    input %x: f32[4]
    state %w: f32[4]
    %n = add(%w, %x): f32[4]
    update %w = %n
  )"),
            "launch \"n\" (inout %w, read %\"p/x\", inout %w) kernel add\n");
}

TEST(LowerPack, ASumThatGoesOnInAPartStartsThere) {
  const std::string text = lowered(R"(
    input %a: f32[8, 64]
    input %b: f32[8, 64]
    %n = neg(%a): f32[8, 64]
    %s = matmul(%a, %b) {ta: true}: f32[64, 64]
    %t = matmul(%n, %b, %s) {ta: true}: f32[64, 64]
    %flat = reshape(%t) {shape: [4096]}: f32[4096]
    %e = exp(%flat): f32[4096]
    %p = concat(%e, %flat) {axis: 0}: f32[8192]
    %y = neg(%p): f32[8192]
    output y = %y
  )");
  EXPECT_THAT(text, HasSubstr("\"p/s\": f32[64, 64] temp of p in work at 16384 bytes 16384 live 1..4 view of %\"p/p\""));
  EXPECT_THAT(text, HasSubstr("inout %\"p/s\", inout %\"p/t\")"));
}

TEST(LowerUpdate, AGemmAddsToAnAccumulatorInPlace) {
  EXPECT_EQ(calls(R"(
    input %a: f32[2, 8]
    input %b: f32[8, 2]
    state %w: f32[4]
    %flat = reshape(%w) {shape: [2, 2]}: f32[2, 2]
    %n = matmul(%a, %b, %flat): f32[2, 2]
    %new = reshape(%n) {shape: [4]}: f32[4]
    update %w = %new
  )"),
            "gemm \"n\" (read %\"p/a\", read %\"p/b\", inout %\"p/flat\", inout %\"p/n\") m 2 n 2 k 8 batch 1 ta false tb false "
            "ld [8, 2, 2, 2] strides [0, 0, 0, 0] alpha 1.0 beta 1.0 algorithm \"\"\n");
}

TEST(LowerUpdate, IsCopiedWhenALaterOpReadsTheOldValue) {
  EXPECT_EQ(calls(R"(
    input %x: f32[4]
    state %w: f32[4]
    %n = exp(%x): f32[4]
    %flat = reshape(%w) {shape: [2, 2]}: f32[2, 2]
    %y = exp(%flat): f32[2, 2]
    output y = %y
    update %w = %n
  )"),
            "launch \"n\" (read %\"p/x\", write %\"p/n\") kernel exp\n"
            "launch \"y\" (read %\"p/flat\", write %\"p/y\") kernel exp\n"
            "copy \"w\" (read %\"p/n\", write %w)\n");
}

TEST(LowerUpdate, AnOutputOfTheOldValueIsCopiedBeforeItIsReplaced) {
  EXPECT_EQ(calls(R"(
    input %x: f32[4]
    state %w: f32[4]
    %n = exp(%x): f32[4]
    output before = %w
    output after = %n
    update %w = %n
  )"),
            "launch \"n\" (read %\"p/x\", write %\"p/n\") kernel exp\n"
            "copy \"before\" (read %w, write %\"p/before#out\")\n"
            "copy \"w\" (read %\"p/n\", write %w)\n");
}

TEST(LowerUpdate, ADebugTapOfTheNewValueChangesNothingElse) {
  const std::string body = R"(
    input %x: f32[4]
    state %w: f32[4]
    %n = exp(%x): f32[4]
    %y = log(%n): f32[4]
    output y = %y
    update %w = %n
  )";
  const std::string plain = calls(body);
  EXPECT_EQ(plain, "launch \"n\" (read %\"p/x\", write %w) kernel exp\nlaunch \"y\" (read %w, write %\"p/y\") kernel log\n");
  EXPECT_EQ(calls(body + "output tap = %n\n"), plain + "copy \"tap\" (read %w, write %\"p/tap#out\")\n");
}

TEST(LowerUpdate, ExchangedVariablesGoThroughATemp) {
  EXPECT_EQ(calls(R"(
    state %w: f32[4]
    state %v: f32[4]
    update %w = %v
    update %v = %w
  )"),
            "copy \"w\" (read %v, write %\"p/w#old\")\n"
            "copy \"v\" (read %w, write %\"p/v#old\")\n"
            "copy \"w\" (read %\"p/w#old\", write %w)\n"
            "copy \"v\" (read %\"p/v#old\", write %v)\n");
}

TEST(LowerUpdate, OneValueForTwoVariables) {
  EXPECT_EQ(calls(R"(
    input %x: f32[4]
    %n = exp(%x): f32[4]
    update %w = %n
    update %v = %n
  )"),
            "launch \"n\" (read %\"p/x\", write %w) kernel exp\n"
            "copy \"v\" (read %w, write %v)\n");
}

TEST(LowerUpdate, ToItselfIsNothing) { EXPECT_EQ(calls("state %w: f32[4]\nupdate %w = %w\n"), ""); }

TEST(LowerUpdate, AReshapedNewValueIsWrittenInPlace) {
  EXPECT_EQ(calls(R"(
    input %x: f32[2, 2]
    %n = exp(%x): f32[2, 2]
    %flat = reshape(%n) {shape: [4]}: f32[4]
    update %w = %flat
  )"),
            "launch \"n\" (read %\"p/x\", write %\"p/n\") kernel exp\n");
}

TEST(LowerUpdate, AConstantIsCopied) {
  EXPECT_EQ(calls("%c = constant() {value: 1.0, dtype: f32}: f32[]\nupdate %s = %c\n", "state %s: f32[] = \"0\"\n"),
            "fill \"c\" (write %\"p/c\") value 1.0\ncopy \"s\" (read %\"p/c\", write %s)\n");
}

// ---------------------------------------------------------------- variables side by side

constexpr const char* kPairs =
    "param %a: f32[64] = \"0\"\nparam %b: f32[40] = \"0\"\nstate %m: f32[64] = \"0\"\nstate %n: f32[40] = \"0\"\n"
    "state %v: f32[64] = \"0\"\nstate %w: f32[40] = \"0\"\n";
// Packs of both parameters, of gradients and of the moments, zeros after the second.
constexpr const char* kPacks = R"(
    input %x: f32[64]
    input %s: f32[]
    input %ok: bool[]
    param %a: f32[64]
    param %b: f32[40]
    state %m: f32[64]
    state %n: f32[40]
    state %v: f32[64]
    state %w: f32[40]
    %zero = constant() {value: 0.0, dtype: f32}: f32[]
    %pad = broadcast(%zero) {shape: [24]}: f32[24]
    %ga = exp(%x): f32[64]
    %gb = tanh(%b): f32[40]
    %p = concat(%a, %b, %pad) {axis: 0}: f32[128]
    %g = concat(%ga, %gb, %pad) {axis: 0}: f32[128]
    %mm = concat(%m, %n, %pad) {axis: 0}: f32[128]
    %vv = concat(%v, %w, %pad) {axis: 0}: f32[128]
)";
constexpr const char* kStep = R"(
    %q, %q.m, %q.v = adamw(%p, %g, %mm, %vv, %s, %s, %s, %s, %s, %s, %s, %s, %ok): f32[128], f32[128], f32[128]
)";
constexpr const char* kUpdates = R"(
    %a2 = slice(%q) {starts: [0], sizes: [64]}: f32[64]
    %b2 = slice(%q) {starts: [64], sizes: [40]}: f32[40]
    %m2 = slice(%q.m) {starts: [0], sizes: [64]}: f32[64]
    %n2 = slice(%q.m) {starts: [64], sizes: [40]}: f32[40]
    %v2 = slice(%q.v) {starts: [0], sizes: [64]}: f32[64]
    %w2 = slice(%q.v) {starts: [64], sizes: [40]}: f32[40]
    update %a = %a2
    update %b = %b2
    update %m = %m2
    update %n = %n2
    update %v = %v2
    update %w = %w2
)";

TEST(LowerSegment, OneStepUpdatesAllParametersInPlace) {
  EXPECT_THAT(calls(std::string(kPacks) + kStep + kUpdates, kPairs),
              testing::AllOf(Not(HasSubstr("copy")), HasSubstr("launch \"gb\" (read %b, write %\"p/gb\")"),
                             HasSubstr("fill \"g\" (write %\"p/g[2]\")"),
                             HasSubstr("launch \"q\" (inout %\"p/p\", read %\"p/g\", inout %\"p/mm\", inout %\"p/vv\"")));
  const std::string text =
      ir::print_plan(plan_of("module m\n" + std::string(kPairs) + "graph @p at core {\n" + kPacks + kStep + kUpdates + "}\n"));
  EXPECT_THAT(text, HasSubstr("buffer %a: f32[64] param in params at 0 bytes 256 view of %\"a+\""));
  EXPECT_THAT(text, HasSubstr("buffer %b: f32[40] param in params at 256 bytes 160 view of %\"a+\""));
  EXPECT_THAT(text, HasSubstr("buffer %w: f32[40] state in states at 768 bytes 160 view of %\"v+\""));
  EXPECT_THAT(text, HasSubstr("fill \"init/a+416\" (write %\"init/a+416\")")) << "zeros stand after the second parameter";
}

TEST(LowerSegment, AReaderAfterTheStepNeedsTheOldValue) {
  const std::string later = "%z = exp(%b): f32[40]\noutput z = %z\n";
  EXPECT_THAT(calls(std::string(kPacks) + kStep + later + kUpdates, kPairs),
              testing::AllOf(HasSubstr("copy \"a\""), HasSubstr("copy \"b\""), Not(HasSubstr("copy \"m\""))));
}

// What is not zero between parameters would be read as zeros by the next step.
TEST(LowerSegment, WhatDoesNotKeepZerosIsNotInPlace) {
  const std::string step =
      "%one = constant() {value: 1.0, dtype: f32}: f32[]\n%q = add(%p, %one): f32[128]\n"
      "%q.m = mul(%mm, %g): f32[128]\n%q.v = cast(%vv) {dtype: f32}: f32[128]\n";
  EXPECT_THAT(
      calls(std::string(kPacks) + step + kUpdates, kPairs),
      testing::AllOf(HasSubstr("copy \"a\""), HasSubstr("copy \"b\""), HasSubstr("copy \"m\""), Not(HasSubstr("copy \"v\""))));
}

// The second order of the same variables is a copy.
TEST(LowerSegment, OneOrderIsServed) {
  const std::string other = "%other = concat(%b, %pad, %a) {axis: 0}: f32[128]\n%z = exp(%other): f32[128]\noutput z = %z\n";
  EXPECT_THAT(calls(std::string(kPacks) + other + kStep + kUpdates, kPairs),
              testing::AllOf(HasSubstr("launch \"other\" (read %b, read %\"p/pad\", read %a"), Not(HasSubstr("copy"))));
}

// ---------------------------------------------------------------- declared aliases (adamw: param, m and v over themselves)

constexpr const char* kScalars = R"(
    input %s: f32[]
    input %ok: bool[]
)";
constexpr const char* kRest = "%s, %s, %s, %s, %s, %s, %s, %s, %ok): f32[4], f32[4], f32[4]\n";

TEST(LowerAlias, AnOptimizerStepIsInPlace) {
  EXPECT_EQ(calls(std::string(kScalars) + R"(
    input %g: f32[4]
    param %p: f32[4]
    state %m: f32[4]
    state %v: f32[4]
    %p2, %m2, %v2 = adamw(%p, %g, %m, %v, )" +
                      kRest + R"(
    update %p = %p2
    update %m = %m2
    update %v = %v2
  )",
                  "param %p: f32[4] = \"0\"\nstate %m: f32[4] = \"0\"\nstate %v: f32[4] = \"0\"\n"),
            "launch \"p2\" (inout %p, read %\"p/g\", inout %m, inout %v, read %\"p/s\", read %\"p/s\", read %\"p/s\", read "
            "%\"p/s\", read %\"p/s\", read "
            "%\"p/s\", read %\"p/s\", read %\"p/s\", read %\"p/ok\", inout %p, inout %m, inout %v) kernel adamw\n");
}

TEST(LowerAlias, AnOperandThatIsAlsoAnotherIsKept) {
  EXPECT_THAT(
      calls(std::string(kScalars) + R"(
    param %p: f32[4]
    state %m: f32[4]
    state %v: f32[4]
    %p2, %m2, %v2 = adamw(%p, %p, %m, %v, )" +
                kRest + R"(
    update %p = %p2
    update %m = %m2
    update %v = %v2
  )",
            "param %p: f32[4] = \"0\"\nstate %m: f32[4] = \"0\"\nstate %v: f32[4] = \"0\"\n"),
      testing::AllOf(HasSubstr("(read %p, read %p, inout %m, inout %v,"), HasSubstr("write %\"p/p2\", inout %m, inout %v)"),
                     HasSubstr("copy \"p\" (read %\"p/p2\", write %p)")));
}

TEST(LowerAlias, TempsTakeOverADyingOperand) {
  const std::string head = std::string(kScalars) + R"(
    input %x: f32[4]
    %p = exp(%x): f32[4]
    %m = log(%x): f32[4]
    %v = neg(%x): f32[4]
    %p2, %m2, %v2 = adamw(%p, %x, %m, %v, )" +
                           kRest;
  EXPECT_THAT(lowered(head + "%y = add(%p2, %m): f32[4]\n%z = add(%y, %v2): f32[4]\noutput z = %z\n"),
              testing::AllOf(HasSubstr("(inout %\"p/p\", read %\"p/x\", read %\"p/m\", inout %\"p/v\","),
                             HasSubstr("inout %\"p/p\", write none, inout %\"p/v\")"),
                             HasSubstr("launch \"y\" (read %\"p/p\", read %\"p/m\", write %\"p/y\")")));
}

constexpr const char* kRegion = R"(%m) {kind: "row", rows: 4} (%a: f32[4, 8], %b: f32[4, 8]) {
      %0 = mul(%a, %b): f32[4, 8]
      %1 = sum(%0) {axes: [1], keep: true}: f32[4, 1]
      %2 = sub(%0, %1): f32[4, 8]
      yield %2
    }: f32[4, 8]
)";

TEST(LowerAlias, ARegionTakesOverADyingOperand) {
  const std::string head = "input %x: f32[4, 8]\n%p = exp(%x): f32[4, 8]\n%m = log(%x): f32[4, 8]\n%r = fuse(%p, ";
  EXPECT_THAT(lowered(head + kRegion + "%y = add(%r, %m): f32[4, 8]\noutput y = %y\n"),
              testing::AllOf(HasSubstr("launch \"r\" (inout %\"p/p\", read %\"p/m\", inout %\"p/p\")"),
                             HasSubstr("launch \"y\" (read %\"p/p\", read %\"p/m\",")));
  EXPECT_THAT(lowered(head + kRegion + "%y = add(%r, %m): f32[4, 8]\n%z = add(%y, %p): f32[4, 8]\noutput z = %z\n"),
              HasSubstr("launch \"r\" (read %\"p/p\", read %\"p/m\", write %\"p/r\")"))
      << "the operand is read again";
}

TEST(LowerAlias, ARegionRenewsAVariable) {
  EXPECT_EQ(calls(std::string("input %x: f32[4, 8]\nstate %m: f32[4, 8]\n%r = fuse(%x, ") + kRegion + "update %m = %r\n",
                  "state %m: f32[4, 8] = \"0\"\n"),
            "launch \"r\" (read %\"p/x\", inout %m, inout %m) kernel fuse\n");
}

// ---------------------------------------------------------------- whole plans

constexpr const char* kModule = R"text(module m
param %w: f32[64] = "normal(1)"
compute %w.bf16: bf16[64] = "0"
hyper %lr: f32[] = "0.1"
graph @prepare at core {
  param %w: f32[64]
  %c = cast(%w) {dtype: bf16}: bf16[64]
  update %w.bf16 = %c
}
graph @train at core {
  input %x: f32[64]
  param %w: f32[64]
  hyper %lr: f32[]
  %a = mul(%x, %w): f32[64]
  %b = exp(%a): f32[64]
  %c = mul(%b, %lr): f32[64]
  %loss = sum(%c) {axes: [0], keep: false}: f32[]
  output loss = %loss
}
graph @eval at core {
  input %x: f32[64]
  compute %w.bf16: bf16[64]
  %a = mul(%x, %w.bf16): f32[64]
  %loss = sum(%a) {axes: [0], keep: false}: f32[]
  output loss = %loss
}
)text";

TEST(Assemble, InitSetsAllButComputeCopiesWhichPrepareMakes) {
  const std::string text = ir::print_plan(plan_of(kModule));
  EXPECT_THAT(text, HasSubstr("program init {\n  init \"w\" (write %w) from \"normal(1)\""));
  EXPECT_THAT(text, HasSubstr("  init \"lr\" (write %lr) from \"0.1\""));
  EXPECT_THAT(text, Not(HasSubstr("init \"w.bf16\"")));
  EXPECT_THAT(text, HasSubstr("program prepare {\n  launch \"c\" (read %w, write %w.bf16)"));
}

TEST(Assemble, ProgramsShareTheWorkArena) {
  const ir::Plan plan = plan_of(kModule);
  EXPECT_EQ(plan.arenas.back().name, "work");
  EXPECT_EQ(plan.arenas.back().bytes, 512) << "the larger of the two, not the sum";
  CompileOptions options;
  options.reuse_memory = false;
  EXPECT_EQ(plan_of(kModule, {}, options).arenas.back().bytes, 768) << "three temps of their own";
}

TEST(Assemble, EqualTextsShareAKernel) {
  const ir::Plan plan = plan_of(kModule);
  EXPECT_EQ(plan.kernels.size(), 4u) << "cast, mul, exp, sum";
  EXPECT_EQ(plan.programs[2].calls[0].kernel, plan.programs[2].calls[2].kernel);
  EXPECT_EQ(plan.kernels[1].args, 3);
}

TEST(Assemble, CountsFlopsAndBytes) {
  const ir::Plan plan = plan_of(kModule);
  EXPECT_EQ(plan.programs[2].calls[0].flops, 64);
  EXPECT_EQ(plan.programs[2].calls[0].bytes, 3 * 256);
  EXPECT_EQ(plan.programs[2].calls[3].bytes, 256 + 4);
}

TEST(Assemble, TheSameModuleGivesTheSameText) { EXPECT_EQ(ir::print_plan(plan_of(kModule)), ir::print_plan(plan_of(kModule))); }

TEST(Assemble, SaysWhatTheTargetRefusesAndWhere) {
  FakeTarget target;
  target.refused = "exp";
  try {
    (void)plan_of(kModule, target);
    FAIL();
  } catch (const ir::UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("exp: not today"));
  }
}

TEST(Assemble, RefusesGraphsAboveCore) {
  const ir::Module module = ir::parse_module("module m\ngraph @p at model {\ninput %x: f32[2]\noutput y = %x\n}\n");
  EXPECT_THROW(assemble(module, {{"p", module.graphs[0]}}, FakeTarget{}), ir::InternalError);
}

}  // namespace
}  // namespace ingot::codegen
