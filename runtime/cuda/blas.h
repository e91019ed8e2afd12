// The part of cuBLASLt that the runtime calls, declared here so that building needs no toolkit (numbers of cublasLt.h 11.0 and
// later; tests/cuda_api/api_test.cpp compares them with the header where there is one).
#pragma once
#include <cstddef>
#include <cstdint>

#include "runtime/cuda/driver.h"

namespace ingot::runtime::cuda {

using BlasStatus = int;
using BlasHandle = struct BlasHandleOpaque*;
using MatmulDesc = struct MatmulDescOpaque*;
using MatrixLayout = struct MatrixLayoutOpaque*;
using MatmulPreference = struct MatmulPreferenceOpaque*;

/// cublasLtMatmulAlgo_t: opaque, plain bytes, valid for one library version and kind of card.
struct MatmulAlgo {
  uint64_t data[8] = {};
};
/// cublasLtMatmulHeuristicResult_t
struct HeuristicResult {
  MatmulAlgo algo;
  size_t workspace_bytes = 0;
  BlasStatus state = 0;
  float waves = 0;
  int reserved[4] = {};
};

inline constexpr int kCompute32F = 68;
inline constexpr int kReal16F = 2, kReal16BF = 14, kReal32F = 0;
inline constexpr int kDescTransA = 3, kDescTransB = 4, kDescEpilogue = 7, kDescBias = 8, kDescBiasStride = 10, kDescBiasType = 26;
inline constexpr uint32_t kEpilogueBias = 4;
inline constexpr int kLayoutBatchCount = 5, kLayoutBatchStride = 6;
inline constexpr int kPreferenceWorkspace = 1, kPreferenceReductions = 3, kPreferenceAlignmentA = 5;
inline constexpr uint32_t kReductionNone = 0, kReductionComputeType = 2;
inline constexpr int kNoTranspose = 0, kTranspose = 1;

struct Blas {
  BlasStatus (*create)(BlasHandle* handle);
  size_t (*version)();
  BlasStatus (*create_desc)(MatmulDesc* desc, int compute, int scale);
  BlasStatus (*destroy_desc)(MatmulDesc desc);
  BlasStatus (*set_desc)(MatmulDesc desc, int attribute, const void* value, size_t bytes);
  BlasStatus (*create_layout)(MatrixLayout* layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
  BlasStatus (*destroy_layout)(MatrixLayout layout);
  BlasStatus (*set_layout)(MatrixLayout layout, int attribute, const void* value, size_t bytes);
  BlasStatus (*create_preference)(MatmulPreference* preference);
  BlasStatus (*destroy_preference)(MatmulPreference preference);
  BlasStatus (*set_preference)(MatmulPreference preference, int attribute, const void* value, size_t bytes);
  BlasStatus (*heuristics)(BlasHandle handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b, MatrixLayout c, MatrixLayout d,
                           MatmulPreference preference, int wanted, HeuristicResult* results, int* found);
  BlasStatus (*check_algorithm)(BlasHandle handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b, MatrixLayout c,
                                MatrixLayout d, const MatmulAlgo* algo, HeuristicResult* result);
  BlasStatus (*matmul)(BlasHandle handle, MatmulDesc desc, const void* alpha, DevicePointer a, MatrixLayout la, DevicePointer b,
                       MatrixLayout lb, const void* beta, DevicePointer c, MatrixLayout lc, DevicePointer d, MatrixLayout ld,
                       const MatmulAlgo* algo, DevicePointer workspace, size_t workspace_bytes, Stream stream);
  BlasHandle handle = nullptr;

  /// Loaded, and its handle made in the current context, on first use. MachineError when there is no cuBLASLt.
  static const Blas& get();
};

/// InternalError naming `what` and cuBLASLt's status unless it is 0; what check() throws when the context is lost.
void check_blas(BlasStatus status, const char* what);

}  // namespace ingot::runtime::cuda
