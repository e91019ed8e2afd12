#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

/// Transparent: the gradient passes, in the dtype the operand wants its own in. (Through an integer nothing passes.)
void gradient(GradientContext& c) {
  if (is_float(c.attrs().dtype("dtype"))) c.set(0, c.b().cast(c.grad(0), c.grad_dtype(0)));
}

}  // namespace

void define_cast(OpTable& table);
void define_cast(OpTable& table) {
  OpDef& op = table.add("cast");
  op.summary =
      "Stores x as another dtype: to a narrower float by rounding to the nearest (ties to even), to an integer by truncation, to "
      "bool by x != 0. It is a rounding the author asked for, so no pass removes it; gradients pass through it unrounded.";
  op.operand("x", "anything");
  op.attr("dtype", AttrKind::dtype, "the dtype to store");
  op.result("y", "the shape of x");
  op.infer = [](InferContext& c) { c.result({c.attrs().dtype("dtype"), c.type(0).shape}); };
  op.reference = [](ReferenceContext& c) {
    const DType dtype = c.attrs.dtype("dtype");
    const bool narrow = c.round && (dtype == DType::bf16 || dtype == DType::f16);
    elementwise_reference(c, [=](const double* in, double* out) { out[0] = narrow ? round_to(dtype, in[0]) : in[0]; });
  };
  op.gradient = gradient;
  op.lowering = ScalarLowering{{"a0"}};
  op.keeps_zeros = true;
  op.examples = {{"input %x: f32[2, 3]\n%y = cast(%x) {dtype: bf16}: bf16[2, 3]"},
                 {"input %x: bf16[2, 3]\n%y = cast(%x) {dtype: f32}: f32[2, 3]"},
                 {"input %x: f32[4]\n%y = cast(%x) {dtype: f16}: f16[4]"},
                 {"input %x: f32[4]\n%y = cast(%x) {dtype: i32}: i32[4]", -5, 5, false},
                 {"input %x: i32[4]\n%y = cast(%x) {dtype: f32}: f32[4]"},
                 {"input %x: bool[4]\n%y = cast(%x) {dtype: f32}: f32[4]"},
                 {"input %x: i32[4]\n%y = cast(%x) {dtype: bool}: bool[4]"}};
  op.rejects = {{"input %x: f32[2]\n%y = cast(%x): f32[2]", "dtype"}};
}

}  // namespace ingot::ir
