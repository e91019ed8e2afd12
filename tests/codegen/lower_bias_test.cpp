// Products with a bias as calls, as text, like lower_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/codegen/lowered.h"

namespace ingot::codegen {
namespace {

using testing::HasSubstr;

// C is one row, also of a product over many.
TEST(LowerBias, ABiasIsOneRow) {
  EXPECT_THAT(
      lowered(R"(
    input %x: bf16[2, 8, 16]
    input %w: bf16[32, 16]
    input %b: f32[32]
    %y = matmul(%x, %w, %b) {tb: true}: bf16[2, 8, 32]
    output y = %y
  )"),
      HasSubstr("gemm \"y\" (read %\"p/x\", read %\"p/w\", read %\"p/b\", write %\"p/y\") m 16 n 32 k 16 batch 1 ta false "
                "tb true ld [16, 16, 0, 32] strides [0, 0, 0, 0] alpha 1.0 beta 1.0"));
}

TEST(LowerBias, EveryPartOfABatchHasTheWholeBias) {
  const std::string text = lowered(R"(
    input %x: f32[2, 1, 3, 4]
    input %w: f32[5, 4, 2]
    input %b: f32[2]
    %y = matmul(%x, %w, %b): f32[2, 5, 3, 2]
    output y = %y
  )");
  EXPECT_THAT(text, HasSubstr("read %\"p/b\", write %\"p/y[0:30]\")"));
  EXPECT_THAT(text, HasSubstr("read %\"p/b\", write %\"p/y[30:60]\")"));
}

// One row of one row: a dying bias of the result's size and type is not written over.
TEST(LowerBias, AResultIsNotWrittenOverItsBias) {
  EXPECT_THAT(lowered(R"(
    input %x: f32[1, 64]
    input %w: f32[64, 64]
    input %c: f32[64]
    %b = exp(%c): f32[64]
    %y = matmul(%x, %w, %b): f32[1, 64]
    %z = neg(%y): f32[1, 64]
    output z = %z
  )"),
              HasSubstr("read %\"p/b\", write %\"p/y\")"));
}

}  // namespace
}  // namespace ingot::codegen
