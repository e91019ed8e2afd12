// rms_norm over the last axis (Zhang, Sennrich 2019).
#include "ir/graph/builder.h"
#include "ir/ops/rows.h"

namespace ingot::ir {
namespace {

void infer(InferContext& ctx) {
  ctx.need_float(0);
  ctx.need_float(1);
  const Type& x = ctx.type(0);
  if (x.rank() < 1) ctx.fail("x needs at least one axis: " + ctx.show(0));
  ctx.need_shape(1, {x.shape.back()}, "one weight for each element of the last axis of x");
  ctx.result(x);
  ctx.result({DType::f32, per_row(x.shape)});
}

void reference(ReferenceContext& ctx) {
  const Tensor& x = ctx.operand(0);
  const auto [count, width] = rows_of(x.type);
  for (int64_t r = 0; r < count; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += x.data[r * width + i] * x.data[r * width + i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + ctx.attrs.real("eps"));
    for (int64_t i = 0; i < width; ++i) ctx.result(0).data[r * width + i] = x.data[r * width + i] * rstd * ctx.operand(1).data[i];
    ctx.result(1).data[r] = rstd;
  }
}

// dx = rstd * (g - xhat * mean(g * xhat)) with g = dy * weight. Saves x and one number a row.
void gradient(GradientContext& ctx) {
  refuse_gradient_of(ctx, 1);
  Builder& b = ctx.b();
  const ValueId dy = to_f32(b, ctx.grad(0));
  const ValueId rstd = ctx.result(1);
  const ValueId xhat = b.mul(to_f32(b, ctx.operand(0)), rstd);
  if (ctx.wants(1)) ctx.set(1, b.mul(dy, xhat));
  if (!ctx.wants(0)) return;
  const ValueId g = b.mul(dy, to_f32(b, ctx.operand(1)));
  const ValueId dx = b.mul(rstd, b.sub(g, b.mul(xhat, row_mean(b, b.mul(g, xhat)))));
  ctx.set(0, b.cast(dx, ctx.grad_dtype(0)));
}

std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const ValueId x = to_f32(b, ctx.operands[0]);
  const ValueId rstd = b.make("rsqrt", {b.add(row_mean(b, b.make("square", {x})), ctx.attrs().real("eps"))});
  const ValueId xhat = b.mul(x, rstd);
  const ValueId y = b.mul(xhat, to_f32(b, ctx.operands[1]));
  return {b.cast(y, ctx.result_types[0].dtype), rstd};
}

}  // namespace

void define_rms_norm(OpTable& table) {
  OpDef& op = table.add("rms_norm");
  op.summary = "y = x / sqrt(mean(x^2) + eps) * weight over the last axis.";
  op.operand("x", "[..., n]");
  op.operand("weight", "[n]");
  op.attr("eps", AttrKind::real, 1e-5, "added to the mean square");
  op.result("y", "[..., n], x's dtype");
  op.hidden_result("rstd", "f32 [..., 1]: 1 / sqrt(mean(x^2) + eps)");
  op.levels = kModelAndTrain;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = DecomposeLowering{decompose};
  op.examples = {
      {"input %x: f32[2, 3, 4]\ninput %w: f32[4]\n%y, %s = rms_norm(%x, %w) {eps: 1e-05}: f32[2, 3, 4], f32[2, 3, 1]"},
      {"input %x: f32[1]\ninput %w: f32[1]\n%y, %s = rms_norm(%x, %w) {eps: 0.1}: f32[1], f32[1]"},
      {"input %x: bf16[2, 4]\ninput %w: f32[4]\n%y, %s = rms_norm(%x, %w) {eps: 1e-05}: bf16[2, 4], f32[2, 1]"},
  };
  op.rejects = {
      {"input %x: f32[2, 4]\ninput %w: f32[2]\n%y, %s = rms_norm(%x, %w): f32[2, 4], f32[2, 1]", "one weight"},
  };
}

}  // namespace ingot::ir
