#include "runtime/cuda/blas.h"

#include <fmt/format.h>

#include "ir/base/error.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/library.h"

namespace ingot::runtime::cuda {
namespace {

Blas load() {
  const Library library("cuBLASLt",
                        {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so",
                         "/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.12"},
                        "install the CUDA toolkit's libcublas (Debian: libcublas-dev or libcublas-13-0), or use --target cpu");
  Blas b{};
  library.load(b.create, "cublasLtCreate");
  library.load(b.version, "cublasLtGetVersion");
  library.load(b.create_desc, "cublasLtMatmulDescCreate");
  library.load(b.destroy_desc, "cublasLtMatmulDescDestroy");
  library.load(b.set_desc, "cublasLtMatmulDescSetAttribute");
  library.load(b.create_layout, "cublasLtMatrixLayoutCreate");
  library.load(b.destroy_layout, "cublasLtMatrixLayoutDestroy");
  library.load(b.set_layout, "cublasLtMatrixLayoutSetAttribute");
  library.load(b.create_preference, "cublasLtMatmulPreferenceCreate");
  library.load(b.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  library.load(b.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  library.load(b.heuristics, "cublasLtMatmulAlgoGetHeuristic");
  library.load(b.check_algorithm, "cublasLtMatmulAlgoCheck");
  library.load(b.matmul, "cublasLtMatmul");
  check_blas(b.create(&b.handle), "cublasLtCreate");
  return b;
}

}  // namespace

const Blas& Blas::get() {
  static const Device held;  // the handle belongs to the card's context, which must outlast every session
  static const Blas blas = load();
  return blas;
}

void check_blas(BlasStatus status, const char* what) {
  if (status == 0) return;
  check_context(what);  // the library says "execution failed" and not why
  throw ir::InternalError(fmt::format("{}: cuBLASLt status {}", what, status));
}

}  // namespace ingot::runtime::cuda
