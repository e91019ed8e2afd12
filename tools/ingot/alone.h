// One op of a program by itself: a fused region, most of all.
#pragma once
#include <string>

#include "ir/plan/plan.h"

namespace ingot::tools {

/// A plan whose program `program` is the one op of that program of `whole` that makes `value`, as it stands at level fused: its
/// operands are inputs, its results outputs (also those that the program has no use for). For whole's target; arch: what CPU
/// kernels may use. UserError where the plan does not keep that graph, no op makes the value, or nothing is computed for it.
ir::Plan alone(const ir::Plan& whole, const std::string& program, const std::string& value, const std::string& arch);

}  // namespace ingot::tools
