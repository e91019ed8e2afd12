#include "runtime/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/base/error.h"

namespace ingot::runtime::cuda {

Library::Library(const std::string& what, const std::vector<std::string>& names, const std::string& remedy)
    : what_(what), remedy_(remedy) {
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
  }
  throw ir::MachineError(fmt::format("{} was not found (tried {}); {}", what, fmt::join(names, ", "), remedy));
}

void* Library::symbol(const char* name) const {
  if (void* found = dlsym(handle_, name)) return found;
  throw ir::MachineError(fmt::format("{} has no {}: it is too old; {}", what_, name, remedy_));
}

}  // namespace ingot::runtime::cuda
