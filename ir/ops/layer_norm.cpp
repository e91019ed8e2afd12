// layer_norm over the last axis (Ba, Kiros, Hinton 2016), biased variance.
#include "ir/graph/builder.h"
#include "ir/ops/rows.h"

namespace ingot::ir {
namespace {

void infer(InferContext& ctx) {
  for (int i = 0; i < 3; ++i) ctx.need_float(i);
  const Type& x = ctx.type(0);
  if (x.rank() < 1) ctx.fail("x needs at least one axis: " + ctx.show(0));
  ctx.need_shape(1, {x.shape.back()}, "one weight for each element of the last axis of x");
  ctx.need_shape(2, {x.shape.back()}, "one bias for each element of the last axis of x");
  ctx.result(x);
  ctx.result({DType::f32, per_row(x.shape)});
  ctx.result({DType::f32, per_row(x.shape)});
}

void reference(ReferenceContext& ctx) {
  const Tensor& x = ctx.operand(0);
  const auto [count, width] = rows_of(x.type);
  for (int64_t r = 0; r < count; ++r) {
    const Moments m = reference_moments(&x.data[r * width], width, ctx.attrs.real("eps"));
    for (int64_t i = 0; i < width; ++i) {
      const double xhat = (x.data[r * width + i] - m.mean) * m.rstd;
      ctx.result(0).data[r * width + i] = xhat * ctx.operand(1).data[i] + ctx.operand(2).data[i];
    }
    ctx.result(1).data[r] = m.mean;
    ctx.result(2).data[r] = m.rstd;
  }
}

// Saves x and two numbers a row; the normalised x is one multiply away.
void gradient(GradientContext& ctx) {
  refuse_gradient_of(ctx, 1);
  refuse_gradient_of(ctx, 2);
  Builder& b = ctx.b();
  const ValueId dy = to_f32(b, ctx.grad(0));
  if (ctx.wants(2)) ctx.set(2, dy);
  if (!ctx.wants(0) && !ctx.wants(1)) return;
  const ValueId rstd = ctx.result(2);
  const ValueId xhat = b.mul(b.sub(to_f32(b, ctx.operand(0)), ctx.result(1)), rstd);
  if (ctx.wants(1)) ctx.set(1, b.mul(dy, xhat));
  if (!ctx.wants(0)) return;
  const ValueId g = b.mul(dy, to_f32(b, ctx.operand(1)));
  ctx.set(0, b.cast(normalised_gradient(b, g, xhat, rstd), ctx.grad_dtype(0)));
}

std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const RowMoments m = row_moments(b, to_f32(b, ctx.operands[0]), ctx.attrs().real("eps"));
  const ValueId xhat = b.mul(m.centred, m.rstd);
  const ValueId scaled = b.mul(xhat, to_f32(b, ctx.operands[1]));
  const ValueId y = b.add(scaled, to_f32(b, ctx.operands[2]));
  return {b.cast(y, ctx.result_types[0].dtype), m.mean, m.rstd};
}

}  // namespace

void define_layer_norm(OpTable& table) {
  OpDef& op = table.add("layer_norm");
  op.summary = "y = (x - mean) / sqrt(variance + eps) * weight + bias over the last axis, biased variance.";
  op.operand("x", "[..., n]");
  op.operand("weight", "[n]");
  op.operand("bias", "[n]");
  op.attr("eps", AttrKind::real, 1e-5, "added to the variance");
  op.result("y", "[..., n], x's dtype");
  op.hidden_result("mean", "f32 [..., 1]");
  op.hidden_result("rstd", "f32 [..., 1]: 1 / sqrt(variance + eps)");
  op.levels = kModelAndTrain;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = DecomposeLowering{decompose};
  const std::string parameters = "input %w: f32[5]\ninput %c: f32[5]\n";
  op.examples = {
      {"input %x: f32[2, 3, 5]\n" + parameters +
       "%y, %m, %s = layer_norm(%x, %w, %c) {eps: 1e-05}: f32[2, 3, 5], f32[2, 3, 1], f32[2, 3, 1]"},
      {"input %x: bf16[2, 5]\n" + parameters +
       "%y, %m, %s = layer_norm(%x, %w, %c) {eps: 1e-05}: bf16[2, 5], f32[2, 1], f32[2, 1]"},
      // A large common offset must not swallow the variance.
      {"input %x: f32[2, 5]\n" + parameters + "%y, %m, %s = layer_norm(%x, %w, %c) {eps: 1e-05}: f32[2, 5], f32[2, 1], f32[2, 1]",
       100, 102},
      // One element a row: y is the bias, and x has no gradient.
      {"input %x: f32[3, 1]\ninput %w: f32[1]\ninput %c: f32[1]\n"
       "%y, %m, %s = layer_norm(%x, %w, %c) {eps: 1e-05}: f32[3, 1], f32[3, 1], f32[3, 1]"},
  };
  op.rejects = {
      {"input %x: f32[2, 4]\n" + parameters + "%y, %m, %s = layer_norm(%x, %w, %c): f32[2, 4], f32[2, 1], f32[2, 1]",
       "one weight"},
      {"input %x: i32[2, 5]\n" + parameters + "%y, %m, %s = layer_norm(%x, %w, %c): f32[2, 5], f32[2, 1], f32[2, 1]",
       "layer_norm"},
  };
}

}  // namespace ingot::ir
