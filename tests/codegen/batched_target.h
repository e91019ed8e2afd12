// The CPU target with many kernels in one translation unit, barely optimised: for tests of thousands of kernels that run once.
#pragma once
#include <memory>

#include "codegen/target.h"

namespace ingot::testing {

/// Lowers as the CPU target does and compiles the same texts, at -O1. Not for kernels that ask for flags of their own (wkv7).
std::unique_ptr<codegen::Target> batched_cpu_target();

}  // namespace ingot::testing
