#include "runtime/carried.h"

namespace ingot::runtime {

void zero_carried_states(Session& session, const std::string& prefix) {
  for (const ir::Binding& b : session.plan().bindings) {
    const ir::Variable& v = b.variable;
    if (v.role == ir::VariableRole::state && v.name.starts_with(prefix)) session.write_variable(v.name, HostTensor(v.type));
  }
}

}  // namespace ingot::runtime
