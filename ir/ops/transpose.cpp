#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void normalize(Attrs& attrs, const InferContext& c) {
  const int64_t rank = c.type(0).rank();
  std::vector<int64_t> perm = attrs.integers("perm");
  std::vector<bool> named(static_cast<size_t>(rank), false);
  bool each_once = static_cast<int64_t>(perm.size()) == rank;
  for (int64_t& axis : perm) {
    axis = c.axis(axis, rank);
    each_once = each_once && !named[static_cast<size_t>(axis)];
    named[static_cast<size_t>(axis)] = true;
  }
  if (!each_once) {
    c.fail("perm must name each of the " + std::to_string(rank) + " axes once, but it is " + shape_text(attrs.integers("perm")) +
           " and " + c.show(0));
  }
  attrs.set("perm", std::move(perm));
}

void infer(InferContext& c) {
  Shape shape;
  for (const int64_t axis : c.attrs().integers("perm")) shape.push_back(c.type(0).shape[static_cast<size_t>(axis)]);
  c.result({c.type(0).dtype, shape});
}

void reference(ReferenceContext& c) {
  const std::vector<int64_t>& perm = c.attrs.integers("perm");
  const Tensor& x = c.operand(0);
  const std::vector<int64_t> strides = dense_strides(x.type.shape);
  IndexWalk walk(c.result(0).type.shape, {});
  for (double& value : c.result(0).data) {
    int64_t from = 0;
    for (size_t k = 0; k < perm.size(); ++k) from += walk.index()[k] * strides[static_cast<size_t>(perm[k])];
    value = x.data[static_cast<size_t>(from)];
    walk.next();
  }
}

void gradient(GradientContext& c) {
  const std::vector<int64_t>& perm = c.attrs().integers("perm");
  std::vector<int64_t> back(perm.size());
  for (size_t k = 0; k < perm.size(); ++k) back[static_cast<size_t>(perm[k])] = static_cast<int64_t>(k);
  c.set(0, c.b().transpose(c.grad(0), std::move(back)));
}

View map(const Type& operand, const Type& result, const Attrs& attrs) {
  View view{result.shape, {}};
  const std::vector<int64_t> strides = dense_strides(operand.shape);
  for (const int64_t axis : attrs.integers("perm")) view.strides.push_back(strides[static_cast<size_t>(axis)]);
  return view;
}

}  // namespace

void define_transpose(OpTable& table);
void define_transpose(OpTable& table) {
  OpDef& op = table.add("transpose");
  op.summary = "Reorders axes: axis k of y is axis perm[k] of x.";
  op.operand("x", "anything");
  op.attr("perm", AttrKind::integers, "for each axis of y, the axis of x it is; negative ones count from the end");
  op.result("y", "the elements of x");
  op.levels = kEverywhere;
  op.normalize = normalize;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = ViewLowering{map};
  op.flops = no_flops;
  op.examples = {{"input %x: f32[2, 3, 4]\n%y = transpose(%x) {perm: [2, 0, 1]}: f32[4, 2, 3]"},
                 {"input %x: bf16[2, 3]\n%y = transpose(%x) {perm: [-1, 0]}: bf16[3, 2]"},
                 {"input %x: i32[2, 1, 3]\n%y = transpose(%x) {perm: [1, 0, 2]}: i32[1, 2, 3]"},
                 {"input %x: f32[]\n%y = transpose(%x) {perm: []}: f32[]"}};
  op.rejects = {
      {"input %x: f32[2, 3]\n%y = transpose(%x) {perm: [0]}: f32[2]", "perm must name each of the 2 axes once, but it is [0]"},
      {"input %x: f32[2, 3]\n%y = transpose(%x) {perm: [1, -1]}: f32[3, 3]", "but it is [1, -1] and %x is f32[2, 3]"},
      {"input %x: f32[2, 3]\n%y = transpose(%x) {perm: [0, 2]}: f32[2, 3]", "axis 2 is outside -2..1"}};
}

}  // namespace ingot::ir
