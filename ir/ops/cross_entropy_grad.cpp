// cross_entropy_grad: softmax minus one-hot, and the pull of L2Wrap on the largest logit.
#include <algorithm>
#include <cmath>

#include "ir/ops/cross_entropy.h"
#include "ir/ops/rows.h"

namespace ingot::ir {
namespace {

void infer(InferContext& ctx) {
  need_logits_and_targets(ctx);
  ctx.need_float(2);
  ctx.need_shape(2, ctx.type(1).shape, "one log-sum for each row");
  ctx.need_float(3);
  ctx.need_rank(3, 0);
  ctx.result(ctx.type(0));
}

void reference(ReferenceContext& ctx) {
  const Tensor& logits = ctx.operand(0);
  const auto [count, classes] = rows_of(logits.type);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t target = static_cast<int64_t>(ctx.operand(1).data[r]);
    if (target == ctx.attrs.integer("ignore")) continue;
    const double* row = &logits.data[r * classes];
    const int64_t top = std::max_element(row, row + classes) - row;  // the first of equals
    for (int64_t c = 0; c < classes; ++c) {
      double g = std::exp(row[c] - ctx.operand(2).data[r]) - (c == target ? 1 : 0);
      if (c == top) g += ctx.attrs.real("l2wrap") * row[c];
      ctx.result(0).data[r * classes + c] = g * ctx.operand(3).data[0];
    }
  }
}

/// l2wrap * max at the first largest logit of each row, zero elsewhere.
ValueId pull(Builder& b, ValueId x, ValueId numbers, double l2wrap) {
  const ValueId top = row_max(b, x);
  const int64_t classes = b.shape(x).back();
  const ValueId past = b.constant(static_cast<double>(classes), b.type(numbers).dtype);
  Attrs last_axis_kept;
  last_axis_kept.set("axes", std::vector<int64_t>{last_axis(b, x)});
  last_axis_kept.set("keep", true);
  const ValueId first = b.make("min", {b.select(b.make("eq", {x, top}), numbers, past)}, last_axis_kept);
  const ValueId is_first = b.make("eq", {numbers, first});
  const ValueId strength = b.mul(top, l2wrap);
  return b.select(is_first, strength, b.constant(0));
}

std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const ValueId x = to_f32(b, ctx.operands[0]), targets = ctx.operands[1];
  const ValueId lse = to_f32(b, ctx.operands[2]), dloss = to_f32(b, ctx.operands[3]);
  const ValueId numbers = class_numbers(b, b.shape(x).back(), b.type(targets).dtype);
  const ValueId p = b.make("exp", {b.sub(x, beside_classes(b, lse))});
  const ValueId hit = b.make("eq", {numbers, beside_classes(b, targets)});
  ValueId g = b.sub(p, b.cast(hit, DType::f32));
  const double l2wrap = ctx.attrs().real("l2wrap");
  if (l2wrap != 0) g = b.add(g, pull(b, x, numbers, l2wrap));
  const ValueId valid = beside_classes(b, valid_rows(b, targets, ctx.attrs().integer("ignore")));
  const ValueId scaled = b.mul(g, dloss);
  return {b.cast(b.select(valid, scaled, b.constant(0)), ctx.result_types[0].dtype)};
}

}  // namespace

void define_cross_entropy_grad(OpTable& table) {
  OpDef& op = table.add("cross_entropy_grad");
  op.summary =
      "dlogits = (softmax(logits) - onehot(target) + l2wrap * max at the first largest logit) * dloss; zero in rows whose target "
      "is `ignore`.";
  op.operand("logits", "[..., classes]");
  op.operand("targets", "integers [...]");
  op.operand("lse", "f32 [...]: cross_entropy's third result");
  op.operand("dloss", "f32[]: gradient of the loss");
  op.attr("ignore", AttrKind::integer, int64_t{-100}, "the target of rows that do not count");
  op.attr("l2wrap", AttrKind::real, 0.0, "strength of the pull on the largest logit");
  op.result("dlogits", "logits' type");
  op.levels = kTrainOnly;
  op.infer = infer;
  op.reference = reference;
  op.lowering = DecomposeLowering{decompose};
  const std::string rest = "input %e: f32[3]\ninput %d: f32[]\n", inputs = "input %x: f32[3, 5]\ninput %t: i32[3]\n" + rest;
  op.examples = {
      {"range t 0..4 or [-100]\n" + inputs + "%g = cross_entropy_grad(%x, %t, %e, %d) {ignore: -100, l2wrap: 0.0}: f32[3, 5]"},
      {"range t 0..4 or [-100]\n" + inputs + "%g = cross_entropy_grad(%x, %t, %e, %d) {ignore: -100, l2wrap: 0.5}: f32[3, 5]"},
      // Every logit is the largest: the first one is pulled.
      {"range t 0..4\n" + inputs + "%g = cross_entropy_grad(%x, %t, %e, %d) {ignore: -100, l2wrap: 0.5}: f32[3, 5]", 0.75, 0.75},
      {"range t 0..0 or [-100]\ninput %x: f32[3, 1]\ninput %t: i32[3]\n" + rest +
       "%g = cross_entropy_grad(%x, %t, %e, %d) {ignore: -100, l2wrap: 0.5}: f32[3, 1]"},
      {"range t -1..-1\ninput %x: bf16[3, 5]\ninput %t: i64[3]\n" + rest +
       "%g = cross_entropy_grad(%x, %t, %e, %d) {ignore: -1, l2wrap: 0.5}: bf16[3, 5]"},
  };
  op.rejects = {
      {"input %x: f32[3, 5]\ninput %t: i32[3]\ninput %e: f32[2]\ninput %d: f32[]\n%g = cross_entropy_grad(%x, %t, %e, %d): "
       "f32[3, 5]",
       "one log-sum for each row"},
  };
}

}  // namespace ingot::ir
