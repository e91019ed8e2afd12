#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  const Shape& shape = c.attrs().integers("shape");
  const int64_t have = c.type(0).elements();
  int64_t want = 1;
  for (const int64_t size : shape) {
    if (size < 1) c.fail("every axis must be at least 1 long, but the shape is " + shape_text(shape));
    want = size > have / want ? have + 1 : want * size;  // more than there are is enough to know
  }
  if (want != have) {
    c.fail("a reshape keeps the number of elements, but " + c.show(0) + " with " + std::to_string(have) +
           " elements and the shape is " + shape_text(shape));
  }
  c.result({c.type(0).dtype, shape});
}

}  // namespace

void define_reshape(OpTable& table);
void define_reshape(OpTable& table) {
  OpDef& op = table.add("reshape");
  op.summary = "The same elements in the same row-major order under another shape. Every size is written out: none is guessed.";
  op.operand("x", "anything");
  op.attr("shape", AttrKind::integers, "the new shape, with as many elements");
  op.result("y", "the elements of x");
  op.levels = kEverywhere;
  op.infer = infer;
  op.reference = [](ReferenceContext& c) { c.result(0).data = c.operand(0).data; };
  op.gradient = [](GradientContext& c) { c.set(0, c.b().reshape(c.grad(0), c.b().shape(c.operand(0)))); };
  op.lowering = ViewLowering{[](const Type&, const Type& result, const Attrs&) { return View{{result.elements()}, {1}}; }};
  op.flops = no_flops;
  op.examples = {{"input %x: f32[2, 6]\n%y = reshape(%x) {shape: [2, 3, 2]}: f32[2, 3, 2]"},
                 {"input %x: bf16[4]\n%y = reshape(%x) {shape: [2, 1, 2]}: bf16[2, 1, 2]"},
                 {"input %x: f32[1, 1]\n%y = reshape(%x) {shape: []}: f32[]"},
                 {"input %x: i32[2, 2]\n%y = reshape(%x) {shape: [4]}: i32[4]"}};
  op.rejects = {{"input %x: f32[2, 3]\n%y = reshape(%x) {shape: [4, 2]}: f32[4, 2]",
                 "%x is f32[2, 3] with 6 elements and the shape is [4, 2]"},
                {"input %x: f32[2, 3]\n%y = reshape(%x) {shape: [2, -1]}: f32[2, 3]",
                 "every axis must be at least 1 long, but the shape is [2, -1]"},
                {"input %x: f32[2]\n%y = reshape(%x) {shape: [4294967296, 4294967296]}: f32[2]", "keeps the number of elements"}};
}

}  // namespace ingot::ir
