// Which products of two plans count as the same: what a run that goes on takes over from the plan it began with.
#include "runtime/cuda/tune.h"

#include <gtest/gtest.h>

namespace ingot::runtime {
namespace {

/// D = A B + C on 4 x 4 matrices, D being C itself when `in_place`.
ir::Plan plan_of(bool in_place, const std::string& algorithm) {
  ir::Plan plan;
  plan.arenas = {{"work", 1024}};
  for (const char* name : {"a", "b", "c", "d"}) {
    ir::Buffer b;
    b.name = name;
    b.type = {ir::DType::f32, {4, 4}};
    b.bytes = 64;
    b.offset = static_cast<int64_t>(plan.buffers.size()) * ir::kBufferAlignment;
    plan.buffers.push_back(b);
  }
  ir::Call call;
  call.kind = ir::CallKind::gemm;
  call.gemm.m = call.gemm.n = call.gemm.k = call.gemm.lda = call.gemm.ldb = call.gemm.ldc = call.gemm.ldd = 4;
  call.gemm.beta = 1;
  call.gemm.algorithm = algorithm;
  const auto both = in_place ? ir::AccessMode::inout : ir::AccessMode::read;
  call.args = {{0, ir::AccessMode::read}, {1, ir::AccessMode::read}, {2, both}, {in_place ? 2u : 3u, ir::AccessMode::inout}};
  plan.programs = {{"train", {}, {}, {call}}};
  return plan;
}

std::string taken(bool in_place, bool tuned_in_place) {
  return cuda::with_algorithms_of(plan_of(in_place, "own"), plan_of(tuned_in_place, "tuned")).programs[0].calls[0].gemm.algorithm;
}

TEST(Tune, AProductInPlaceIsAnotherThanOneApart) {
  EXPECT_EQ(taken(false, false), "tuned");
  EXPECT_EQ(taken(true, true), "tuned");
  EXPECT_EQ(taken(true, false), "own");
  EXPECT_EQ(taken(false, true), "own");
}

}  // namespace
}  // namespace ingot::runtime
