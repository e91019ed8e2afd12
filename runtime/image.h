// Compiled kernels from a plan's bytes to callable functions.
#pragma once
#include <cstdint>
#include <string>

namespace ingot::runtime {

/// See ir::Kernel.
using KernelFunction = void (*)(void* const* args, const int64_t* sizes, int64_t task);

/// A shared object loaded from memory; its functions live as long as it does.
class Image {
 public:
  /// MachineError when it cannot be loaded (says why).
  Image(const std::string& name, const std::string& bytes);
  ~Image();
  Image(Image&& other) noexcept;
  Image& operator=(Image&&) = delete;
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  /// UserError when the image has no such symbol: then it is not what the plan says.
  KernelFunction find(const std::string& symbol) const;

 private:
  std::string name_;
  int file_ = -1;
  void* handle_ = nullptr;
};

}  // namespace ingot::runtime
