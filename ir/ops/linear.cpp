// linear: x W^T (+ bias), the weight stored [out, in] as public checkpoints store it.
#include "ir/graph/builder.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {
namespace {

/// [..., n] as a matrix of rows, so that every product is one plain gemm whatever the leading axes are.
ValueId as_rows(Builder& b, ValueId x) {
  const Shape& shape = b.shape(x);
  const int64_t n = shape.back();
  return b.reshape(x, {b.type(x).elements() / n, n});
}

void infer(InferContext& ctx) {
  for (int i = 0; i < ctx.operand_count(); ++i)
    if (ctx.has(i)) ctx.need_float(i);
  ctx.need_rank(1, 2);
  const Type& x = ctx.type(0);
  const Type& weight = ctx.type(1);
  if (x.rank() < 1) ctx.fail("x needs at least one axis: " + ctx.show(0));
  if (x.shape.back() != weight.shape[1]) {
    ctx.fail("the last axis of x must equal the weight's second axis (weights are [out, in]): " + ctx.show(0) + ", " +
             ctx.show(1));
  }
  if (x.dtype != weight.dtype) ctx.fail("x and weight must have one dtype: " + ctx.show(0) + ", " + ctx.show(1));
  if (ctx.has(2)) ctx.need_shape(2, {weight.shape[0]}, "one bias for each output");
  Shape shape = x.shape;
  shape.back() = weight.shape[0];
  ctx.result({promote({x, weight}), shape});
}

void reference(ReferenceContext& ctx) {
  const Tensor& x = ctx.operand(0);
  const Tensor& weight = ctx.operand(1);
  Tensor& y = ctx.result(0);
  const int64_t out = weight.type.shape[0], in = weight.type.shape[1], rows = x.type.elements() / in;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = ctx.has(2) ? ctx.operand(2).data[o] : 0;
      for (int64_t i = 0; i < in; ++i) sum += x.data[r * in + i] * weight.data[o * in + i];
      y.data[r * out + o] = sum;
    }
  }
}

void gradient(GradientContext& ctx) {
  Builder& b = ctx.b();
  const ValueId x = ctx.operand(0), weight = ctx.operand(1);
  // The gemms run in the dtype the forward ran in.
  const ValueId dy = b.cast(ctx.grad(0), b.type(ctx.result(0)).dtype);
  const ValueId dy_rows = as_rows(b, dy);
  if (ctx.wants(0)) ctx.set(0, b.reshape(b.matmul(dy_rows, weight, false, false, ctx.grad_dtype(0)), b.shape(x)));
  if (ctx.wants(1)) ctx.set(1, b.matmul(dy_rows, as_rows(b, x), true, false, ctx.grad_dtype(1)));
  if (ctx.has(2) && ctx.wants(2)) ctx.set(2, dy);
}

std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const Type& type = ctx.result_types[0];
  const ValueId rows = as_rows(b, ctx.operands[0]);
  ValueId y = b.matmul(rows, ctx.operands[1], false, true, ctx.has(2) ? DType::f32 : type.dtype);
  if (ctx.has(2)) y = b.cast(b.add(y, ctx.operands[2]), type.dtype);
  return {b.reshape(y, type.shape)};
}

double flops(const Graph& graph, const Op& op) {
  return 2.0 * static_cast<double>(graph.type(op.results[0]).elements()) *
         static_cast<double>(graph.type(op.operands[1]).shape[1]);
}

}  // namespace

void define_linear(OpTable& table) {
  OpDef& op = table.add("linear");
  op.summary = "y = x W^T + bias over the last axis, summed in f32 and rounded once.";
  op.operand("x", "[..., in]");
  op.operand("weight", "[out, in]");
  op.optional_operand("bias", "[out]");
  op.result("y", "[..., out]");
  op.levels = kModelAndTrain;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = DecomposeLowering{decompose};
  op.flops = flops;
  op.examples = {
      {"input %x: f32[2, 3, 4]\ninput %w: f32[5, 4]\n%y = linear(%x, %w): f32[2, 3, 5]"},
      {"input %x: f32[3, 4]\ninput %w: f32[1, 4]\ninput %c: f32[1]\n%y = linear(%x, %w, %c): f32[3, 1]"},
      {"input %x: f32[4]\ninput %w: f32[2, 4]\n%y = linear(%x, %w): f32[2]"},
      {"input %x: bf16[2, 1, 4]\ninput %w: bf16[3, 4]\ninput %c: f32[3]\n%y = linear(%x, %w, %c): bf16[2, 1, 3]"},
  };
  op.rejects = {
      {"input %x: f32[2, 4]\ninput %w: f32[4, 5]\n%y = linear(%x, %w): f32[2, 5]", "weights are [out, in]"},
      {"input %x: bf16[2, 4]\ninput %w: f32[5, 4]\n%y = linear(%x, %w): f32[2, 5]", "must have one dtype"},
      {"input %x: f32[2, 4]\ninput %w: f32[5, 4]\ninput %c: f32[4]\n%y = linear(%x, %w, %c): f32[2, 5]",
       "one bias for each output"},
  };
}

}  // namespace ingot::ir
