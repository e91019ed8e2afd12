#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  if (c.type(0).rank() < 2) c.fail("moves rows along the second axis, so x must have at least 2, but " + c.show(0));
  c.result(c.type(0));
}

/// x as [batch, time, rest].
struct Split {
  int64_t batch, time, rest;
  explicit Split(const Shape& shape) : batch(shape[0]), time(shape[1]), rest(count_between(shape, 2, shape.size())) {}
};

void reference(ReferenceContext& c) {
  const Tensor& x = c.operand(0);
  const Split s(x.type.shape);
  const int64_t by = c.attrs.integer("by");
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t t = 0; t < s.time; ++t) {
      if (t < by || t - by >= s.time) continue;  // nothing there: zero
      for (int64_t r = 0; r < s.rest; ++r) {
        c.result(0).data[static_cast<size_t>((b * s.time + t) * s.rest + r)] =
            x.data[static_cast<size_t>((b * s.time + t - by) * s.rest + r)];
      }
    }
  }
}

void gradient(GradientContext& c) {
  Attrs back;
  back.set("by", -c.attrs().integer("by"));
  c.set(0, c.b().make("shift_rows", {c.grad(0)}, std::move(back)));
}

View map(const Type& operand, const Type&, const Attrs& attrs) {
  const Split s(operand.shape);
  return {{s.batch, s.time, s.rest}, {s.time * s.rest, s.rest, 1}, 0, 1, -attrs.integer("by")};
}

/// Beyond the length of the axis every shift is the same; this also keeps -by a number.
void normalize(Attrs& attrs, const InferContext& c) {
  if (c.type(0).rank() < 2) return;
  const int64_t time = c.type(0).shape[1];
  attrs.set("by", std::clamp(attrs.integer("by"), -time, time));
}

}  // namespace

void define_shift_rows(OpTable& table);
void define_shift_rows(OpTable& table) {
  OpDef& op = table.add("shift_rows");
  op.summary = "Moves rows along time: y[:, t] = x[:, t - by], and zero where there is no such row. by = 1 is the token shift.";
  op.operand("x", "[batch, time, ...]");
  op.attr("by", AttrKind::integer, "rows to move by; negative brings later rows forward");
  op.result("y", "the shape and dtype of x");
  op.levels = kEverywhere;
  op.normalize = normalize;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = ViewLowering{map};
  op.flops = no_flops;
  op.examples = {{"input %x: f32[2, 4, 3]\n%y = shift_rows(%x) {by: 1}: f32[2, 4, 3]"},
                 {"input %x: bf16[2, 4, 3]\n%y = shift_rows(%x) {by: -1}: bf16[2, 4, 3]"},
                 {"input %x: f32[2, 3]\n%y = shift_rows(%x) {by: 5}: f32[2, 3]"},
                 {"input %x: f32[2, 3, 2, 2]\n%y = shift_rows(%x) {by: 2}: f32[2, 3, 2, 2]"},
                 {"input %x: f32[2, 1, 3]\n%y = shift_rows(%x) {by: 1}: f32[2, 1, 3]"},
                 {"input %x: i32[2, 3]\n%y = shift_rows(%x) {by: 0}: i32[2, 3]"}};
  op.rejects = {{"input %x: f32[4]\n%y = shift_rows(%x) {by: 1}: f32[4]", "so x must have at least 2, but %x is f32[4]"}};
}

}  // namespace ingot::ir
