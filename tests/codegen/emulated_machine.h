// The CUDA target's kernel texts, run on the CPU (emulated_cuda.h) or on the card of this machine.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/codegen/kernel_bench.h"

namespace ingot::testing {

/// A machine for KernelBench. Needs the host compiler, and neither NVRTC nor a GPU. Races on dynamic shared memory are failures of
/// the running test.
std::unique_ptr<BenchMachine> emulated_machine(const std::string& arch = "sm_90");

/// The card of this machine; null when there is none.
std::unique_ptr<BenchMachine> gpu_machine();

/// A fixture of tests that hold on every target: its parameter is "cpu", "cuda" (emulated), "cuda_80" (the same as sm_80) or "gpu", which
/// skips itself where there is no card.
class OnEachMachine : public ::testing::TestWithParam<const char*> {
 public:
  void SetUp() override {
    if (std::string(GetParam()) == "gpu" && gpu_machine() == nullptr) GTEST_SKIP() << "no GPU on this machine";
  }
  static std::unique_ptr<BenchMachine> machine(const std::string& name) {
    if (name == "cpu") return cpu_machine();
    return name == "cuda" ? emulated_machine() : name == "cuda_80" ? emulated_machine("sm_80") : gpu_machine();
  }
  std::unique_ptr<BenchMachine> machine() const { return machine(GetParam()); }
};
inline const auto kMachines = ::testing::Values("cpu", "cuda", "gpu");
inline std::string machine_name(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace ingot::testing
