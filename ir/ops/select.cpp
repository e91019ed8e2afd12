#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  need_bool(c, 0);
  const Type& yes = c.type(1);
  const Type& no = c.type(2);
  if ((yes.dtype == DType::boolean) != (no.dtype == DType::boolean)) {
    c.fail("chooses between two numbers or two bools, but " + c.show(1) + " and " + c.show(2));
  }
  const DType dtype = yes.dtype == DType::boolean ? DType::boolean : promote({yes, no});
  c.result({dtype, c.broadcast_all()});
}

void gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId zero = b.constant(0);
  if (c.wants(1)) c.set(1, b.select(c.operand(0), c.grad(0), zero));
  if (c.wants(2)) c.set(2, b.select(c.operand(0), zero, c.grad(0)));
}

}  // namespace

void define_select(OpTable& table);
void define_select(OpTable& table) {
  OpDef& op = table.add("select");
  op.summary =
      "Elementwise, broadcasting from the right: yes where condition is true, else no. What is not chosen does not matter, be "
      "it NaN, and gets no gradient.";
  op.operand("condition", "bools");
  op.operand("yes", "numbers, or bools");
  op.operand("no", "the same as yes");
  op.result("y", "the broadcast shape; the dtype yes and no meet in");
  op.infer = infer;
  op.reference = [](ReferenceContext& c) {
    elementwise_reference(c, [](const double* in, double* out) { out[0] = in[0] != 0 ? in[1] : in[2]; });
  };
  op.gradient = gradient;
  op.lowering = ScalarLowering{{"a0 ? a1 : a2"}};
  op.examples = {
      {"input %c: bool[2, 3]\ninput %a: f32[2, 3]\ninput %b: f32[2, 3]\n%y = select(%c, %a, %b): f32[2, 3]"},
      {"input %c: bool[2, 1]\ninput %a: bf16[3]\ninput %b: f32[]\n%y = select(%c, %a, %b): bf16[2, 3]"},
      {"input %c: bool[]\ninput %a: f32[2]\ninput %b: f32[2]\n%y = select(%c, %a, %b): f32[2]"},
      {"input %c: bool[3]\ninput %a: i32[3]\ninput %b: i32[]\n%y = select(%c, %a, %b): i32[3]"},
      {"input %c: bool[3]\ninput %a: bool[3]\ninput %b: bool[]\n%y = select(%c, %a, %b): bool[3]"},
  };
  op.rejects = {
      {"input %c: f32[2]\ninput %a: f32[2]\n%y = select(%c, %a, %a): f32[2]", "needs a bool, but %c is f32[2]"},
      {"input %c: bool[2]\ninput %a: f32[2]\n%y = select(%c, %a, %c): f32[2]",
       "chooses between two numbers or two bools, but %a is f32[2] and %c is bool[2]"},
      {"input %c: bool[2]\ninput %a: f32[3]\n%y = select(%c, %a, %a): f32[3]", "%a is f32[3]"},
  };
}

}  // namespace ingot::ir
