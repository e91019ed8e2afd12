// Matrices as a plan stores them: rows some elements apart, batches some elements apart.
#pragma once
#include <cstdint>

#include "ir/base/type.h"
#include "runtime/pool.h"

namespace ingot::runtime {

/// `batch` matrices of `rows` x `cols`; rows are `ld` elements apart, matrices `stride` (0: one shared by all batches).
struct Strided {
  ir::DType dtype = ir::DType::f32;
  int64_t rows = 0, cols = 0, ld = 0, stride = 0, batch = 1;

  /// How many matrices are stored.
  int64_t copies() const { return stride == 0 ? 1 : batch; }
  /// The same matrices in f32 without gaps.
  Strided dense() const { return {ir::DType::f32, rows, cols, cols, stride == 0 ? 0 : rows * cols, batch}; }
  int64_t dense_bytes() const { return copies() * rows * cols * 4; }
};

const std::byte* element(const Strided& m, const void* base, int64_t batch, int64_t row, int64_t col);
std::byte* element(const Strided& m, void* base, int64_t batch, int64_t row, int64_t col);

/// Copies every matrix of `to` from the same place in `from` (a shared one is repeated), rounding where the dtypes differ.
void copy_strided(const Strided& from, const void* source, const Strided& to, void* target, Pool& pool);
/// target = factor * target.
void scale_strided(const Strided& m, void* target, double factor, Pool& pool);

}  // namespace ingot::runtime
