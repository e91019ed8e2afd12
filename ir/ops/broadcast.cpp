#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  const Shape& shape = c.attrs().integers("shape");
  const std::optional<Shape> met = broadcast_shapes(c.type(0).shape, shape);
  if (!met || *met != shape) {
    c.fail("stretches axes that are 1 long and adds axes on the left, which does not lead to " + shape_text(shape) + ": " +
           c.show(0));
  }
  c.result({c.type(0).dtype, shape});
}

View map(const Type& operand, const Type& result, const Attrs&) {
  return {result.shape, broadcast_strides(operand.shape, result.shape)};
}

}  // namespace

void define_broadcast(OpTable& table);
void define_broadcast(OpTable& table) {
  OpDef& op = table.add("broadcast");
  op.summary = "Stretches axes that are 1 long and adds axes on the left, as elementwise ops do by themselves.";
  op.operand("x", "anything");
  op.attr("shape", AttrKind::integers, "the shape to stretch to");
  op.result("y", "the elements of x, repeated");
  op.levels = kEverywhere;
  op.infer = infer;
  op.reference = [](ReferenceContext& c) { elementwise_reference(c, [](const double* in, double* out) { out[0] = in[0]; }); };
  op.gradient = [](GradientContext& c) { c.set(0, c.grad(0)); };  // the engine sums over stretched axes
  op.lowering = ViewLowering{map};
  op.flops = no_flops;
  op.examples = {{"input %x: f32[2, 1, 3]\n%y = broadcast(%x) {shape: [4, 2, 5, 3]}: f32[4, 2, 5, 3]"},
                 {"input %x: bf16[3]\n%y = broadcast(%x) {shape: [2, 3]}: bf16[2, 3]"},
                 {"input %x: f32[]\n%y = broadcast(%x) {shape: [2, 2]}: f32[2, 2]"},
                 {"input %x: i32[2, 1]\n%y = broadcast(%x) {shape: [2, 3]}: i32[2, 3]"}};
  op.rejects = {
      {"input %x: f32[2, 3]\n%y = broadcast(%x) {shape: [2, 4]}: f32[2, 4]", "does not lead to [2, 4]: %x is f32[2, 3]"},
      {"input %x: f32[2, 3]\n%y = broadcast(%x) {shape: [3]}: f32[3]", "does not lead to [3]: %x is f32[2, 3]"},
      {"input %x: f32[2]\n%y = broadcast(%x) {shape: [1]}: f32[1]", "does not lead to [1]"}};
}

}  // namespace ingot::ir
