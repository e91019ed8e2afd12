// Products that stand side by side: which of them one call makes, over which bytes. As text, like lower_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/codegen/lowered.h"

namespace ingot::codegen {
namespace {

/// Calls of the body that are products, without what all of them have in common.
std::string products(const std::string& body, const std::string& variables = "") {
  static const std::regex common(" ta .*strides| alpha 1.0| algorithm \"\"");
  std::istringstream all(lowered(body, {}, variables));
  std::string out;
  for (std::string line; std::getline(all, line);) {
    if (line.starts_with("gemm")) out += std::regex_replace(line, common, "") + "\n";
  }
  return out;
}

constexpr const char* kWeights = "param %w: f32[8, 8] = \"0\"\nparam %v: f32[8, 8] = \"0\"\nparam %u: f32[8, 8] = \"0\"\n";
/// Three weights, read as one as well.
const std::string kRead = R"(
    input %x: f32[8, 8]
    param %w: f32[8, 8]
    param %v: f32[8, 8]
    param %u: f32[8, 8]
    %all = concat(%w, %v, %u) {axis: 0}: f32[24, 8]
    %norm = sum(%all) {axes: [0, 1]}: f32[]
    output norm = %norm
)";

/// products() of a body that reads the input and the three weights.
std::string read_together(const std::string& body) { return products(kRead + body, kWeights); }

// In the order of the weights, which lie where a concat has them.
TEST(Siblings, TempsAreBroughtEndToEnd) {
  EXPECT_EQ(lowered(R"(
    input %x: bf16[8, 16]
    param %w: bf16[16, 8]
    param %v: bf16[16, 8]
    %both = concat(%w, %v) {axis: 0}: bf16[32, 8]
    %norm = sum(%both) {axes: [0, 1]}: bf16[]
    %a = exp(%x): bf16[8, 16]
    %b = neg(%x): bf16[8, 16]
    %p = matmul(%b, %v) {siblings: 2}: bf16[8, 8]
    %q = matmul(%a, %w) {siblings: 2}: bf16[8, 8]
    %y = sub(%p, %q): bf16[8, 8]
    output y = %y
    output norm = %norm
  )",
                    {}, "param %w: bf16[16, 8] = \"0\"\nparam %v: bf16[16, 8] = \"0\"\n"),
            R"(buffer %"p/x": bf16[8, 16] input of p in io at 0 bytes 256
buffer %"p/both": bf16[32, 8] param in params at 0 bytes 512 view of %"w+"
buffer %"p/norm": bf16[] output of p in io at 256 bytes 2
buffer %"p/a+": bf16[256] temp of p in work at 0 bytes 512 live 1..3
buffer %"p/a": bf16[8, 16] temp of p in work at 0 bytes 256 live 1..3 view of %"p/a+"
buffer %"p/b": bf16[8, 16] temp of p in work at 256 bytes 256 live 1..3 view of %"p/a+"
buffer %"p/a..b": bf16[256] temp of p in work at 0 bytes 512 live 1..3 view of %"p/a+"
buffer %"p/w..v": bf16[256] param in params at 0 bytes 512 view of %"w+"
buffer %"p/q+": bf16[128] temp of p in work at 512 bytes 256 live 3..4
buffer %"p/q": bf16[8, 8] temp of p in work at 512 bytes 128 live 3..4 view of %"p/q+"
buffer %"p/q..p": bf16[128] temp of p in work at 512 bytes 256 live 3..4 view of %"p/q+"
buffer %"p/p": bf16[8, 8] temp of p in work at 640 bytes 128 live 3..4 view of %"p/q+"
buffer %"p/y": bf16[8, 8] output of p in io at 512 bytes 128
input x = %"p/x"
output y = %"p/y"
output norm = %"p/norm"
launch "norm" (read %"p/both", write %"p/norm") kernel sum
launch "a" (read %"p/x", write %"p/a") kernel exp
launch "b" (read %"p/x", write %"p/b") kernel neg
gemm "q+1" (read %"p/a..b", read %"p/w..v", write %"p/q..p") m 8 n 8 k 16 batch 2 ta false tb false ld [16, 8, 0, 8] strides [128, 128, 0, 64] alpha 1.0 beta 0.0 algorithm ""
launch "y" (read %"p/p", read %"p/q", write %"p/y") kernel sub
)");
}

// Two inputs have places of their own; so have outputs.
TEST(Siblings, WhatLiesElsewhereStaysApart) {
  EXPECT_EQ(read_together(R"(
    input %z: f32[8, 8]
    %p = matmul(%x, %w) {siblings: 2}: f32[8, 8]
    %q = matmul(%z, %v) {siblings: 2}: f32[8, 8]
    %y = sub(%p, %q): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p" (read %"p/x", read %w, write %"p/p") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
gemm "q" (read %"p/z", read %v, write %"p/q") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
)");
  EXPECT_EQ(read_together(R"(
    %p = matmul(%x, %w) {siblings: 2}: f32[8, 8]
    %q = matmul(%x, %v) {siblings: 2}: f32[8, 8]
    output p = %p
    output q = %q
  )"),
            R"(gemm "p" (read %"p/x", read %w, write %"p/p") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
gemm "q" (read %"p/x", read %v, write %"p/q") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
)");
}

TEST(Siblings, ASharedOperandHasStrideZero) {
  EXPECT_EQ(read_together(R"(
    %p = matmul(%x, %w) {siblings: 3}: f32[8, 8]
    %q = matmul(%x, %v) {siblings: 3}: f32[8, 8]
    %r = matmul(%x, %u) {siblings: 3}: f32[8, 8]
    %s = sub(%p, %q): f32[8, 8]
    %y = sub(%s, %r): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p+2" (read %"p/x", read %"p/w..u", write %"p/p..r") m 8 n 8 k 8 batch 3 [0, 64, 0, 64] beta 0.0
)");
}

// Between variables others may lie that no product reads.
TEST(Siblings, WeightsMayLieApart) {
  EXPECT_EQ(read_together(R"(
    %p = matmul(%x, %w) {siblings: 2}: f32[8, 8]
    %q = matmul(%x, %u) {siblings: 2}: f32[8, 8]
    %y = sub(%p, %q): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p+1" (read %"p/x", read %"p/w..u", write %"p/p..q") m 8 n 8 k 8 batch 2 [0, 128, 0, 64] beta 0.0
)");
}

// Said by hand to be siblings, and are none: the second reads what the first makes; there are too few; they differ.
TEST(Siblings, ThoseThatAreNoneStayApart) {
  EXPECT_EQ(read_together(R"(
    %p = matmul(%x, %w) {siblings: 2}: f32[8, 8]
    %q = matmul(%p, %v) {siblings: 2}: f32[8, 8]
    %y = exp(%q): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p" (read %"p/x", read %w, write %"p/p") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
gemm "q" (read %"p/p", read %v, write %"p/q") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
)");
  EXPECT_EQ(read_together(R"(
    %p = matmul(%x, %w) {siblings: 3}: f32[8, 8]
    %q = matmul(%x, %v) {siblings: 3}: f32[8, 8]
    %y = sub(%p, %q): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p" (read %"p/x", read %w, write %"p/p") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
gemm "q" (read %"p/x", read %v, write %"p/q") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
)");
  EXPECT_EQ(read_together(R"(
    %p = matmul(%x, %w) {siblings: 2}: f32[8, 8]
    %q = matmul(%x, %v) {siblings: 2, tb: true}: f32[8, 8]
    %y = sub(%p, %q): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p" (read %"p/x", read %w, write %"p/p") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
gemm "q" (read %"p/x", read %v, write %"p/q") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
)");
}

// Batches of matrices, with weights or without: their rows are those of one matrix, or they are no single products.
TEST(Siblings, RowsOfAllBatchesAreOneMatrix) {
  EXPECT_EQ(read_together(R"(
    input %rows: f32[2, 4, 8]
    %p = matmul(%rows, %w) {siblings: 2}: f32[2, 4, 8]
    %q = matmul(%rows, %v) {siblings: 2}: f32[2, 4, 8]
    %y = sub(%p, %q): f32[2, 4, 8]
    %r = matmul(%rows, %rows) {siblings: 2, tb: true}: f32[2, 4, 4]
    %s = matmul(%rows, %y) {siblings: 2, tb: true}: f32[2, 4, 4]
    %z = sub(%r, %s): f32[2, 4, 4]
    output z = %z
  )"),
            R"(gemm "p+1" (read %"p/rows", read %"p/w..v", write %"p/p..q") m 8 n 8 k 8 batch 2 [0, 64, 0, 64] beta 0.0
gemm "r" (read %"p/rows", read %"p/rows", write %"p/r") m 4 n 4 k 8 batch 2 [32, 32, 0, 16] beta 0.0
gemm "s" (read %"p/rows", read %"p/y", write %"p/s") m 4 n 4 k 8 batch 2 [32, 32, 0, 16] beta 0.0
)");
}

// All but the one whose operand is an input.
TEST(Siblings, OneThatFitsNowhereIsLeftOut) {
  EXPECT_EQ(read_together(R"(
    %a = exp(%x): f32[8, 8]
    %b = neg(%x): f32[8, 8]
    %p = matmul(%a, %w) {siblings: 3}: f32[8, 8]
    %q = matmul(%x, %v) {siblings: 3}: f32[8, 8]
    %r = matmul(%b, %u) {siblings: 3}: f32[8, 8]
    %s = sub(%p, %q): f32[8, 8]
    %y = sub(%s, %r): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p+1" (read %"p/a..b", read %"p/w..u", write %"p/p..r") m 8 n 8 k 8 batch 2 [64, 128, 0, 64] beta 0.0
gemm "q" (read %"p/x", read %v, write %"p/q") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
)");
}

// Sums go on where they are: in temps, and in variables that lie side by side.
TEST(Siblings, AddInPlace) {
  EXPECT_EQ(
      read_together(R"(
    %a = exp(%x): f32[8, 8]
    %b = neg(%x): f32[8, 8]
    %p = matmul(%x, %w, %a) {siblings: 2}: f32[8, 8]
    %q = matmul(%x, %v, %b) {siblings: 2}: f32[8, 8]
    %y = sub(%p, %q): f32[8, 8]
    output y = %y
  )"),
      R"(gemm "p+1" (read %"p/x", read %"p/w..v", inout %"p/a..b", inout %"p/p..q") m 8 n 8 k 8 batch 2 [0, 64, 64, 64] beta 1.0
)");
  EXPECT_EQ(
      read_together(R"(
    %a = exp(%x): f32[8, 8]
    %b = neg(%x): f32[8, 8]
    %p = matmul(%a, %x, %u) {siblings: 2, ta: true}: f32[8, 8]
    %q = matmul(%b, %x, %v) {siblings: 2, ta: true}: f32[8, 8]
    update %u = %p
    update %v = %q
  )"),
      R"(gemm "q+1" (read %"p/b..a", read %"p/x", inout %"p/v..u", inout %"p/q..p") m 8 n 8 k 8 batch 2 [64, 0, 64, 64] beta 1.0
)");
}

// A sum written over what another product reads is made after it.
TEST(Siblings, NoneWritesWhatAnotherReads) {
  EXPECT_EQ(read_together(R"(
    %a = exp(%x): f32[8, 8]
    %b = neg(%x): f32[8, 8]
    %c = tanh(%x): f32[8, 8]
    %p = matmul(%b, %w, %c) {siblings: 2}: f32[8, 8]
    %q = matmul(%a, %v, %b) {siblings: 2}: f32[8, 8]
    %y = sub(%p, %q): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p" (read %"p/b", read %w, inout %"p/c", inout %"p/c") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 1.0
gemm "q" (read %"p/a", read %v, inout %"p/b", inout %"p/b") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 1.0
)");
}

// What is added to each result stands where that stood, so the next products find it at equal strides.
TEST(Siblings, InPlaceGoesOnSideBySide) {
  EXPECT_EQ(read_together(R"(
    %p = matmul(%x, %w) {siblings: 2}: f32[8, 8]
    %q = matmul(%x, %v) {siblings: 2}: f32[8, 8]
    %a = matmul(%x, %u, %q): f32[8, 8]
    %b = matmul(%u, %x, %p): f32[8, 8]
    %s = matmul(%b, %w) {siblings: 2}: f32[8, 8]
    %t = matmul(%a, %v) {siblings: 2}: f32[8, 8]
    %y = sub(%s, %t): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p+1" (read %"p/x", read %"p/w..v", write %"p/p..q") m 8 n 8 k 8 batch 2 [0, 64, 0, 64] beta 0.0
gemm "a" (read %"p/x", read %u, inout %"p/q", inout %"p/q") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 1.0
gemm "b" (read %u, read %"p/x", inout %"p/p", inout %"p/p") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 1.0
gemm "s+1" (read %"p/b..a", read %"p/w..v", write %"p/s..t") m 8 n 8 k 8 batch 2 [64, 64, 0, 64] beta 0.0
)");
}

// %a may be written over %p, which lies beside %q; but it is wanted beside %c, so it has bytes of its own.
TEST(Siblings, AResultInPlaceIsSetApartWhereItIsWantedElsewhere) {
  EXPECT_EQ(read_together(R"(
    %p = matmul(%x, %w) {siblings: 2}: f32[8, 8]
    %q = matmul(%x, %v) {siblings: 2}: f32[8, 8]
    %a = matmul(%x, %u, %p): f32[8, 8]
    %c = exp(%q): f32[8, 8]
    %s = matmul(%a, %w) {siblings: 2}: f32[8, 8]
    %t = matmul(%c, %v) {siblings: 2}: f32[8, 8]
    %y = sub(%s, %t): f32[8, 8]
    output y = %y
  )"),
            R"(gemm "p+1" (read %"p/x", read %"p/w..v", write %"p/p..q") m 8 n 8 k 8 batch 2 [0, 64, 0, 64] beta 0.0
gemm "a" (read %"p/x", read %u, read %"p/p", write %"p/a") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 1.0
gemm "s+1" (read %"p/a..c", read %"p/w..v", write %"p/s..t") m 8 n 8 k 8 batch 2 [64, 64, 0, 64] beta 0.0
)");
}

// Gradients that are parts of one value.
TEST(Siblings, PartsOfOneValueLieAsItHasThem) {
  EXPECT_EQ(read_together(R"(
    %a = exp(%x): f32[8, 8]
    %b = neg(%x): f32[8, 8]
    %c = tanh(%x): f32[8, 8]
    %p = matmul(%a, %x) {siblings: 2, ta: true}: f32[8, 8]
    %q = matmul(%b, %x) {siblings: 2, ta: true}: f32[8, 8]
    %grads = concat(%q, %p, %c) {axis: 0}: f32[24, 8]
    %y = exp(%grads): f32[24, 8]
    output y = %y
  )"),
            R"(gemm "q+1" (read %"p/b..a", read %"p/x", write %"p/q..p") m 8 n 8 k 8 batch 2 [64, 0, 0, 64] beta 0.0
)");
  // Another one lies between them.
  EXPECT_EQ(read_together(R"(
    %a = exp(%x): f32[8, 8]
    %b = neg(%x): f32[8, 8]
    %p = matmul(%a, %x) {siblings: 2, ta: true}: f32[8, 8]
    %q = matmul(%b, %x) {siblings: 2, ta: true}: f32[8, 8]
    %grads = concat(%q, %w, %p) {axis: 0}: f32[24, 8]
    %y = exp(%grads): f32[24, 8]
    output y = %y
  )"),
            R"(gemm "p" (read %"p/a", read %"p/x", write %"p/p") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
gemm "q" (read %"p/b", read %"p/x", write %"p/q") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 0.0
)");
}

// One bias for all, or rows of a matrix; biases that lie anywhere keep their products apart.
TEST(Siblings, BiasesAreWalkedLikeMatrices) {
  const auto with = [](const std::string& one, const std::string& two) {
    return products(
        kRead + R"(
    param %b: f32[8]
    param %c: f32[8]
    param %rows: f32[2, 8]
    %row0 = slice(%rows) {starts: [0, 0], sizes: [1, 8]}: f32[1, 8]
    %row1 = slice(%rows) {starts: [1, 0], sizes: [1, 8]}: f32[1, 8]
    %r = reshape(%row0) {shape: [8]}: f32[8]
    %s = reshape(%row1) {shape: [8]}: f32[8]
    %p = matmul(%x, %w, )" +
            one + R"() {siblings: 2}: f32[8, 8]
    %q = matmul(%x, %v, )" +
            two + R"() {siblings: 2}: f32[8, 8]
    %y = add(%p, %q): f32[8, 8]
    output y = %y
)",
        std::string(kWeights) + "param %b: f32[8] = \"0\"\nparam %c: f32[8] = \"0\"\nparam %rows: f32[2, 8] = \"0\"\n");
  };
  EXPECT_EQ(with("%b", "%b"),
            "gemm \"p+1\" (read %\"p/x\", read %\"p/w..v\", read %b, write %\"p/p..q\") m 8 n 8 k 8 batch 2 "
            "[0, 64, 0, 64] beta 1.0\n");
  EXPECT_EQ(with("%r", "%s"),
            "gemm \"p+1\" (read %\"p/x\", read %\"p/w..v\", read %\"p/r..s\", write %\"p/p..q\") m 8 n 8 k 8 batch 2 "
            "[0, 64, 8, 64] beta 1.0\n");
  EXPECT_EQ(with("%b", "%c"),
            "gemm \"p\" (read %\"p/x\", read %w, read %b, write %\"p/p\") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 1.0\n"
            "gemm \"q\" (read %\"p/x\", read %v, read %c, write %\"p/q\") m 8 n 8 k 8 batch 1 [0, 0, 0, 0] beta 1.0\n");
}

}  // namespace
}  // namespace ingot::codegen
