// The interfaces runtime/cuda declares for itself against the toolkit's own headers. Built only where the toolkit is.
#include <cublasLt.h>
#include <cuda.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "runtime/cuda/blas.h"
#include "runtime/cuda/driver.h"

namespace ingot::runtime::cuda {
namespace {

// Two functions one may be called as the other: as many parameters, each of the same size and kind.
template <class A, class B>
constexpr bool kAlike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
                        std::is_floating_point_v<A> == std::is_floating_point_v<B>;
template <class A, class B>
struct Compatible : std::false_type {};
template <class R, class... A, class S, class... B>
  requires(sizeof...(A) == sizeof...(B))
struct Compatible<R (*)(A...), S (*)(B...)> : std::bool_constant<kAlike<R, S> && (kAlike<A, B> && ...)> {};

// A device pointer stands where cuBLASLt takes void*: the same 64 bits.
template <class R, class... A, class S, class... B>
  requires(sizeof...(A) == sizeof...(B))
constexpr bool same_sizes(R (*)(A...), S (*)(B...)) {
  return sizeof(R) == sizeof(S) && ((sizeof(A) == sizeof(B)) && ...);
}

#define EXPECT_COMPATIBLE(member, function) \
  EXPECT_TRUE((Compatible<decltype(Driver::member), decltype(&function)>::value)) << #function

TEST(CudaApi, DriverFunctions) {
  EXPECT_COMPATIBLE(init, cuInit);
  EXPECT_COMPATIBLE(version, cuDriverGetVersion);
  EXPECT_COMPATIBLE(device_count, cuDeviceGetCount);
  EXPECT_COMPATIBLE(device, cuDeviceGet);
  EXPECT_COMPATIBLE(device_name, cuDeviceGetName);
  EXPECT_COMPATIBLE(device_attribute, cuDeviceGetAttribute);
  EXPECT_COMPATIBLE(retain_context, cuDevicePrimaryCtxRetain);
  EXPECT_COMPATIBLE(release_context, cuDevicePrimaryCtxRelease);
  EXPECT_COMPATIBLE(set_context, cuCtxSetCurrent);
  EXPECT_COMPATIBLE(synchronize, cuCtxSynchronize);
  EXPECT_COMPATIBLE(error_name, cuGetErrorName);
  EXPECT_COMPATIBLE(error_text, cuGetErrorString);
  EXPECT_COMPATIBLE(load_module, cuModuleLoadData);
  EXPECT_COMPATIBLE(unload_module, cuModuleUnload);
  EXPECT_COMPATIBLE(find_function, cuModuleGetFunction);
  EXPECT_COMPATIBLE(set_function_attribute, cuFuncSetAttribute);
  EXPECT_COMPATIBLE(launch, cuLaunchKernel);
  EXPECT_COMPATIBLE(memory_info, cuMemGetInfo);
  EXPECT_COMPATIBLE(allocate, cuMemAlloc);
  EXPECT_COMPATIBLE(free, cuMemFree);
  EXPECT_COMPATIBLE(allocate_host, cuMemHostAlloc);
  EXPECT_COMPATIBLE(free_host, cuMemFreeHost);
  EXPECT_COMPATIBLE(to_device, cuMemcpyHtoDAsync);
  EXPECT_COMPATIBLE(to_host, cuMemcpyDtoHAsync);
  EXPECT_COMPATIBLE(on_device, cuMemcpyDtoDAsync);
  EXPECT_COMPATIBLE(fill8, cuMemsetD8Async);
  EXPECT_COMPATIBLE(fill16, cuMemsetD16Async);
  EXPECT_COMPATIBLE(fill32, cuMemsetD32Async);
  EXPECT_COMPATIBLE(fill32_2d, cuMemsetD2D32Async);
  EXPECT_COMPATIBLE(create_stream, cuStreamCreate);
  EXPECT_COMPATIBLE(destroy_stream, cuStreamDestroy);
  EXPECT_COMPATIBLE(wait_stream, cuStreamSynchronize);
  EXPECT_COMPATIBLE(stream_waits, cuStreamWaitEvent);
  EXPECT_COMPATIBLE(create_event, cuEventCreate);
  EXPECT_COMPATIBLE(destroy_event, cuEventDestroy);
  EXPECT_COMPATIBLE(record, cuEventRecord);
  EXPECT_COMPATIBLE(wait_event, cuEventSynchronize);
  EXPECT_COMPATIBLE(elapsed, cuEventElapsedTime);
  EXPECT_COMPATIBLE(begin_capture, cuStreamBeginCapture);
  EXPECT_COMPATIBLE(end_capture, cuStreamEndCapture);
  EXPECT_COMPATIBLE(instantiate, cuGraphInstantiateWithFlags);
  EXPECT_COMPATIBLE(destroy_graph, cuGraphDestroy);
  EXPECT_COMPATIBLE(destroy_exec, cuGraphExecDestroy);
  EXPECT_COMPATIBLE(replay, cuGraphLaunch);
  EXPECT_COMPATIBLE(graph_nodes, cuGraphGetNodes);
  EXPECT_COMPATIBLE(node_type, cuGraphNodeGetType);
  EXPECT_COMPATIBLE(fill_node, cuGraphMemsetNodeGetParams);
  EXPECT_COMPATIBLE(destroy_node, cuGraphDestroyNode);
}

TEST(CudaApi, DriverNumbers) {
  EXPECT_EQ(kSuccess, CUDA_SUCCESS);
  EXPECT_EQ(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(kNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(kUnsupportedPtx, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
  EXPECT_EQ(kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  EXPECT_EQ(kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(kAssert, CUDA_ERROR_ASSERT);
  EXPECT_EQ(kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
  EXPECT_EQ(kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_EQ(kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
  EXPECT_EQ(kInvalidPc, CUDA_ERROR_INVALID_PC);
  EXPECT_EQ(kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
  EXPECT_EQ(kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(kContextDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(kUnknown, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(kAttributeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(kAttributeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(kFunctionMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(kStreamNonBlocking, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(kEventDisableTiming, unsigned{CU_EVENT_DISABLE_TIMING});
  EXPECT_EQ(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(kNodeFill, CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(sizeof(FillNode), sizeof(CUDA_MEMSET_NODE_PARAMS));
  EXPECT_EQ(offsetof(FillNode, element_bytes), offsetof(CUDA_MEMSET_NODE_PARAMS, elementSize));
  EXPECT_EQ(offsetof(FillNode, width), offsetof(CUDA_MEMSET_NODE_PARAMS, width));
}

TEST(CudaApi, Blas) {
  const Blas b{};
  EXPECT_TRUE(same_sizes(b.create, &cublasLtCreate));
  EXPECT_TRUE(same_sizes(b.create_desc, &cublasLtMatmulDescCreate));
  EXPECT_TRUE(same_sizes(b.destroy_desc, &cublasLtMatmulDescDestroy));
  EXPECT_TRUE(same_sizes(b.set_desc, &cublasLtMatmulDescSetAttribute));
  EXPECT_TRUE(same_sizes(b.create_layout, &cublasLtMatrixLayoutCreate));
  EXPECT_TRUE(same_sizes(b.destroy_layout, &cublasLtMatrixLayoutDestroy));
  EXPECT_TRUE(same_sizes(b.set_layout, &cublasLtMatrixLayoutSetAttribute));
  EXPECT_TRUE(same_sizes(b.create_preference, &cublasLtMatmulPreferenceCreate));
  EXPECT_TRUE(same_sizes(b.destroy_preference, &cublasLtMatmulPreferenceDestroy));
  EXPECT_TRUE(same_sizes(b.set_preference, &cublasLtMatmulPreferenceSetAttribute));
  EXPECT_TRUE(same_sizes(b.heuristics, &cublasLtMatmulAlgoGetHeuristic));
  EXPECT_TRUE(same_sizes(b.check_algorithm, &cublasLtMatmulAlgoCheck));
  EXPECT_TRUE(same_sizes(b.matmul, &cublasLtMatmul));
  EXPECT_EQ(sizeof(MatmulAlgo), sizeof(cublasLtMatmulAlgo_t));
  EXPECT_EQ(sizeof(HeuristicResult), sizeof(cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(HeuristicResult, workspace_bytes), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(offsetof(HeuristicResult, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
  EXPECT_EQ(kCompute32F, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(kReal32F, CUDA_R_32F);
  EXPECT_EQ(kReal16F, CUDA_R_16F);
  EXPECT_EQ(kReal16BF, CUDA_R_16BF);
  EXPECT_EQ(kDescTransA, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(kDescTransB, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(kDescEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
  EXPECT_EQ(kDescBias, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  EXPECT_EQ(kDescBiasStride, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
  EXPECT_EQ(kDescBiasType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  EXPECT_EQ(kEpilogueBias, uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(kLayoutBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(kLayoutBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(kPreferenceWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(kPreferenceReductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(kPreferenceAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(kPreferenceAlignmentA + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  EXPECT_EQ(kReductionNone, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  EXPECT_EQ(kReductionComputeType, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_EQ(kNoTranspose, CUBLAS_OP_N);
  EXPECT_EQ(kTranspose, CUBLAS_OP_T);
}

}  // namespace
}  // namespace ingot::runtime::cuda
