// A plan on an NVIDIA GPU.
#pragma once
#include <memory>

#include "runtime/session.h"

namespace ingot::runtime::cuda {

/// Session::open for plans whose target is "cuda:sm_XX".
std::unique_ptr<Session> open_session(ir::Plan plan, const SessionOptions& options);

/// "sm_90": the architecture of the card that is present. MachineError without one.
std::string present_architecture();

/// Ends the process with this code when the context was lost. The exit handlers of the driver and of cuBLASLt give back what a
/// context held, and may crash or wait for ever where it is lost.
void end_if_lost(int code);

}  // namespace ingot::runtime::cuda
