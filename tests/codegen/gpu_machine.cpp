// Kernels of the CUDA target on the card of this machine.
#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "ir/base/error.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/session.h"
#include "tests/codegen/emulated_machine.h"

namespace ingot::testing {
namespace {

namespace cuda = runtime::cuda;

class GpuMachine final : public BenchMachine {
 public:
  GpuMachine() {
    codegen::CudaTargetOptions options;
    options.arch = fmt::format("sm_{}", device_.capability());
    options.cache.directory = INGOT_BINARY_DIR "/kernel-cache";
    target_ = codegen::make_cuda_target(options);
  }

  const codegen::Target& target() const override { return *target_; }

  void build(const std::vector<codegen::KernelText>& kernels) override {
    const codegen::BuiltKernels built = target_->build(kernels);
    for (const ir::Kernel& kernel : built.kernels) {
      cuda::Module module = nullptr;
      cuda::check(cuda::Driver::get().load_module(&module, built.files.at(kernel.image).data()), "loading " + kernel.name);
      cuda::check(cuda::Driver::get().find_function(&functions_[kernel.symbol], module, kernel.symbol.c_str()), "finding");
    }
  }

  // Arguments that are one buffer stay one; canaries travel with it.
  void run(const std::string& symbol, const codegen::Launch& launch, const std::vector<Guarded*>& args) override {
    const cuda::Driver& driver = cuda::Driver::get();
    std::map<Guarded*, cuda::DeviceMemory> memory;
    for (Guarded* arg : args) {
      if (arg == nullptr || memory.contains(arg)) continue;
      auto& device = memory.emplace(arg, cuda::DeviceMemory(size(*arg), "a test")).first->second;
      cuda::check(driver.to_device(device.pointer(), arg->storage().data(), arg->storage().size(), stream_), "writing");
    }
    std::vector<cuda::DevicePointer> pointers;
    for (Guarded* arg : args) pointers.push_back(arg == nullptr ? 0 : memory.at(arg).pointer() + Guarded::offset());
    std::vector<int64_t> sizes = launch.sizes;
    std::vector<void*> params;
    for (auto& pointer : pointers) params.push_back(&pointer);
    for (auto& size : sizes) params.push_back(&size);
    const cuda::Function function = functions_.at(symbol);
    if (launch.shared_bytes > 0) {
      cuda::check(driver.set_function_attribute(function, cuda::kFunctionMaxDynamicShared, launch.shared_bytes), "shared memory");
    }
    cuda::check(driver.launch(function, static_cast<unsigned>(launch.tasks), 1, 1, static_cast<unsigned>(launch.threads), 1, 1,
                              static_cast<unsigned>(launch.shared_bytes), stream_, params.data(), nullptr),
                "launching " + symbol);
    for (auto& [arg, device] : memory) {
      cuda::check(driver.to_host(arg->storage().data(), device.pointer(), arg->storage().size(), stream_), "reading");
    }
    stream_.wait();
  }

 private:
  static int64_t size(Guarded& arg) { return static_cast<int64_t>(arg.storage().size()); }

  cuda::Device device_;
  cuda::OwnedStream stream_;
  std::unique_ptr<codegen::Target> target_;
  std::map<std::string, cuda::Function> functions_;
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
