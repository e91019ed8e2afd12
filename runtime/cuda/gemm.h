// One matrix product of a plan through cuBLASLt. Only algorithms whose answers do not change between runs are allowed: no
// split of K, or one whose parts are added in f32 in a fixed order.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
#include "runtime/cuda/blas.h"
#include "runtime/gemm.h"

namespace ingot::runtime::cuda {

/// Device addresses of a product's matrices; c, a matrix or a bias, is 0 without one.
struct GemmPointers {
  DevicePointer a = 0, b = 0, c = 0, d = 0;
};

class Gemm {
 public:
  /// `workspace_bytes`: what run() is given; algorithms are chosen with it. Sets up descriptors and takes `gemm.algorithm`, or
  /// the library's first suggestion where that is empty. MachineError when the library has no kernel for these types and strides,
  /// or does not know the algorithm (another version than the plan was tuned with).
  Gemm(const ir::Gemm& gemm, const GemmTypes& types, const GemmPointers& typical, int64_t workspace_bytes,
       const Blas& blas = Blas::get());
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Would one without an algorithm of its own find a kernel?
  static bool has_kernel(const ir::Gemm& gemm, const GemmTypes& types, const GemmPointers& typical, int64_t workspace_bytes,
                         const Blas& blas = Blas::get());

  /// Enqueues the product; nothing is allocated, the host does not wait. `workspace`: as large as was said, or a slot of Counters
  /// where the algorithm only_counts().
  void run(const GemmPointers& at, DevicePointer workspace, Stream stream) const;
  /// Does it use its workspace for a counter alone? Said only of matrices of fewer than 2^31 elements: larger ones may be several
  /// kernels.
  bool only_counts() const;

  /// The library's suggestions for this product, its best first, as texts for Gemm::algorithm.
  std::vector<std::string> candidates(int most) const;
  const std::string& algorithm() const { return algorithm_; }
  /// false: not an algorithm of this library and card for this product.
  bool use(const std::string& algorithm);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string algorithm_;
};

}  // namespace ingot::runtime::cuda
