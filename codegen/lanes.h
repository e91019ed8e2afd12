// Calls side by side: which of several lanes each call of a program stands on, and which calls of other lanes it waits for.
//
//   lane 0   r1   dX1   r2   dX2   r3                r: regions, dX: gradients of activations, each needs the one before
//   lane 1             dW1        dW2                dW: gradients of weights, needed by nobody before the optimizer
//
// The list keeps its order, which is a valid serial order whatever the lanes. Times are estimates from the calls' flops and
// bytes; what is right never depends on them.
#pragma once
#include <vector>

#include "ir/plan/plan.h"

namespace ingot::codegen {

/// Fills in `lane` and `after` of the program's calls, whose buffers own bytes of their own (before temps are placed). Lane 0
/// holds the chain of calls that the list's end waits for. A call leaves it when, by the estimate, another lane is free and will
/// have finished it before anybody needs what it makes. It waits for all calls of lane 0 that stand before it, so it runs beside
/// those that stand behind it; and lane 0 waits for it where something needs it, or soon after the time when it should be done,
/// so that what it reads need not be kept much longer. Deterministic.
void spread_over_lanes(const ir::Plan& plan, ir::Program& program, int lanes);

/// Per call, the last call of the list that may begin before it has finished; itself when there is none. What it touches has to
/// keep until then: only calls behind that one may be given its bytes.
std::vector<int> ends_of_calls(const ir::Program& program);

}  // namespace ingot::codegen
