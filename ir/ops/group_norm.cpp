// group_norm: layer_norm over each of `groups` equal runs of the last axis, with a weight and a bias for every element.
#include "ir/graph/builder.h"
#include "ir/ops/rows.h"

namespace ingot::ir {
namespace {

/// [..., C] -> [..., groups, C / groups].
Shape grouped(Shape shape, int64_t groups) {
  const int64_t width = shape.back() / groups;
  shape.back() = groups;
  shape.push_back(width);
  return shape;
}

void infer(InferContext& ctx) {
  for (int i = 0; i < 3; ++i) ctx.need_float(i);
  const Type& x = ctx.type(0);
  const int64_t groups = ctx.attrs().integer("groups");
  if (x.rank() < 1) ctx.fail("x needs at least one axis: " + ctx.show(0));
  if (groups < 1 || x.shape.back() % groups != 0) {
    ctx.fail("groups = " + std::to_string(groups) + " does not divide the last axis of x: " + ctx.show(0));
  }
  ctx.need_shape(1, {x.shape.back()}, "one weight for each element of the last axis of x");
  ctx.need_shape(2, {x.shape.back()}, "one bias for each element of the last axis of x");
  ctx.result(x);
  ctx.result({DType::f32, per_row(grouped(x.shape, groups))});
  ctx.result({DType::f32, per_row(grouped(x.shape, groups))});
}

void reference(ReferenceContext& ctx) {
  const Tensor& x = ctx.operand(0);
  const int64_t channels = x.type.shape.back(), width = channels / ctx.attrs.integer("groups");
  for (int64_t r = 0; r < x.type.elements() / width; ++r) {
    const Moments m = reference_moments(&x.data[r * width], width, ctx.attrs.real("eps"));
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = r * width + i, channel = at % channels;
      const double xhat = (x.data[at] - m.mean) * m.rstd;
      ctx.result(0).data[at] = xhat * ctx.operand(1).data[channel] + ctx.operand(2).data[channel];
    }
    ctx.result(1).data[r] = m.mean;
    ctx.result(2).data[r] = m.rstd;
  }
}

// Saves x and two numbers a group, as layer_norm does.
void gradient(GradientContext& ctx) {
  refuse_gradient_of(ctx, 1);
  refuse_gradient_of(ctx, 2);
  Builder& b = ctx.b();
  const ValueId dy = to_f32(b, ctx.grad(0));
  if (ctx.wants(2)) ctx.set(2, dy);
  if (!ctx.wants(0) && !ctx.wants(1)) return;
  const int64_t groups = ctx.attrs().integer("groups");
  const Shape flat = b.shape(ctx.operand(0)), split = grouped(flat, groups);
  const ValueId rstd = ctx.result(2);
  const ValueId x = b.reshape(to_f32(b, ctx.operand(0)), split);
  const ValueId xhat = b.mul(b.sub(x, ctx.result(1)), rstd);
  if (ctx.wants(1)) ctx.set(1, b.mul(dy, b.reshape(xhat, flat)));
  if (!ctx.wants(0)) return;
  const ValueId g = b.reshape(b.mul(dy, to_f32(b, ctx.operand(1))), split);
  const ValueId dx = b.reshape(normalised_gradient(b, g, xhat, rstd), flat);
  ctx.set(0, b.cast(dx, ctx.grad_dtype(0)));
}

std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const Shape flat = b.shape(ctx.operands[0]);
  const ValueId x = b.reshape(to_f32(b, ctx.operands[0]), grouped(flat, ctx.attrs().integer("groups")));
  const RowMoments m = row_moments(b, x, ctx.attrs().real("eps"));
  const ValueId xhat = b.reshape(b.mul(m.centred, m.rstd), flat);
  const ValueId scaled = b.mul(xhat, to_f32(b, ctx.operands[1]));
  const ValueId y = b.add(scaled, to_f32(b, ctx.operands[2]));
  return {b.cast(y, ctx.result_types[0].dtype), m.mean, m.rstd};
}

}  // namespace

void define_group_norm(OpTable& table) {
  OpDef& op = table.add("group_norm");
  op.summary =
      "Splits the last axis into `groups` equal runs and normalises each by its own mean and biased variance: "
      "y = (x - mean) / sqrt(variance + eps) * weight + bias (Wu, He 2018, with every position normalised by itself).";
  op.operand("x", "[..., n]");
  op.operand("weight", "[n]");
  op.operand("bias", "[n]");
  op.attr("groups", AttrKind::integer, "number of groups; divides n");
  op.attr("eps", AttrKind::real, 1e-5, "added to the variance");
  op.result("y", "[..., n], x's dtype");
  op.hidden_result("mean", "f32 [..., groups, 1]");
  op.hidden_result("rstd", "f32 [..., groups, 1]: 1 / sqrt(variance + eps)");
  op.levels = kModelAndTrain;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = DecomposeLowering{decompose};
  const std::string parameters = "input %w: f32[6]\ninput %c: f32[6]\n";
  op.examples = {
      {"input %x: f32[2, 3, 6]\n" + parameters +
       "%y, %m, %s = group_norm(%x, %w, %c) {groups: 2, eps: 0.00064}: f32[2, 3, 6], f32[2, 3, 2, 1], f32[2, 3, 2, 1]"},
      {"input %x: f32[2, 6]\n" + parameters +
       "%y, %m, %s = group_norm(%x, %w, %c) {groups: 1, eps: 1e-05}: f32[2, 6], f32[2, 1, 1], f32[2, 1, 1]"},
      {"input %x: f32[2, 6]\n" + parameters +
       "%y, %m, %s = group_norm(%x, %w, %c) {groups: 6, eps: 1e-05}: f32[2, 6], f32[2, 6, 1], f32[2, 6, 1]"},
      {"input %x: bf16[2, 6]\n" + parameters +
       "%y, %m, %s = group_norm(%x, %w, %c) {groups: 3, eps: 1e-05}: bf16[2, 6], f32[2, 3, 1], f32[2, 3, 1]"},
  };
  op.rejects = {
      {"input %x: f32[2, 6]\n" + parameters +
           "%y, %m, %s = group_norm(%x, %w, %c) {groups: 4}: f32[2, 6], f32[2, 4, 1], f32[2, 4, 1]",
       "does not divide"},
      {"input %x: f32[2, 8]\n" + parameters +
           "%y, %m, %s = group_norm(%x, %w, %c) {groups: 2}: f32[2, 8], f32[2, 2, 1], f32[2, 2, 1]",
       "one weight"},
  };
}

}  // namespace ingot::ir
