// A small gradient engine of the tests' own, so that a gradient rule is judged by itself and not together with passes/.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "ir/graph/builder.h"

namespace ingot::tests {

struct GradientOptions {
  /// Does this value of the old graph need a gradient? (Asked for float values only.)
  std::function<bool(ir::ValueId)> wants = [](ir::ValueId) { return true; };
  /// Ask for f32 gradients of 16-bit values, as the copy of a parameter does.
  bool in_f32 = false;
};

/// The graph again (at level train) and, behind it, the gradients of its float inputs: outputs "grad.<input>".
/// `seed` makes the gradient of a result of the last op in the new graph, or kNone. Sums over broadcast axes as the engine of
/// passes/ does; InternalError when a rule gives a gradient whose shape or dtype cannot be.
ir::Graph with_gradients(const ir::Graph& graph, const std::function<ir::ValueId(ir::Builder&, ir::ValueId)>& seed,
                         const GradientOptions& options = {});

}  // namespace ingot::tests
