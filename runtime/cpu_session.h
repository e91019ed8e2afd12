// A plan on this machine's cores.
#pragma once
#include <memory>

#include "runtime/session.h"

namespace ingot::runtime {

/// Session::open for plans whose target is "cpu".
std::unique_ptr<Session> open_cpu_session(ir::Plan plan, const SessionOptions& options);

}  // namespace ingot::runtime
