#include "passes/loss_scale.h"

#include "ir/base/text.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::ValueId;

ir::Variable good_steps_variable(ir::Loc loc) {
  ir::Variable variable;
  variable.name = "loss_scale.good";
  variable.role = ir::VariableRole::state;
  variable.type = {DType::i32, {}};
  variable.loc = loc;
  return variable;
}

}  // namespace

ir::Variable loss_scale_variable(ir::Loc loc) {
  ir::Variable variable;
  variable.name = "loss_scale";
  variable.role = ir::VariableRole::state;
  variable.type = {DType::f32, {}};
  variable.init = ir::real_text(kFirstLossScale);
  variable.loc = loc;
  return variable;
}

ValueId update_loss_scale(ir::Builder& b, PassContext& context, const LossScaleSteps& steps) {
  const ir::Variable counter = good_steps_variable(b.loc());
  context.declare(counter);
  const ValueId good = b.variable(counter), zero = b.constant(0, DType::i32);
  b.set_name("good.new");
  const ValueId more = b.add(good, b.constant(1, DType::i32));
  const ValueId enough = b.make("ge", {more, b.constant(kStepsToDouble, DType::i32)});
  const ValueId counted = b.select(steps.ok, b.select(enough, zero, more), good);
  const ValueId next_good = b.select(steps.finite, counted, zero);
  b.set_name("loss_scale.new");
  const ValueId twice = b.make("minimum", {b.mul(steps.scale, 2.0), b.constant(kMostLossScale)});
  const ValueId half = b.make("maximum", {b.mul(steps.scale, 0.5), b.constant(kLeastLossScale)});
  const ValueId grown = b.select(b.make("logical_and", {steps.ok, enough}), twice, steps.scale);
  const ValueId next = b.select(steps.finite, grown, half);
  b.graph().add_update({"loss_scale", next, b.loc()});
  b.graph().add_update({counter.name, next_good, b.loc()});
  return next;
}

}  // namespace ingot::passes
