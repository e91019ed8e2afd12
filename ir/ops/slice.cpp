#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  const Shape& shape = c.type(0).shape;
  const std::vector<int64_t>& starts = c.attrs().integers("starts");
  const std::vector<int64_t>& sizes = c.attrs().integers("sizes");
  if (starts.size() != shape.size() || sizes.size() != shape.size()) {
    c.fail("starts and sizes name every axis, but " + c.show(0) + " and they are " + shape_text(starts) + " and " +
           shape_text(sizes));
  }
  for (size_t k = 0; k < shape.size(); ++k) {
    if (starts[k] >= 0 && sizes[k] >= 1 && sizes[k] <= shape[k] && starts[k] <= shape[k] - sizes[k]) continue;
    c.fail("axis " + std::to_string(k) + " from " + std::to_string(starts[k]) + ", " + std::to_string(sizes[k]) +
           " long, does not lie inside: " + c.show(0));
  }
  c.result({c.type(0).dtype, sizes});
}

void reference(ReferenceContext& c) {
  const Tensor& x = c.operand(0);
  const std::vector<int64_t>& starts = c.attrs.integers("starts");
  const std::vector<int64_t> strides = dense_strides(x.type.shape);
  IndexWalk walk(c.result(0).type.shape, {});
  for (double& value : c.result(0).data) {
    int64_t from = 0;
    for (size_t k = 0; k < starts.size(); ++k) from += (starts[k] + walk.index()[k]) * strides[k];
    value = x.data[static_cast<size_t>(from)];
    walk.next();
  }
}

/// The gradient with zeros around it, axis by axis.
void gradient(GradientContext& c) {
  Builder& b = c.b();
  const Shape shape = b.shape(c.operand(0));
  const std::vector<int64_t> starts = c.attrs().integers("starts");
  ValueId g = c.grad(0);
  for (size_t k = 0; k < shape.size(); ++k) {
    const Type now = b.type(g);
    const auto zeros = [&](int64_t size) {
      Type type = now;
      type.shape[k] = size;
      return b.full(0, type);
    };
    std::vector<ValueId> parts;
    if (starts[k] > 0) parts.push_back(zeros(starts[k]));
    parts.push_back(g);
    const int64_t after = shape[k] - starts[k] - now.shape[k];
    if (after > 0) parts.push_back(zeros(after));
    if (parts.size() > 1) g = b.concat(std::move(parts), static_cast<int64_t>(k));
  }
  c.set(0, g);
}

View map(const Type& operand, const Type& result, const Attrs& attrs) {
  View view{result.shape, dense_strides(operand.shape)};
  const std::vector<int64_t>& starts = attrs.integers("starts");
  for (size_t k = 0; k < starts.size(); ++k) view.offset += starts[k] * view.strides[k];
  return view;
}

}  // namespace

void define_slice(OpTable& table);
void define_slice(OpTable& table) {
  OpDef& op = table.add("slice");
  op.summary = "A box out of x: along axis k, sizes[k] elements from starts[k] on.";
  op.operand("x", "anything");
  op.attr("starts", AttrKind::integers, "the first index along each axis");
  op.attr("sizes", AttrKind::integers, "how many along each axis");
  op.result("y", "shape sizes");
  op.levels = kEverywhere;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = ViewLowering{map};
  op.flops = no_flops;
  op.examples = {{"input %x: f32[4, 5]\n%y = slice(%x) {starts: [1, 2], sizes: [2, 3]}: f32[2, 3]"},
                 {"input %x: f32[2, 5, 3]\n%y = slice(%x) {starts: [0, 0, 0], sizes: [2, 2, 3]}: f32[2, 2, 3]"},
                 {"input %x: bf16[5]\n%y = slice(%x) {starts: [4], sizes: [1]}: bf16[1]"},
                 {"input %x: i32[2, 3]\n%y = slice(%x) {starts: [0, 1], sizes: [1, 2]}: i32[1, 2]"}};
  op.rejects = {
      {"input %x: f32[4]\n%y = slice(%x) {starts: [3], sizes: [2]}: f32[2]",
       "axis 0 from 3, 2 long, does not lie inside: %x is f32[4]"},
      {"input %x: f32[4]\n%y = slice(%x) {starts: [-1], sizes: [1]}: f32[1]", "axis 0 from -1, 1 long, does not lie inside"},
      {"input %x: f32[4]\n%y = slice(%x) {starts: [0], sizes: [0]}: f32[1]", "axis 0 from 0, 0 long, does not lie inside"},
      {"input %x: f32[4, 2]\n%y = slice(%x) {starts: [0], sizes: [2]}: f32[2]", "starts and sizes name every axis"}};
}

}  // namespace ingot::ir
