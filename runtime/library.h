// What the files that call oneDNN share.
#pragma once
#include <omp.h>

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "ir/base/type.h"

namespace ingot::runtime {

inline const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// Of f32, bf16 and f16.
inline dnnl::memory::data_type library_type(ir::DType dtype) {
  if (dtype == ir::DType::bf16) return dnnl::memory::data_type::bf16;
  return dtype == ir::DType::f16 ? dnnl::memory::data_type::f16 : dnnl::memory::data_type::f32;
}

/// A memory that is given its address later.
inline dnnl::memory handle(const dnnl::memory::desc& desc) { return dnnl::memory(desc, cpu_engine(), nullptr); }

/// oneDNN's threads are OpenMP's: it sizes its blocking by them when a primitive is made, and runs on as many.
class LibraryThreads {
 public:
  explicit LibraryThreads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~LibraryThreads() { omp_set_num_threads(before_); }
  LibraryThreads(const LibraryThreads&) = delete;
  LibraryThreads& operator=(const LibraryThreads&) = delete;

 private:
  int before_;
};

inline int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
inline int64_t pieces(int64_t size, int64_t step) { return (size + step - 1) / step; }

}  // namespace ingot::runtime
