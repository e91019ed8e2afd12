// Values for inputs that nobody gives.
#pragma once
#include <cstdint>

#include "runtime/session.h"

namespace ingot::runtime {

/// Standard normal floats, integers uniform within the plan's range for that input; a function of the seed and the port's name.
HostTensor random_input(const ir::Plan& plan, const ir::Port& port, uint64_t seed);

}  // namespace ingot::runtime
