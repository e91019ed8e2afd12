// A tall product whose right side is put into the library's own layout first, once for all its tiles.
//
// oneDNN's fast code (brgemm) wants B in blocks and D without gaps between rows. So B is packed into scratch, the product is cut
// into blocks of full rows, and a transposed A is turned a block at a time by the thread that multiplies it.
//
//   512 x 512 x 1024 to 2048 x 2048 x 2048, one core with AVX-512, GFLOP/s by processor time, least of 15:
//     tiles of both sides, nothing packed       f32  65 to 100    bf16 133 to 194
//     blocks of full rows, B packed             f32  95 to 107    bf16 190 to 219
//     the library alone                         f32  87 to 104    bf16 184 to 221
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ir/plan/plan.h"
#include "runtime/gemm.h"
#include "runtime/pool.h"

namespace ingot::runtime {

class PackedGemm {
 public:
  /// nullptr when packing would not pay (few rows, several batches, a B too large for scratch) or the library has no such code
  /// on this machine. Where beta is not 0, C is a `bias` that this adds, or already in D.
  static std::unique_ptr<PackedGemm> make(const ir::Gemm& gemm, const GemmTypes& types, bool bias, int threads);

  PackedGemm(const ir::Gemm& gemm, const GemmTypes& types, bool bias, int threads);
  ~PackedGemm();

  int64_t scratch_bytes() const;
  const std::string& implementation() const;
  /// Each element's sum depends on shapes only, never on threads. Scratch is aligned to 64 bytes.
  void run(const void* a, const void* b, const void* bias, void* d, std::byte* scratch, Pool& pool);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot::runtime
