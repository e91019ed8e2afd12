#include "ir/base/variable.h"

namespace ingot::ir {

std::string_view variable_role_name(VariableRole role) {
  static constexpr std::string_view kNames[] = {"param", "state", "hyper", "compute"};
  return kNames[static_cast<size_t>(role)];
}

}  // namespace ingot::ir
