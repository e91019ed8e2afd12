// mean: a sum divided by the number of elements, in f32.
#include "ir/graph/builder.h"
#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

int64_t elements_averaged(const Shape& shape, const Attrs& attrs) {
  int64_t n = 1;
  for (const int64_t axis : attrs.integers("axes")) n *= shape[static_cast<size_t>(axis)];
  return n;
}

void infer(InferContext& ctx) {
  ctx.need_float(0);
  const Type& x = ctx.type(0);
  if (elements_averaged(x.shape, ctx.attrs()) == 0) ctx.fail("the mean of no elements is undefined: " + ctx.show(0));
  ctx.result({x.dtype, reduced_shape(x.shape, ctx.attrs().integers("axes"), ctx.attrs().boolean("keep"))});
}

void reference(ReferenceContext& ctx) {
  const Tensor& x = ctx.operand(0);
  const Shape kept = reduced_shape(x.type.shape, ctx.attrs.integers("axes"), true);
  Tensor& y = ctx.result(0);
  IndexWalk walk(x.type.shape, {broadcast_strides(kept, x.type.shape)});
  for (const double value : x.data) {
    y.data[static_cast<size_t>(walk.at(0))] += value;
    walk.next();
  }
  for (double& value : y.data) value /= static_cast<double>(elements_averaged(x.type.shape, ctx.attrs));
}

void gradient(GradientContext& ctx) {
  Builder& b = ctx.b();
  const Shape shape = b.shape(ctx.operand(0));
  const double n = static_cast<double>(elements_averaged(shape, ctx.attrs()));
  const ValueId dy = b.reshape(b.cast(ctx.grad(0), DType::f32), reduced_shape(shape, ctx.attrs().integers("axes"), true));
  ctx.set(0, b.broadcast(b.cast(b.div(dy, b.constant(n)), ctx.grad_dtype(0)), shape));
}

std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const ValueId x = ctx.operands[0];
  const double n = static_cast<double>(elements_averaged(b.shape(x), ctx.attrs()));
  const ValueId sum = b.sum(x, ctx.attrs().integers("axes"), ctx.attrs().boolean("keep"), DType::f32);
  return {b.cast(b.div(sum, b.constant(n)), ctx.result_types[0].dtype)};
}

}  // namespace

void define_mean(OpTable& table) {
  OpDef& op = table.add("mean");
  op.summary = "Arithmetic mean over some axes (all when none are named), summed and divided in f32.";
  op.operand("x", "floats");
  op.optional_attr("axes", AttrKind::integers, "axes to average over; absent: all").alias("axis");
  op.attr("keep", AttrKind::boolean, false, "keep the averaged axes with size 1");
  op.result("y", "the means");
  op.levels = kModelAndTrain;
  op.normalize = normalize_axes;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = DecomposeLowering{decompose};
  op.examples = {
      {"input %x: f32[2, 3, 4]\n%y = mean(%x) {axes: [1], keep: false}: f32[2, 4]"},
      {"input %x: f32[2, 3, 4]\n%y = mean(%x) {axes: [0, 2], keep: true}: f32[1, 3, 1]"},
      {"input %x: bf16[2, 3]\n%y = mean(%x) {axes: [0, 1], keep: false}: bf16[]"},
      {"input %x: f32[1]\n%y = mean(%x) {axes: [0], keep: false}: f32[]"},
  };
  op.rejects = {
      {"input %x: i32[2]\n%y = mean(%x): i32[]", "mean"},
      {"input %x: f32[2, 3]\n%y = mean(%x) {axes: [2]}: f32[2]", "axis"},
      {"input %x: f32[2, 3]\n%y = mean(%x) {axes: [1, -1]}: f32[2]", "stands twice"},
  };
}

}  // namespace ingot::ir
