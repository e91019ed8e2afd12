// One matrix product of a plan, prepared once and run at every replay.
//
// Why products are cut into tiles here: left to its own threads, oneDNN splits K over them when m and n are small (weight
// gradients with K above 1536, single rows at any K), so its sums would depend on how many threads there are. Instead each
// product is cut into tiles of batch, m and n by its shape alone, and each tile is a oneDNN product of one thread. Measured on
// 2 cores with AVX-512, tiles reach the speed of the library's own threads (512x512x1024, f32: 224 GFLOP/s either way).
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "ir/plan/plan.h"

namespace ingot::runtime {

/// The dtypes of a product's four matrices; `c` matters only when beta is not 0.
struct GemmTypes {
  ir::DType a = ir::DType::f32, b = ir::DType::f32, c = ir::DType::f32, d = ir::DType::f32;
  bool operator==(const GemmTypes&) const = default;
};

/// D[b] = alpha op(A[b]) op(B[b]) + beta C[b] with f32 sums, whatever is stored, each element rounded once. Any mix of f32, bf16
/// and f16: what oneDNN lacks on this CPU (f16; bf16 without AVX-512) is converted to f32 first. C may be D (then with the same
/// strides); otherwise it must not overlap it. A bias (Gemm::has_bias) is oneDNN's own where it takes one of that dtype, else its
/// rows are copied into D first. Every element of D depends on shapes and values only, never on `threads`.
class GemmRunner {
 public:
  GemmRunner(const ir::Gemm& gemm, const GemmTypes& types, int threads);
  ~GemmRunner();
  GemmRunner(GemmRunner&&) noexcept;
  GemmRunner& operator=(GemmRunner&&) noexcept;

  /// Bytes of scratch that run() needs, 64-byte aligned; contents need not survive between calls.
  int64_t scratch_bytes() const;
  /// Not to be called by two threads at once.
  void run(const void* a, const void* b, const void* c, void* d, void* scratch);
  /// oneDNN's name for the code it chose, for traces and tests.
  const std::string& implementation() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot::runtime
