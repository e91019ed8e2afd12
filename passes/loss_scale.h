// The loss scale of training in f16: the backward is seeded with it, so that small gradients keep their bits in a dtype whose
// least number is 6e-8. It is a state, halved when gradients overflowed and doubled after many steps in which none did.
//
// Losses are sums over positions, so the gradient of a logit is at most 1 before scaling (of a mean of N it would be 1/N): a
// scale of 2^10 leaves room below the largest f16, 65504, and 2^-24 * 2^-10 above its smallest.
#pragma once
#include <string>

#include "passes/pass.h"
#include "passes/util.h"

namespace ingot::passes {

inline constexpr double kFirstLossScale = 1024, kLeastLossScale = 1.0 / 16384, kMostLossScale = 16777216;
inline constexpr int kStepsToDouble = 2000;  ///< without an overflow

/// state %loss_scale: f32[]
ir::Variable loss_scale_variable(ir::Loc loc);

struct LossScaleSteps {
  ir::ValueId scale = ir::kNone;   ///< f32[]: of this step
  ir::ValueId finite = ir::kNone;  ///< bool[]: no gradient overflowed
  ir::ValueId ok = ir::kNone;      ///< bool[]: the step changes weights (finite, and some target counted)
};
/// Adds the updates of `loss_scale` and of `loss_scale.good`, the number of good steps since it last changed (i32[]); gives the
/// next scale. A step that counted no target changes neither.
ir::ValueId update_loss_scale(ir::Builder& b, PassContext& context, const LossScaleSteps& steps);

}  // namespace ingot::passes
