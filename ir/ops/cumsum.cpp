#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void reference(ReferenceContext& c) {
  const Tensor& x = c.operand(0);
  const Shape& shape = x.type.shape;
  const size_t axis = static_cast<size_t>(c.attrs.integer("axis"));
  const bool reverse = c.attrs.boolean("reverse");
  const bool exclusive = c.attrs.boolean("exclusive");
  const int64_t n = shape[axis];
  const int64_t inner = count_between(shape, axis + 1, shape.size());
  const int64_t outer = count_between(shape, 0, axis);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      double total = 0;
      for (int64_t step = 0; step < n; ++step) {
        const int64_t k = reverse ? n - 1 - step : step;
        const size_t at = static_cast<size_t>((o * n + k) * inner + i);
        c.result(0).data[at] = exclusive ? total : total + x.data[at];
        total += x.data[at];
      }
    }
  }
}

/// What element k reached is what comes after it: the same sum from the other end.
void gradient(GradientContext& c) {
  Attrs attrs = c.attrs();
  attrs.set("reverse", !attrs.boolean("reverse"));
  c.set(0, c.b().make("cumsum", {c.grad(0)}, std::move(attrs)));
}

}  // namespace

void define_cumsum(OpTable& table);
void define_cumsum(OpTable& table) {
  OpDef& op = table.add("cumsum");
  op.summary = "Running sum along one axis: y[k] = x[0] + ... + x[k], accumulated in f32 (integers as they are).";
  op.operand("x", "numbers");
  op.attr("axis", AttrKind::integer, "the axis to add along; negative counts from the end");
  op.attr("reverse", AttrKind::boolean, false, "run from the end: y[k] = x[k] + ... + x[n-1]");
  op.attr("exclusive", AttrKind::boolean, false, "leave x[k] itself out of y[k]");
  op.result("y", "the shape and dtype of x");
  op.normalize = normalize_axis;
  op.infer = [](InferContext& c) {
    need_number(c, 0);
    c.result(c.type(0));
  };
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = ScanLowering{Combine::sum};
  op.examples = {
      {"input %x: f32[2, 5, 3]\n%y = cumsum(%x) {axis: 1}: f32[2, 5, 3]"},
      {"input %x: f32[2, 5]\n%y = cumsum(%x) {axis: -1, reverse: true}: f32[2, 5]"},
      {"input %x: f32[5, 2]\n%y = cumsum(%x) {axis: 0, exclusive: true}: f32[5, 2]"},
      {"input %x: bf16[5]\n%y = cumsum(%x) {axis: 0, exclusive: true, reverse: true}: bf16[5]"},
      {"input %x: i32[2, 3]\n%y = cumsum(%x) {axis: 1}: i32[2, 3]"},
      {"input %x: f32[2, 1]\n%y = cumsum(%x) {axis: 1}: f32[2, 1]"},
  };
  op.rejects = {{"input %x: f32[2, 3]\n%y = cumsum(%x) {axis: 2}: f32[2, 3]", "axis 2 is outside -2..1: %x is f32[2, 3]"},
                {"input %x: f32[2, 3]\n%y = cumsum(%x): f32[2, 3]", "attribute 'axis' is missing"},
                {"input %x: bool[2]\n%y = cumsum(%x) {axis: 0}: bool[2]", "needs numbers, but %x is bool[2]"}};
}

}  // namespace ingot::ir
