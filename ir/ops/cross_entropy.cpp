// cross_entropy: the loss of a language model, as a sum and the number of rows it was summed over.
#include "ir/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/ops/rows.h"

namespace ingot::ir {
namespace {

constexpr int kLoss = 0, kCount = 1, kLse = 2;

void infer(InferContext& ctx) {
  need_logits_and_targets(ctx);
  ctx.result({DType::f32, {}});
  ctx.result({DType::f32, {}});
  ctx.result({DType::f32, ctx.type(1).shape});
}

void reference(ReferenceContext& ctx) {
  const Tensor& logits = ctx.operand(0);
  const auto [count, classes] = rows_of(logits.type);
  for (int64_t r = 0; r < count; ++r) {
    const double* row = &logits.data[r * classes];
    const double top = *std::max_element(row, row + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - top);
    ctx.result(kLse).data[r] = top + std::log(sum);
    const int64_t target = static_cast<int64_t>(ctx.operand(1).data[r]);
    if (target == ctx.attrs.integer("ignore")) continue;
    check(target >= 0 && target < classes, "cross_entropy: a target is neither a class nor `ignore`");
    ctx.result(kLoss).data[0] += std::log(sum) - (row[target] - top);
    ctx.result(kCount).data[0] += 1;
  }
}

void gradient(GradientContext& ctx) {
  refuse_gradient_of(ctx, kLse);
  if (ctx.grad(kLoss) == kNone) return;  // the count does not depend on the logits
  Builder& b = ctx.b();
  const ValueId dloss = to_f32(b, ctx.grad(kLoss));
  const ValueId dlogits = b.make("cross_entropy_grad", {ctx.operand(0), ctx.operand(1), ctx.result(kLse), dloss}, ctx.attrs());
  ctx.set(0, b.cast(dlogits, ctx.grad_dtype(0)));
}

ValueId sum_all(Builder& b, ValueId x) {
  std::vector<int64_t> axes(static_cast<size_t>(b.type(x).rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes.empty() ? x : b.sum(x, axes);
}

// -log p[target] = log(sum(exp(x - max))) - (x[target] - max). Where the loss is small this is a difference of small numbers;
// lse - x[target] would be one of large numbers.
std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const ValueId x = to_f32(b, ctx.operands[0]), targets = ctx.operands[1];
  const ValueId top = row_max(b, x);
  const ValueId below = b.sub(x, top);
  const ValueId log_sum = b.make("log", {row_sum(b, b.make("exp", {below}))});
  const ValueId hit = b.make("eq", {class_numbers(b, b.shape(x).back(), b.type(targets).dtype), beside_classes(b, targets)});
  const ValueId at_target = row_sum(b, b.select(hit, below, b.constant(0)));
  const ValueId losses = b.reshape(b.sub(log_sum, at_target), b.shape(targets));
  const ValueId valid = valid_rows(b, targets, ctx.attrs().integer("ignore"));
  return {sum_all(b, b.select(valid, losses, b.constant(0))), sum_all(b, b.cast(valid, DType::f32)),
          b.reshape(b.add(top, log_sum), b.shape(targets))};
}

}  // namespace

void define_cross_entropy(OpTable& table) {
  OpDef& op = table.add("cross_entropy");
  op.summary =
      "loss = sum over rows of -log softmax(logits)[target], in f32; rows whose target is `ignore` count for nothing. The loss "
      "is "
      "a sum: divide by `count`. With l2wrap > 0 the gradient of each counted row gets l2wrap * max(logits) at its first largest "
      "logit, which pulls logits towards zero (the value of the loss does not change).";
  op.operand("logits", "[..., classes]");
  op.operand("targets", "integers [...]: 0 .. classes - 1, or `ignore`");
  op.attr("ignore", AttrKind::integer, int64_t{-100}, "the target of rows that do not count");
  op.attr("l2wrap", AttrKind::real, 0.0, "strength of the pull on the largest logit");
  op.result("loss", "f32[]: the sum");
  op.result("count", "f32[]: how many rows counted");
  op.hidden_result("lse", "f32 [...]: log(sum(exp(logits))) of each row");
  op.levels = kModelAndTrain;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = DecomposeLowering{decompose};
  op.examples = {
      {"range t 0..4 or [-100]\ninput %x: f32[2, 3, 5]\ninput %t: i32[2, 3]\n"
       "%l, %n, %e = cross_entropy(%x, %t) {ignore: -100, l2wrap: 0.0}: f32[], f32[], f32[2, 3]"},
      // One class: nothing to learn.
      {"range t 0..0\ninput %x: f32[3, 1]\ninput %t: i32[3]\n"
       "%l, %n, %e = cross_entropy(%x, %t) {ignore: -100, l2wrap: 0.0}: f32[], f32[], f32[3]"},
      // None counts.
      {"range t -1..-1\ninput %x: f32[3, 4]\ninput %t: i64[3]\n"
       "%l, %n, %e = cross_entropy(%x, %t) {ignore: -1, l2wrap: 0.0}: f32[], f32[], f32[3]"},
      {"range t 0..2\ninput %x: f32[3]\ninput %t: i32[]\n"
       "%l, %n, %e = cross_entropy(%x, %t) {ignore: -100, l2wrap: 0.0}: f32[], f32[], f32[]"},
      // exp of these overflows f32.
      {"range t 0..3\ninput %x: f32[3, 4]\ninput %t: i32[3]\n"
       "%l, %n, %e = cross_entropy(%x, %t) {ignore: -100, l2wrap: 0.0}: f32[], f32[], f32[3]",
       190, 200},
      {"range t 0..3 or [-100]\ninput %x: bf16[3, 4]\ninput %t: i32[3]\n"
       "%l, %n, %e = cross_entropy(%x, %t) {ignore: -100, l2wrap: 0.0}: f32[], f32[], f32[3]"},
      // The pull is not the derivative of the loss: values only.
      {"range t 0..3\ninput %x: f32[3, 4]\ninput %t: i32[3]\n"
       "%l, %n, %e = cross_entropy(%x, %t) {ignore: -100, l2wrap: 0.5}: f32[], f32[], f32[3]",
       -1, 1, false},
  };
  op.rejects = {
      {"input %x: f32[2, 3]\ninput %t: i32[3]\n%l, %n, %e = cross_entropy(%x, %t): f32[], f32[], f32[3]",
       "one target for each row"},
      {"input %x: f32[2, 3]\ninput %t: f32[2]\n%l, %n, %e = cross_entropy(%x, %t): f32[], f32[], f32[2]", "cross_entropy"},
  };
}

}  // namespace ingot::ir
