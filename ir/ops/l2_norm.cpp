// l2_norm: each row scaled to unit length, with a floor under the length.
#include <algorithm>

#include "ir/graph/builder.h"
#include "ir/ops/rows.h"

namespace ingot::ir {
namespace {

void infer(InferContext& ctx) {
  ctx.need_float(0);
  const Type& x = ctx.type(0);
  if (x.rank() < 1) ctx.fail("x needs at least one axis: " + ctx.show(0));
  if (!(ctx.attrs().real("eps") > 0)) ctx.fail("eps must be positive, or a row of zeros would be divided by zero");
  ctx.result(x);
  ctx.result({DType::f32, per_row(x.shape)});
}

void reference(ReferenceContext& ctx) {
  const Tensor& x = ctx.operand(0);
  const auto [count, width] = rows_of(x.type);
  for (int64_t r = 0; r < count; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += x.data[r * width + i] * x.data[r * width + i];
    const double norm = std::sqrt(squares), length = std::max(norm, ctx.attrs.real("eps"));
    for (int64_t i = 0; i < width; ++i) ctx.result(0).data[r * width + i] = x.data[r * width + i] / length;
    ctx.result(1).data[r] = norm;
  }
}

// dx = (dy - y sum(y dy)) / |x|, and dy / eps where |x| is below eps: there y is linear in x. Saves y, which its readers
// keep anyway, and one number a row.
void gradient(GradientContext& ctx) {
  refuse_gradient_of(ctx, 1);
  Builder& b = ctx.b();
  const ValueId eps = b.constant(ctx.attrs().real("eps"));
  const ValueId norm = ctx.result(1);
  const ValueId dy = to_f32(b, ctx.grad(0));
  const ValueId y = to_f32(b, ctx.result(0));
  const ValueId along = row_sum(b, b.mul(y, dy));
  const ValueId is_short = b.make("lt", {norm, eps});
  const ValueId sideways = b.sub(dy, b.mul(y, b.select(is_short, b.constant(0), along)));
  const ValueId dx = b.div(sideways, b.make("maximum", {norm, eps}));
  ctx.set(0, b.cast(dx, ctx.grad_dtype(0)));
}

std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const ValueId x = to_f32(b, ctx.operands[0]);
  const ValueId norm = b.make("sqrt", {row_sum(b, b.make("square", {x}))});
  const ValueId y = b.div(x, b.make("maximum", {norm, b.constant(ctx.attrs().real("eps"))}));
  return {b.cast(y, ctx.result_types[0].dtype), norm};
}

}  // namespace

void define_l2_norm(OpTable& table) {
  OpDef& op = table.add("l2_norm");
  op.summary = "y = x / max(|x|, eps) over the last axis, |x| the Euclidean length.";
  op.operand("x", "[..., n]");
  op.attr("eps", AttrKind::real, 1e-12, "the smallest length divided by");
  op.result("y", "[..., n], x's dtype");
  op.hidden_result("norm", "f32 [..., 1]: |x|");
  op.levels = kModelAndTrain;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = DecomposeLowering{decompose};
  op.examples = {
      {"input %x: f32[2, 3, 4]\n%y, %n = l2_norm(%x) {eps: 1e-12}: f32[2, 3, 4], f32[2, 3, 1]", 0.2, 1},
      // Every row is shorter than eps.
      {"input %x: f32[3, 4]\n%y, %n = l2_norm(%x) {eps: 10.0}: f32[3, 4], f32[3, 1]"},
      // A row of zeros: zero, and no NaN.
      {"input %x: f32[2, 4]\n%y, %n = l2_norm(%x) {eps: 0.5}: f32[2, 4], f32[2, 1]", 0, 0},
      {"input %x: bf16[2, 4]\n%y, %n = l2_norm(%x) {eps: 1e-12}: bf16[2, 4], f32[2, 1]", 0.2, 1},
  };
  op.rejects = {
      {"input %x: i32[4]\n%y, %n = l2_norm(%x): f32[4], f32[1]", "l2_norm"},
      {"input %x: f32[4]\n%y, %n = l2_norm(%x) {eps: 0.0}: f32[4], f32[1]", "eps must be positive"},
  };
}

}  // namespace ingot::ir
