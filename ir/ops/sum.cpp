#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  need_number(c, 0);
  const Type& x = c.type(0);
  const DType dtype = c.attrs().has("dtype") ? c.attrs().dtype("dtype") : x.dtype;
  if (is_float(dtype) != is_float(x.dtype) || dtype == DType::boolean) {
    c.fail("adds floats to a float and integers to an integer, but " + c.show(0) + " and dtype is " +
           std::string(dtype_name(dtype)) + "; cast the operand first");
  }
  c.result({dtype, reduced_shape(x.shape, c.attrs().integers("axes"), c.attrs().boolean("keep"))});
}

void reference(ReferenceContext& c) {
  const Tensor& x = c.operand(0);
  const Shape kept = reduced_shape(x.type.shape, c.attrs.integers("axes"), true);
  IndexWalk walk(x.type.shape, {broadcast_strides(kept, x.type.shape)});
  for (const double value : x.data) {
    c.result(0).data[static_cast<size_t>(walk.at(0))] += value;
    walk.next();
  }
}

void gradient(GradientContext& c) {
  Builder& b = c.b();
  const Shape shape = b.shape(c.operand(0));
  const ValueId g = b.cast(c.grad(0), c.grad_dtype(0));
  const ValueId kept = b.reshape(g, reduced_shape(shape, c.attrs().integers("axes"), true));
  c.set(0, b.broadcast(kept, shape));
}

}  // namespace

void define_sum(OpTable& table);
void define_sum(OpTable& table) {
  OpDef& op = table.add("sum");
  op.summary = "Adds along axes, in f32 (integers as they are) and in an order fixed by the shapes.";
  op.operand("x", "numbers");
  op.optional_attr("axes", AttrKind::integers, "the axes to add along; all when left out; negative ones count from the end")
      .alias("axis");
  op.attr("keep", AttrKind::boolean, false, "keep the summed axes, 1 long");
  op.optional_attr("dtype", AttrKind::dtype, "dtype of the result; that of x when left out");
  op.result("y", "the shape of x without the axes (1 in their place with keep)");
  op.normalize = normalize_axes;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = ReduceLowering{Combine::sum};
  op.flops = flops_per_input;
  op.examples = {
      {"input %x: f32[2, 3, 4]\n%y = sum(%x) {axes: [1]}: f32[2, 4]"},
      {"input %x: f32[2, 3, 4]\n%y = sum(%x) {axes: [-1, 0], keep: true}: f32[1, 3, 1]"},
      {"input %x: f32[2, 3]\n%y = sum(%x): f32[]"},
      {"input %x: bf16[2, 3]\n%y = sum(%x) {axes: [-1], dtype: f32}: f32[2]"},
      {"input %x: i32[2, 3]\n%y = sum(%x) {axes: [0]}: i32[3]"},
      {"input %x: f32[3, 1]\n%y = sum(%x) {axes: [1]}: f32[3]"},
      {"input %x: f32[]\n%y = sum(%x): f32[]"},
      {"input %x: f32[2]\n%y = sum(%x) {axes: []}: f32[2]"},
  };
  op.rejects = {
      {"input %x: f32[2, 3]\n%y = sum(%x) {axes: [2]}: f32[2]", "axis 2 is outside -2..1: %x is f32[2, 3]"},
      {"input %x: f32[2, 3]\n%y = sum(%x) {axes: [1, -1]}: f32[2]", "axis 1 stands twice in axes"},
      {"input %x: bool[2, 3]\n%y = sum(%x): bool[]", "needs numbers, but %x is bool[2, 3]"},
      {"input %x: i32[2]\n%y = sum(%x) {dtype: f32}: f32[]", "%x is i32[2] and dtype is f32; cast the operand first"},
      {"input %x: f32[2]\n%y = sum(%x) {axes: true}: f32[]", "attribute 'axes' is a list of integers"},
  };
}

}  // namespace ingot::ir
