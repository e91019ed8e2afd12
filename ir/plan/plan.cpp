#include "ir/plan/plan.h"

#include <algorithm>

namespace ingot::ir {
namespace {

template <class List>
auto find_named(const List& list, std::string_view name) -> decltype(list.data()) {
  const auto it = std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.name == name; });
  return it == list.end() ? nullptr : &*it;
}

}  // namespace

std::string_view buffer_role_name(BufferRole role) {
  static constexpr std::string_view kNames[] = {"param", "state", "hyper", "compute", "input", "output", "temp", "workspace"};
  return kNames[static_cast<size_t>(role)];
}

std::string_view access_mode_name(AccessMode mode) {
  static constexpr std::string_view kNames[] = {"read", "write", "inout"};
  return kNames[static_cast<size_t>(mode)];
}

std::string_view call_kind_name(CallKind kind) {
  static constexpr std::string_view kNames[] = {"launch", "gemm", "copy", "fill", "init", "collective"};
  return kNames[static_cast<size_t>(kind)];
}

const Program* Plan::find_program(std::string_view wanted) const { return find_named(programs, wanted); }
const Kernel* Plan::find_kernel(std::string_view wanted) const { return find_named(kernels, wanted); }

const Binding* Plan::find_binding(std::string_view variable) const {
  for (const Binding& binding : bindings) {
    if (binding.variable.name == variable) return &binding;
  }
  return nullptr;
}

bool same(const Plan& a, const Plan& b) {
  return a.name == b.name && a.target == b.target && a.target_features == b.target_features && a.arenas == b.arenas &&
         a.buffers == b.buffers && a.kernels == b.kernels && a.bindings == b.bindings && a.programs == b.programs &&
         a.ranges == b.ranges && a.checkpoint_ignore == b.checkpoint_ignore && a.info == b.info && a.files == b.files;
}

}  // namespace ingot::ir
