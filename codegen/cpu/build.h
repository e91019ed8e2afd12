// Kernel texts in, one shared object out, by the host compiler.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "codegen/target.h"

namespace ingot::codegen::cpu {

/// What the compiler said about itself; asked once per process and set of options.
struct Compiler {
  std::string identity;  ///< version and every predefined macro under our flags: part of each cache key
  std::string features;  ///< the instruction sets it will use, as /proc/cpuinfo names them
};
/// MachineError when there is no working compiler.
Compiler probe_compiler(const CpuTargetOptions& options);

BuiltKernels build_kernels(const std::vector<KernelText>& kernels, const CpuTargetOptions& options);

}  // namespace ingot::codegen::cpu
