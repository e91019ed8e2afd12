// Kernel texts in, one shared object out, by the host compiler.
#pragma once
#include <memory>
#include <string>
#include <string_view>
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

/// What kernel texts may include, by the names they include it under.
struct TextFile {
  std::string_view name, content;
};
std::vector<TextFile> text_files();

/// The options of the compiler that decide what a kernel computes, and how fast.
std::vector<std::string> compile_flags(const CpuTargetOptions& options);

BuiltKernels build_kernels(const std::vector<KernelText>& kernels, const CpuTargetOptions& options);

}  // namespace ingot::codegen::cpu
