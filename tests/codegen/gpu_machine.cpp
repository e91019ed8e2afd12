// Kernels of the CUDA target on the card of this machine.
#include <map>

#include "ir/base/error.h"
#include "tests/codegen/card_kernels.h"
#include "tests/codegen/emulated_machine.h"

namespace ingot::testing {
namespace {

namespace cuda = runtime::cuda;

class GpuMachine final : public BenchMachine {
 public:
  const codegen::Target& target() const override { return card_.target(); }
  void build(const std::vector<codegen::KernelText>& kernels) override { card_.build(kernels); }

  // Arguments that are one buffer stay one; canaries travel with it.
  void run(const std::string& symbol, const codegen::Launch& launch, const std::vector<Guarded*>& args) override {
    const cuda::Driver& driver = cuda::Driver::get();
    std::map<Guarded*, cuda::DeviceMemory> memory;
    for (Guarded* arg : args) {
      if (arg == nullptr || memory.contains(arg)) continue;
      auto& device = memory.emplace(arg, cuda::DeviceMemory(size(*arg), "a test")).first->second;
      cuda::check(driver.to_device(device.pointer(), arg->storage().data(), arg->storage().size(), card_.stream()), "writing");
    }
    std::vector<cuda::DevicePointer> pointers;
    for (Guarded* arg : args) pointers.push_back(arg == nullptr ? 0 : memory.at(arg).pointer() + Guarded::offset());
    card_.run(symbol, launch, std::move(pointers));
    for (auto& [arg, device] : memory) {
      cuda::check(driver.to_host(arg->storage().data(), device.pointer(), arg->storage().size(), card_.stream()), "reading");
    }
    cuda::check(driver.wait_stream(card_.stream()), "reading");
  }

 private:
  static int64_t size(Guarded& arg) { return static_cast<int64_t>(arg.storage().size()); }

  CardKernels card_;
};

}  // namespace

std::unique_ptr<BenchMachine> gpu_machine() {
  try {
    return std::make_unique<GpuMachine>();
  } catch (const ir::MachineError&) {
    return nullptr;
  }
}

}  // namespace ingot::testing
