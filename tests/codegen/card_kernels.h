// Kernels of the CUDA target on the card of this machine: compiled, loaded, launched one by one and waited for.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/target.h"
#include "runtime/cuda/device.h"

namespace ingot::testing {

class CardKernels {
 public:
  /// MachineError where there is no card.
  CardKernels();

  const codegen::Target& target() const { return *target_; }
  runtime::cuda::Stream stream() const { return stream_; }
  void build(const std::vector<codegen::KernelText>& kernels);
  /// `args` are addresses on the card, 0 for an absent one. MachineError when the kernel fails.
  void run(const std::string& symbol, const codegen::Launch& launch, std::vector<runtime::cuda::DevicePointer> args);

 private:
  runtime::cuda::Device device_;
  runtime::cuda::OwnedStream stream_;
  std::unique_ptr<codegen::Target> target_;
  std::map<std::string, runtime::cuda::Function> functions_;
};

}  // namespace ingot::testing
