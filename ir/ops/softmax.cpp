// softmax along one axis, the maximum subtracted first so that nothing overflows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/graph/builder.h"
#include "ir/ops/rows.h"
#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& ctx) {
  ctx.need_float(0);
  ctx.result(ctx.type(0));
}

void reference(ReferenceContext& ctx) {
  const Tensor& x = ctx.operand(0);
  Tensor& y = ctx.result(0);
  const size_t axis = static_cast<size_t>(ctx.attrs.integer("axis"));
  int64_t inner = 1;
  for (size_t d = axis + 1; d < x.type.shape.size(); ++d) inner *= x.type.shape[d];
  const int64_t n = x.type.shape[axis];
  for (int64_t line = 0; line < x.type.elements() / n; ++line) {
    const int64_t first = line / inner * inner * n + line % inner;
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < n; ++i) top = std::max(top, x.data[first + i * inner]);
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x.data[first + i * inner] - top);
    for (int64_t i = 0; i < n; ++i) y.data[first + i * inner] = std::exp(x.data[first + i * inner] - top) / sum;
  }
}

// dx = y (dy - sum(y dy)): only y is saved.
void gradient(GradientContext& ctx) {
  Builder& b = ctx.b();
  const ValueId y = to_f32(b, ctx.result(0)), dy = to_f32(b, ctx.grad(0));
  const ValueId along = b.sum(b.mul(y, dy), {ctx.attrs().integer("axis")}, true);
  ctx.set(0, b.cast(b.mul(y, b.sub(dy, along)), ctx.grad_dtype(0)));
}

std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const int64_t axis = ctx.attrs().integer("axis");
  const ValueId x = to_f32(b, ctx.operands[0]);
  const ValueId e = b.make("exp", {b.sub(x, b.max(x, {axis}, true))});
  return {b.cast(b.div(e, b.sum(e, {axis}, true)), ctx.result_types[0].dtype)};
}

}  // namespace

void define_softmax(OpTable& table) {
  OpDef& op = table.add("softmax");
  op.summary = "y = exp(x - max(x)) / sum(exp(x - max(x))) along one axis.";
  op.operand("x", "floats");
  op.attr("axis", AttrKind::integer, int64_t{-1}, "the axis that sums to 1");
  op.result("y", "x's type");
  op.levels = kModelAndTrain;
  op.normalize = normalize_axis;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = DecomposeLowering{decompose};
  op.examples = {
      {"input %x: f32[2, 3, 4]\n%y = softmax(%x) {axis: 2}: f32[2, 3, 4]"},
      {"input %x: f32[2, 3, 4]\n%y = softmax(%x) {axis: 1}: f32[2, 3, 4]", 95, 100},
      {"input %x: f32[3, 1]\n%y = softmax(%x) {axis: 1}: f32[3, 1]"},
      {"input %x: bf16[2, 4]\n%y = softmax(%x) {axis: 0}: bf16[2, 4]"},
  };
  op.rejects = {
      {"input %x: i32[4]\n%y = softmax(%x): i32[4]", "softmax"},
      {"input %x: f32[4]\n%y = softmax(%x) {axis: 1}: f32[4]", "axis"},
  };
}

}  // namespace ingot::ir
