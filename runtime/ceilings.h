// What this machine can do at most: the figures that `ingot bench` holds measured ones against. Measured, never looked up.
#pragma once
#include "ir/plan/plan.h"
#include "runtime/gemm.h"

namespace ingot::runtime {

/// Of a product of three square matrices of 2048 rows and columns: flop/s, the best of some repetitions. `threads` as in
/// SessionOptions.
double gemm_ceiling(ir::DType dtype, int threads);
/// Of a copy of 128 MiB: bytes read and written per second, the best of some repetitions.
double copy_ceiling(int threads);

/// Seconds that oneDNN alone needs for this product, with its own threads, however it divides the work (a plan's products are
/// cut so that results do not depend on the number of threads: gemm.h): the least of `repeats`, on zeroed memory that is warm.
/// 0 where oneDNN has no such product.
double library_gemm_seconds(const ir::Gemm& gemm, const GemmTypes& types, int threads, int repeats);

}  // namespace ingot::runtime
