// Kernel texts in, one cubin each out, by NVRTC.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/nvrtc.h"

namespace ingot::codegen::cuda {

/// What kernel texts include.
std::vector<Header> text_files();

/// What ptxas says of one kernel.
struct Resources {
  int registers = 0, spill_bytes = 0;
  int stack_bytes = 0;     ///< of local memory: spills, or arrays whose indices only the run knows
  std::string serialised;  ///< "" or the first line in which ptxas says that it serialises instructions meant to overlap
  std::string warning;     ///< "" or the first other line that is neither a figure nor a remark about it
};
/// Reads the log of one kernel compiled with -v; spill bytes are stores and loads together.
Resources read_log(std::string_view log);

/// Compiles what the cache does not hold, on several threads. InternalError with the kernel's name, its source and the log when a
/// kernel does not compile, spills registers or is serialised, and when it gets a warning if options.warnings_fail.
BuiltKernels build_kernels(const std::vector<KernelText>& kernels, const Arch& arch, const CudaTargetOptions& options);

}  // namespace ingot::codegen::cuda
