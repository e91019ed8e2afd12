#include "tests/codegen/card_kernels.h"
#include "tests/common/places.h"

#include <fmt/format.h>

namespace ingot::testing {

namespace cuda = runtime::cuda;

CardKernels::CardKernels() {
  codegen::CudaTargetOptions options;
  options.arch = fmt::format("sm_{}", device_.capability());
  options.cache.directory = tests::build_file("kernel-cache");
  target_ = codegen::make_cuda_target(options);
}

void CardKernels::build(const std::vector<codegen::KernelText>& kernels) {
  const codegen::BuiltKernels built = target_->build(kernels);
  for (const ir::Kernel& kernel : built.kernels) {
    cuda::Module module = nullptr;
    cuda::check(cuda::Driver::get().load_module(&module, built.files.at(kernel.image).data()), "loading " + kernel.name);
    cuda::check(cuda::Driver::get().find_function(&functions_[kernel.symbol], module, kernel.symbol.c_str()), "finding");
  }
}

void CardKernels::run(const std::string& symbol, const codegen::Launch& launch, std::vector<cuda::DevicePointer> args) {
  const cuda::Driver& driver = cuda::Driver::get();
  std::vector<int64_t> sizes = launch.sizes;
  std::vector<void*> params;
  for (cuda::DevicePointer& arg : args) params.push_back(&arg);
  for (int64_t& size : sizes) params.push_back(&size);
  const cuda::Function function = functions_.at(symbol);
  if (launch.shared_bytes > 0) {
    cuda::check(driver.set_function_attribute(function, cuda::kFunctionMaxDynamicShared, launch.shared_bytes), "shared memory");
  }
  cuda::check(driver.launch(function, static_cast<unsigned>(launch.tasks), 1, 1, static_cast<unsigned>(launch.threads), 1, 1,
                            static_cast<unsigned>(launch.shared_bytes), stream_, params.data(), nullptr),
              "launching " + symbol);
  cuda::check(driver.wait_stream(stream_), "running " + symbol);
}

}  // namespace ingot::testing
