// adamw(lr, beta1, beta2, eps, decay): Adam with decoupled weight decay (Loshchilov, Hutter 2019), states m and v.
#include "passes/rules.h"

namespace ingot::passes {
namespace {

using ir::ValueId;

// 1 - beta^t as -expm1(t log beta): the power itself, near 1 in the first steps, would lose what the difference needs.
ValueId correction(RuleContext& c, const std::string& beta) {
  ir::Builder& b = c.b;
  const ValueId exponent = b.mul(c.step, b.make("log", {c.argument(beta)}));
  return b.neg(b.make("expm1", {exponent}));
}

void apply(RuleContext& c) {
  const ValueId m = c.state("m"), v = c.state("v");
  c.b.set_name("packed.new");
  const ir::Op& op =
      c.b.op("adamw", {c.value, c.gradient, m, v, c.argument("lr"), c.argument("decay"), c.argument("beta1"), c.argument("beta2"),
                       c.argument("eps"), c.scale, c.argument("correction1"), c.argument("correction2"), c.ok});
  const std::vector<ValueId> results = op.results;
  c.update("", results[0]);
  c.update("m", results[1]);
  c.update("v", results[2]);
}

}  // namespace

Rule adamw_rule() {
  Rule rule;
  rule.name = "adamw";
  rule.arguments = {"lr", "beta1", "beta2", "eps", "decay"};
  rule.shared = [](RuleContext& c) {
    c.b.set_name("correction1");
    const ValueId first = correction(c, "beta1");
    c.b.set_name("correction2");
    return std::map<std::string, ValueId>{{"correction1", first}, {"correction2", correction(c, "beta2")}};
  };
  rule.apply = apply;
  return rule;
}

}  // namespace ingot::passes
