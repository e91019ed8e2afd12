#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void normalize(Attrs& attrs, const InferContext& c) {
  attrs.set("axis", c.axis(attrs.integer("axis"), static_cast<int64_t>(attrs.integers("shape").size())));
}

void infer(InferContext& c) {
  const DType dtype = c.attrs().dtype("dtype");
  if (dtype == DType::boolean) c.fail("counts, so dtype must be a number's, but it is bool");
  c.result({dtype, c.attrs().integers("shape")});
}

void reference(ReferenceContext& c) {
  const size_t axis = static_cast<size_t>(c.attrs.integer("axis"));
  Tensor& out = c.result(0);
  IndexWalk walk(out.type.shape, {});
  for (double& value : out.data) {
    value = static_cast<double>(walk.index()[axis]);
    walk.next();
  }
}

}  // namespace

void define_iota(OpTable& table);
void define_iota(OpTable& table) {
  OpDef& op = table.add("iota");
  op.summary = "Counts along one axis: result[..., i, ...] = i, the same along every other axis.";
  op.attr("shape", AttrKind::integers, "shape of the result");
  op.attr("axis", AttrKind::integer, "the axis to count along");
  op.attr("dtype", AttrKind::dtype, DType::i32, "how the counts are stored");
  op.result("value", "the counts");
  op.levels = kEverywhere;
  op.normalize = normalize;
  op.infer = infer;
  op.reference = reference;
  op.gradient_is_zero = true;
  op.lowering = GenerateLowering{[](const Attrs& attrs) { return "i" + std::to_string(attrs.integer("axis")); }};
  op.flops = no_flops;
  op.examples = {{"%i = iota() {shape: [2, 3], axis: 1}: i32[2, 3]"},
                 {"%i = iota() {shape: [2, 3, 2], axis: -3, dtype: f32}: f32[2, 3, 2]"},
                 {"%i = iota() {shape: [4], axis: 0, dtype: i64}: i64[4]"}};
  op.rejects = {{"%i = iota() {shape: [2, 3], axis: 2}: i32[2, 3]", "iota: axis 2 is outside -2..1"},
                {"%i = iota() {shape: [2, 0], axis: 0}: i32[2, 0]", "every axis must be at least 1 long"},
                {"%i = iota() {shape: [1000000000, 1000000000], axis: 0}: i32[1000000000, 1000000000]", "too large"},
                {"%i = iota() {shape: [2], axis: 0, dtype: bool}: bool[2]", "dtype must be a number's, but it is bool"}};
}

}  // namespace ingot::ir
