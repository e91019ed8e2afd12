#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  const size_t axis = static_cast<size_t>(c.attrs().integer("axis"));
  Type joined = c.type(0);
  for (int i = 1; i < c.operand_count(); ++i) {
    const Type& part = c.type(i);
    Type fits = c.type(0);
    if (part.rank() == fits.rank()) fits.shape[axis] = part.shape[axis];
    if (part != fits) {
      c.fail("parts must agree in dtype and in every axis but " + std::to_string(axis) + ", but " + c.show(0) + " and " +
             c.show(i));
    }
    joined.shape[axis] += part.shape[axis];
  }
  c.result(joined);
}

void reference(ReferenceContext& c) {
  const size_t axis = static_cast<size_t>(c.attrs.integer("axis"));
  const Shape& shape = c.result(0).type.shape;
  const int64_t outer = count_between(shape, 0, axis);
  size_t at = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (const Tensor* part : c.in) {
      const int64_t run = count_between(part->type.shape, axis, shape.size());
      for (int64_t i = 0; i < run; ++i) c.result(0).data[at++] = part->data[static_cast<size_t>(o * run + i)];
    }
  }
}

void gradient(GradientContext& c) {
  const size_t axis = static_cast<size_t>(c.attrs().integer("axis"));
  Builder& b = c.b();
  std::vector<int64_t> starts(b.shape(c.operand(0)).size(), 0);
  for (size_t i = 0; i < c.op().operands.size(); ++i) {
    const Shape sizes = b.shape(c.operand(static_cast<int>(i)));
    if (c.wants(static_cast<int>(i))) c.set(static_cast<int>(i), b.slice(c.grad(0), starts, sizes));
    starts[axis] += sizes[axis];
  }
}

}  // namespace

void define_concat(OpTable& table);
void define_concat(OpTable& table) {
  OpDef& op = table.add("concat");
  op.summary = "Writes parts one after another along an axis.";
  op.variadic_operand("parts", "one or more, alike in dtype and in every other axis");
  op.attr("axis", AttrKind::integer, "the axis to join along; negative counts from the end");
  op.result("y", "all parts");
  op.normalize = normalize_axis;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = PackLowering{};
  op.flops = no_flops;
  op.examples = {
      {"input %a: f32[2, 3]\ninput %b: f32[2, 1]\ninput %c: f32[2, 2]\n%y = concat(%a, %b, %c) {axis: -1}: f32[2, 6]"},
      {"input %a: bf16[2, 3]\ninput %b: bf16[1, 3]\n%y = concat(%a, %b) {axis: 0}: bf16[3, 3]"},
      {"input %a: f32[2, 1, 3]\n%y = concat(%a, %a) {axis: 1}: f32[2, 2, 3]"},
      {"input %a: i32[2]\ninput %b: i32[3]\n%y = concat(%a, %b) {axis: 0}: i32[5]"},
      {"input %a: f32[2]\n%y = concat(%a) {axis: 0}: f32[2]"},
  };
  op.rejects = {
      {"input %a: f32[2, 3]\ninput %b: f32[3, 3]\n%y = concat(%a, %b) {axis: 1}: f32[2, 6]",
       "must agree in dtype and in every axis but 1, but %a is f32[2, 3] and %b is f32[3, 3]"},
      {"input %a: f32[2]\ninput %b: bf16[2]\n%y = concat(%a, %b) {axis: 0}: f32[4]", "%a is f32[2] and %b is bf16[2]"},
      {"input %a: f32[2]\ninput %b: f32[2, 2]\n%y = concat(%a, %b) {axis: 0}: f32[4]", "%a is f32[2] and %b is f32[2, 2]"},
      {"input %a: f32[2]\n%y = concat(%a) {axis: 1}: f32[2]", "axis 1 is outside -1..0"},
      {"%y = concat() {axis: 0}: f32[2]", "needs at least 1 operands"},
  };
}

}  // namespace ingot::ir
