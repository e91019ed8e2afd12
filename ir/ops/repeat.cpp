#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  const int64_t times = c.attrs().integer("times");
  Shape shape = c.type(0).shape;
  int64_t& size = shape[static_cast<size_t>(c.attrs().integer("axis"))];
  if (times < 1 || times > (int64_t{1} << 40) / size) {
    c.fail("times must be at least 1 and leave the axis countable, but it is " + std::to_string(times) + " and " + c.show(0));
  }
  size *= times;
  c.result({c.type(0).dtype, shape});
}

/// x as [outer, n, 1, inner]; y is [outer, n, times, inner].
struct Split {
  int64_t outer, n, inner;
  Split(const Shape& shape, int64_t axis)
      : outer(count_between(shape, 0, static_cast<size_t>(axis))),
        n(shape[static_cast<size_t>(axis)]),
        inner(count_between(shape, static_cast<size_t>(axis) + 1, shape.size())) {}
};

void reference(ReferenceContext& c) {
  const Tensor& x = c.operand(0);
  const int64_t times = c.attrs.integer("times");
  const Split s(x.type.shape, c.attrs.integer("axis"));
  size_t at = 0;
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t k = 0; k < s.n * times; ++k) {
      for (int64_t i = 0; i < s.inner; ++i)
        c.result(0).data[at++] = x.data[static_cast<size_t>((o * s.n + k / times) * s.inner + i)];
    }
  }
}

void gradient(GradientContext& c) {
  Builder& b = c.b();
  const Shape shape = b.shape(c.operand(0));
  const int64_t axis = c.attrs().integer("axis");
  Shape split = shape;
  split.insert(split.begin() + axis + 1, c.attrs().integer("times"));
  c.set(0, b.sum(b.reshape(c.grad(0), split), {axis + 1}, false, c.grad_dtype(0)));
}

View map(const Type& operand, const Type&, const Attrs& attrs) {
  const Split s(operand.shape, attrs.integer("axis"));
  return {{s.outer, s.n, attrs.integer("times"), s.inner}, {s.n * s.inner, s.inner, 0, 1}};
}

}  // namespace

void define_repeat(OpTable& table);
void define_repeat(OpTable& table) {
  OpDef& op = table.add("repeat");
  op.summary =
      "Each index along an axis, `times` in a row: y[..., k, ...] = x[..., k / times (rounded down), ...]. An index, not a copy: "
      "groups to heads.";
  op.operand("x", "anything");
  op.attr("times", AttrKind::integer, "how often each index comes");
  op.attr("axis", AttrKind::integer, "the axis; negative counts from the end");
  op.result("y", "the shape of x, the axis `times` as long");
  op.levels = kEverywhere;
  op.normalize = normalize_axis;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = ViewLowering{map};
  op.flops = no_flops;
  op.examples = {{"input %x: f32[2, 3, 4]\n%y = repeat(%x) {times: 2, axis: 1}: f32[2, 6, 4]"},
                 {"input %x: f32[2, 3]\n%y = repeat(%x) {times: 3, axis: -1}: f32[2, 9]"},
                 {"input %x: bf16[3]\n%y = repeat(%x) {times: 1, axis: 0}: bf16[3]"},
                 {"input %x: i32[2, 2]\n%y = repeat(%x) {times: 2, axis: 0}: i32[4, 2]"}};
  op.rejects = {{"input %x: f32[2]\n%y = repeat(%x) {times: 0, axis: 0}: f32[2]", "times must be at least 1"},
                {"input %x: f32[2]\n%y = repeat(%x) {times: 9223372036854775807, axis: 0}: f32[2]", "leave the axis countable"},
                {"input %x: f32[2]\n%y = repeat(%x) {times: 2, axis: 1}: f32[2]", "axis 1 is outside -1..0: %x is f32[2]"},
                {"input %x: f32[]\n%y = repeat(%x) {times: 2, axis: 0}: f32[2]", "repeat: axis 0 is outside"}};
}

}  // namespace ingot::ir
