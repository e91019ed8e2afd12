// Largest and smallest along axes.
#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  need_number(c, 0);
  const Type& x = c.type(0);
  c.result({x.dtype, reduced_shape(x.shape, c.attrs().integers("axes"), c.attrs().boolean("keep"))});
}

template <class Wins>
void reference(ReferenceContext& c, Wins&& wins) {
  const Tensor& x = c.operand(0);
  std::vector<double>& y = c.result(0).data;
  const Shape kept = reduced_shape(x.type.shape, c.attrs.integers("axes"), true);
  IndexWalk walk(x.type.shape, {broadcast_strides(kept, x.type.shape)});
  std::vector<bool> seen(y.size(), false);
  for (const double value : x.data) {
    const size_t at = static_cast<size_t>(walk.at(0));
    if (!seen[at] || wins(value, y[at]) || value != value) y[at] = value;
    seen[at] = true;
    walk.next();
  }
}

/// Everything that equals the result shares its gradient equally: no first one to look for, the same on every target.
void gradient(GradientContext& c) {
  Builder& b = c.b();
  const std::vector<int64_t> axes = c.attrs().integers("axes");
  const Shape kept = reduced_shape(b.shape(c.operand(0)), axes, true);
  const ValueId best = b.reshape(c.result(0), kept);
  const ValueId reached = b.make("eq", {c.operand(0), best});
  const ValueId winners = b.sum(b.cast(reached, DType::f32), axes, true);
  const ValueId share = b.div(b.reshape(c.grad(0), kept), winners);
  c.set(0, b.select(reached, share, b.constant(0)));
}

OpDef& define(OpTable& table, const std::string& name, const char* summary, Combine combine, const char* binary_form) {
  OpDef& op = table.add(name);
  op.summary = summary;
  op.operand("x", "numbers");
  op.optional_attr("axes", AttrKind::integers, "the axes to compare along; all when left out; negative ones count from the end")
      .alias("axis");
  op.attr("keep", AttrKind::boolean, false, "keep the compared axes, 1 long");
  op.result("y", "the shape of x without the axes (1 in their place with keep)");
  op.binary_form = binary_form;
  op.normalize = normalize_axes;
  op.infer = infer;
  op.gradient = gradient;
  op.lowering = ReduceLowering{combine};
  op.flops = flops_per_input;
  op.examples = {{"input %x: f32[2, 3, 4]\n%y = " + name + "(%x) {axes: [1]}: f32[2, 4]"},
                 {"input %x: f32[2, 3, 4]\n%y = " + name + "(%x) {axes: [0, -1], keep: true}: f32[1, 3, 1]"},
                 {"input %x: bf16[2, 3]\n%y = " + name + "(%x): bf16[]"},
                 {"input %x: f32[2, 3]\n%y = " + name + "(%x) {axes: [-1]}: f32[2]", -5, -2},
                 {"input %x: i32[2, 3]\n%y = " + name + "(%x) {axes: [0]}: i32[3]"}};
  op.rejects = {{"input %x: f32[2, 3]\n%y = " + name + "(%x) {axes: [-3]}: f32[2]", "axis -3 is outside -2..1: %x is f32[2, 3]"},
                {"input %x: bool[2, 3]\n%y = " + name + "(%x): bool[]", "needs numbers, but %x is bool[2, 3]"}};
  return op;
}

}  // namespace

void define_max_min(OpTable& table);
void define_max_min(OpTable& table) {
  define(table, "max", "The largest along axes, NaN when any is; equal ones share the gradient equally.", Combine::max, "maximum")
      .reference = [](ReferenceContext& c) { reference(c, [](double a, double b) { return a > b; }); };
  define(table, "min", "The smallest along axes, NaN when any is; equal ones share the gradient equally.", Combine::min,
         "minimum")
      .reference = [](ReferenceContext& c) { reference(c, [](double a, double b) { return a < b; }); };
}

}  // namespace ingot::ir
