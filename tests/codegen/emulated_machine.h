// The CUDA target's kernel texts, run on the CPU (emulated_cuda.h).
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/codegen/kernel_bench.h"

namespace ingot::testing {

/// A machine for KernelBench. Needs the host compiler, and neither NVRTC nor a GPU.
std::unique_ptr<BenchMachine> emulated_machine(const std::string& arch = "sm_90");

/// A fixture of tests that hold on every target: its parameter is "cpu" or "cuda".
class OnEachMachine : public ::testing::TestWithParam<const char*> {
 public:
  static std::unique_ptr<BenchMachine> machine(const std::string& name) {
    return name == "cpu" ? cpu_machine() : emulated_machine();
  }
  std::unique_ptr<BenchMachine> machine() const { return machine(GetParam()); }
};
inline std::string machine_name(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace ingot::testing
