// States that a program leaves for its next run: variables `<program>.carry.<value>`.
#pragma once
#include <string>

#include "runtime/session.h"

namespace ingot::runtime {

/// Sets every state named `prefix`... to zeros, what it is before a text begins.
void zero_carried_states(Session& session, const std::string& prefix);

}  // namespace ingot::runtime
