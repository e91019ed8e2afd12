#include "runtime/strided.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "runtime/convert.h"

namespace ingot::runtime {
namespace {

// One row from any float dtype to any other; through a small f32 buffer when neither side is f32.
void copy_row(ir::DType from, const std::byte* source, ir::DType to, std::byte* target, int64_t count) {
  if (from == to) {
    std::memcpy(target, source, static_cast<size_t>(count * ir::dtype_bytes(to)));
  } else if (to == ir::DType::f32) {
    to_f32(from, source, reinterpret_cast<float*>(target), count);
  } else if (from == ir::DType::f32) {
    from_f32(to, reinterpret_cast<const float*>(source), target, count);
  } else {
    float buffer[256];
    for (int64_t begin = 0; begin < count; begin += 256) {
      const int64_t size = count - begin < 256 ? count - begin : 256;
      to_f32(from, source + begin * ir::dtype_bytes(from), buffer, size);
      from_f32(to, buffer, target + begin * ir::dtype_bytes(to), size);
    }
  }
}

int64_t rows_per_part(const Strided& m) { return std::max<int64_t>(1, 65536 / std::max<int64_t>(m.cols, 1)); }

}  // namespace

const std::byte* element(const Strided& m, const void* base, int64_t batch, int64_t row, int64_t col) {
  return static_cast<const std::byte*>(base) + (batch * m.stride + row * m.ld + col) * ir::dtype_bytes(m.dtype);
}

std::byte* element(const Strided& m, void* base, int64_t batch, int64_t row, int64_t col) {
  return const_cast<std::byte*>(element(m, static_cast<const void*>(base), batch, row, col));
}

void copy_strided(const Strided& from, const void* source, const Strided& to, void* target, Pool& pool) {
  pool.run(to.copies() * to.rows, rows_per_part(to), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t batch = r / to.rows, row = r % to.rows;
      copy_row(from.dtype, element(from, source, batch, row, 0), to.dtype, element(to, target, batch, row, 0), to.cols);
    }
  });
}

void scale_strided(const Strided& m, void* target, double factor, Pool& pool) {
  pool.run(m.copies() * m.rows, rows_per_part(m), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      std::byte* at = element(m, target, r / m.rows, r % m.rows, 0);
      for (int64_t i = 0; i < m.cols; ++i, at += ir::dtype_bytes(m.dtype)) {
        store_double(m.dtype, factor == 0 ? 0 : factor * load_double(m.dtype, at), at);
      }
    }
  });
}

}  // namespace ingot::runtime
