#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  const double value = c.attrs().real("value");
  const DType dtype = c.attrs().dtype("dtype");
  const std::string sides = attr_text(value) + " is not one";
  if (dtype == DType::boolean && value != 0 && value != 1) c.fail("a bool constant is 0 or 1; " + sides);
  if (dtype == DType::i32 && (value != std::trunc(value) || std::fabs(value) > 2147483647.0)) {
    c.fail("an i32 constant is a whole number between -2147483647 and 2147483647; " + sides);
  }
  // Beyond 2^53 the attribute itself could not hold every whole number.
  if (dtype == DType::i64 && (value != std::trunc(value) || std::fabs(value) > 9007199254740992.0)) {
    c.fail("an i64 constant is a whole number of at most 2^53; " + sides);
  }
  c.result({dtype, {}});
}

}  // namespace

void define_constant(OpTable& table);
void define_constant(OpTable& table) {
  OpDef& op = table.add("constant");
  op.summary = "One number, of rank 0: it broadcasts to any shape and, being of rank 0, leaves the dtype of what it meets alone.";
  op.attr("value", AttrKind::real, "the number");
  op.attr("dtype", AttrKind::dtype, DType::f32, "how it is stored");
  op.result("value", "the number");
  op.levels = kEverywhere;
  op.infer = infer;
  op.reference = [](ReferenceContext& c) { c.result(0).data[0] = c.attrs.real("value"); };
  op.gradient_is_zero = true;
  op.lowering = GenerateLowering{[](const Attrs&) { return std::string("p.value"); }};
  op.flops = no_flops;
  op.examples = {{"%c = constant() {value: 0.5}: f32[]"},
                 {"%c = constant() {value: -3.0, dtype: i32}: i32[]"},
                 {"%c = constant() {value: 1.0, dtype: bool}: bool[]"},
                 {"%c = constant() {value: -inf}: f32[]"},
                 {"%c = constant() {value: 0.1, dtype: bf16}: bf16[]"}};
  op.rejects = {{"%c = constant() {value: 0.5, dtype: i32}: i32[]", "an i32 constant is a whole number"},
                {"%c = constant() {value: 1e10, dtype: i32}: i32[]", "between -2147483647 and 2147483647; 1e+10 is not one"},
                {"%c = constant() {value: nan, dtype: i64}: i64[]", "an i64 constant is a whole number"},
                {"%c = constant() {value: 2.0, dtype: bool}: bool[]", "a bool constant is 0 or 1; 2.0 is not one"}};
}

}  // namespace ingot::ir
