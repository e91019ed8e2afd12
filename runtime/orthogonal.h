// Random orthogonal matrices.
#pragma once
#include <cstdint>

namespace ingot::runtime {

/// Fills `out` [rows, cols] with `gain` times a matrix whose columns (rows, when there are fewer of them) are orthonormal,
/// uniformly distributed over all such matrices. The same bits for any number of threads.
void orthogonal(float* out, int64_t rows, int64_t cols, double gain, uint64_t key, int threads);

}  // namespace ingot::runtime
