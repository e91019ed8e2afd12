// Graph in, calls on lanes out. That any legal order of them means the same is shown in simulate_test.cpp.
#include <gtest/gtest.h>

#include "tests/codegen/lowered.h"

namespace ingot::codegen {
namespace {

// A backward pass in small: the gradients of weights leave lane 0, and what they read keeps its bytes until lane 0 waits for
// them.
TEST(LowerLanes, ProductsThatNobodyWaitsForStandAside) {
  EXPECT_EQ(lowered(R"(
    input %x: f32[64, 64]
    input %w: f32[64, 64]
    %a = exp(%x): f32[64, 64]
    %b = exp(%a): f32[64, 64]
    %wb = matmul(%b, %x) {ta: true}: f32[64, 64]
    %db = matmul(%b, %w): f32[64, 64]
    %c = exp(%db): f32[64, 64]
    %d = exp(%c): f32[64, 64]
    %s = add(%d, %wb): f32[64, 64]
    output y = %s
  )",
                    {}, "", 2),
            R"(buffer %"p/x": f32[64, 64] input of p in io at 0 bytes 16384
buffer %"p/w": f32[64, 64] input of p in io at 16384 bytes 16384
buffer %"p/a": f32[64, 64] temp of p in work at 0 bytes 16384 live 0..1
buffer %"p/b": f32[64, 64] temp of p in work at 16384 bytes 16384 live 1..5
buffer %"p/wb": f32[64, 64] temp of p in work at 0 bytes 16384 live 2..6
buffer %"p/db": f32[64, 64] temp of p in work at 32768 bytes 16384 live 3..4
buffer %"p/c": f32[64, 64] temp of p in work at 49152 bytes 16384 live 4..5
buffer %"p/d": f32[64, 64] temp of p in work at 32768 bytes 16384 live 5..6
buffer %"p/s": f32[64, 64] output of p in io at 32768 bytes 16384
input x = %"p/x"
input w = %"p/w"
output y = %"p/s"
launch "a" (read %"p/x", write %"p/a") kernel exp
launch "b" (read %"p/a", write %"p/b") kernel exp
gemm "wb" (read %"p/b", read %"p/x", write %"p/wb") m 64 n 64 k 64 batch 1 ta true tb false ld [64, 64, 0, 64] strides [0, 0, 0, 0] alpha 1.0 beta 0.0 algorithm "" lane 1 after [1]
gemm "db" (read %"p/b", read %"p/w", write %"p/db") m 64 n 64 k 64 batch 1 ta false tb false ld [64, 64, 0, 64] strides [0, 0, 0, 0] alpha 1.0 beta 0.0 algorithm ""
launch "c" (read %"p/db", write %"p/c") kernel exp
launch "d" (read %"p/c", write %"p/d") kernel exp
launch "s" (read %"p/d", read %"p/wb", write %"p/s") kernel add after [2]
)");
}

// One for each lane, from its first product to its last; no view, no variable, and not counted in what a product moves.
TEST(LowerLanes, ProductsOfALaneShareAWorkspace) {
  FakeTarget target;
  target.gemm_workspace = 4096;
  EXPECT_EQ(lowered(R"(
    input %x: f32[64, 64]
    input %w: f32[64, 64]
    %a = matmul(%x, %w): f32[64, 64]
    %b = exp(%a): f32[64, 64]
    %wb = matmul(%b, %x) {ta: true}: f32[64, 64]
    %c = matmul(%b, %w, %x): f32[64, 64]
    %d = exp(%c): f32[64, 64]
    %s = add(%d, %wb): f32[64, 64]
    output y = %s
  )",
                    target, "", 2),
            R"(buffer %"p/x": f32[64, 64] input of p in io at 0 bytes 16384
buffer %"p/w": f32[64, 64] input of p in io at 16384 bytes 16384
buffer %"p/a": f32[64, 64] temp of p in work at 0 bytes 16384 live 0..1
buffer %"p/b": f32[64, 64] temp of p in work at 16384 bytes 16384 live 1..4
buffer %"p/wb": f32[64, 64] temp of p in work at 0 bytes 16384 live 2..5
buffer %"p/c": f32[64, 64] temp of p in work at 32768 bytes 16384 live 3..4
buffer %"p/d": f32[64, 64] temp of p in work at 49152 bytes 16384 live 4..5
buffer %"p/s": f32[64, 64] output of p in io at 32768 bytes 16384
buffer %"p/#gemm0": bool[4096] workspace of p in work at 49152 bytes 4096 live 0..3
buffer %"p/#gemm1": bool[4096] workspace of p in work at 65536 bytes 4096 live 2..4
input x = %"p/x"
input w = %"p/w"
output y = %"p/s"
gemm "a" (read %"p/x", read %"p/w", write %"p/a", inout %"p/#gemm0") m 64 n 64 k 64 batch 1 ta false tb false ld [64, 64, 0, 64] strides [0, 0, 0, 0] alpha 1.0 beta 0.0 algorithm ""
launch "b" (read %"p/a", write %"p/b") kernel exp
gemm "wb" (read %"p/b", read %"p/x", write %"p/wb", inout %"p/#gemm1") m 64 n 64 k 64 batch 1 ta true tb false ld [64, 64, 0, 64] strides [0, 0, 0, 0] alpha 1.0 beta 0.0 algorithm "" lane 1 after [1]
gemm "c" (read %"p/b", read %"p/w", read %"p/x", write %"p/c", inout %"p/#gemm0") m 64 n 64 k 64 batch 1 ta false tb false ld [64, 64, 64, 64] strides [0, 0, 0, 0] alpha 1.0 beta 1.0 algorithm ""
launch "d" (read %"p/c", write %"p/d") kernel exp
launch "s" (read %"p/d", read %"p/wb", write %"p/s") kernel add after [2]
)");
}

}  // namespace
}  // namespace ingot::codegen
