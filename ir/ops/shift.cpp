// shift: the token shift, one position along time.
#include "ir/graph/builder.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {
namespace {

constexpr int kX = 0, kState = 1, kStarts = 2, kY = 0, kLast = 1;

/// x is [B, T, ...]; what one position holds is [B, ...].
Shape one_position(const Shape& x) {
  Shape shape = x;
  shape.erase(shape.begin() + 1);
  return shape;
}

void infer(InferContext& ctx) {
  ctx.need_float(kX);
  const Type& x = ctx.type(kX);
  if (x.rank() < 2) ctx.fail("x must be [batch, time, ...]: " + ctx.show(kX));
  if (x.shape[1] < 1) ctx.fail("x needs at least one position in time: " + ctx.show(kX));
  const Shape position = one_position(x.shape);
  if (ctx.has(kState)) {
    ctx.need_float(kState);
    ctx.need_shape(kState, position, "the state is x at one position");
  }
  if (ctx.has(kStarts)) {
    ctx.need_integer(kStarts);
    ctx.need_shape(kStarts, {x.shape[0], x.shape[1]}, "starts marks positions [batch, time]");
  }
  ctx.result(x);
  // A carried state keeps its own dtype, so that what goes out can come in again.
  ctx.result({ctx.has(kState) ? ctx.type(kState).dtype : x.dtype, position});
}

void reference(ReferenceContext& ctx) {
  const Tensor& x = ctx.operand(kX);
  const int64_t batch = x.type.shape[0], time = x.type.shape[1], width = x.type.elements() / (batch * time);
  for (int64_t s = 0; s < batch; ++s) {
    for (int64_t t = 0; t < time; ++t) {
      if (ctx.has(kStarts) && ctx.operand(kStarts).data[s * time + t] != 0) continue;
      for (int64_t i = 0; i < width; ++i) {
        double& y = ctx.result(kY).data[(s * time + t) * width + i];
        if (t > 0)
          y = x.data[(s * time + t - 1) * width + i];
        else if (ctx.has(kState))
          y = ctx.operand(kState).data[s * width + i];
      }
    }
    for (int64_t i = 0; i < width; ++i) ctx.result(kLast).data[s * width + i] = x.data[(s * time + time - 1) * width + i];
  }
}

/// `y` with zeros where a document starts.
ValueId cut_at_starts(Builder& b, ValueId starts, ValueId y) {
  Shape shape(b.shape(y).size(), 1);
  shape[0] = b.shape(y)[0];
  shape[1] = b.shape(y)[1];
  const ValueId no_start = b.constant(0, b.type(starts).dtype);
  const ValueId is_start = b.make("ne", {b.reshape(starts, shape), no_start});
  return b.select(is_start, b.constant(0, b.type(y).dtype), y);
}

ValueId shift_rows(Builder& b, ValueId x, int64_t by) {
  Attrs attrs;
  attrs.set("by", by);
  return b.make("shift_rows", {x}, attrs);
}

/// Positions [first, first + count) of x.
ValueId positions(Builder& b, ValueId x, int64_t first, int64_t count) {
  Shape starts(b.shape(x).size(), 0), sizes = b.shape(x);
  starts[1] = first;
  sizes[1] = count;
  return b.slice(x, starts, sizes);
}

/// A [B, ...] value as the single position [B, 1, ...] of a sequence like x.
ValueId as_position(Builder& b, ValueId value, ValueId x) {
  Shape shape = b.shape(x);
  shape[1] = 1;
  return b.reshape(b.cast(value, b.type(x).dtype), shape);
}

ValueId join(Builder& b, ValueId first, ValueId second) { return b.concat({first, second}, 1); }

// dx[t] = dy[t + 1], and the last position's is that of `last`; dstate = dy[0].
void gradient(GradientContext& ctx) {
  Builder& b = ctx.b();
  const Type x = b.type(ctx.operand(kX));
  const int64_t time = x.shape[1];
  ValueId dy = ctx.grad(kY);
  if (dy != kNone && ctx.has(kStarts)) dy = cut_at_starts(b, ctx.operand(kStarts), dy);
  if (ctx.has(kState) && ctx.wants(kState) && dy != kNone) {
    ctx.set(kState, b.cast(b.reshape(positions(b, dy, 0, 1), one_position(x.shape)), ctx.grad_dtype(kState)));
  }
  if (!ctx.wants(kX)) return;
  const ValueId dlast = ctx.grad(kLast);
  if (dlast == kNone) {
    ctx.set(kX, b.cast(shift_rows(b, dy, -1), ctx.grad_dtype(kX)));
    return;
  }
  if (dy == kNone) dy = b.full(0, {ctx.grad_dtype(kX), x.shape});
  const ValueId end = as_position(b, dlast, dy);
  const ValueId dx = time == 1 ? end : join(b, positions(b, dy, 1, time - 1), end);
  ctx.set(kX, b.cast(dx, ctx.grad_dtype(kX)));
}

std::vector<ValueId> decompose(DecomposeContext& ctx) {
  Builder& b = ctx.b;
  const ValueId x = ctx.operands[kX];
  const int64_t time = b.shape(x)[1];
  ValueId y = kNone;
  if (!ctx.has(kState)) {
    y = shift_rows(b, x, 1);
  } else {
    const ValueId before = as_position(b, ctx.operands[kState], x);
    y = time == 1 ? before : join(b, before, positions(b, x, 0, time - 1));
  }
  if (ctx.has(kStarts)) y = cut_at_starts(b, ctx.operands[kStarts], y);
  ValueId last = kNone;
  if (ctx.used[kLast]) {
    const Type& type = ctx.result_types[kLast];
    last = b.cast(b.reshape(positions(b, x, time - 1, 1), type.shape), type.dtype);
  }
  return {y, last};
}

}  // namespace

void define_shift(OpTable& table) {
  OpDef& op = table.add("shift");
  op.summary =
      "y[t] = x[t - 1] along time. The first position gets the carried state, or zero; a document start gets zero and beats "
      "a carried state.";
  op.operand("x", "[batch, time, ...]");
  op.port_operand("state", "[batch, ...]: x at the position before the first");
  op.port_operand("starts", "i32 [batch, time]: nonzero where a document starts");
  op.result("y", "x's type");
  op.hidden_result("last", "[batch, ...]: x at the last position, the next window's state");
  op.levels = kModelAndTrain;
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = DecomposeLowering{decompose};
  op.carry = {{"state", "last"}};
  op.starts = "starts";
  op.examples = {
      {"input %x: f32[2, 4, 3]\n%y, %l = shift(%x): f32[2, 4, 3], f32[2, 3]"},
      {"input %x: f32[2, 4, 3]\ninput %s: f32[2, 3]\n%y, %l = shift(%x, %s): f32[2, 4, 3], f32[2, 3]"},
      {"input %x: f32[2, 1, 3]\ninput %s: f32[2, 3]\n%y, %l = shift(%x, %s): f32[2, 1, 3], f32[2, 3]"},
      {"range d 0..1\ninput %x: f32[2, 5, 3]\ninput %s: f32[2, 3]\ninput %d: i32[2, 5]\n"
       "%y, %l = shift(%x, %s, %d): f32[2, 5, 3], f32[2, 3]"},
      {"range d 0..1\ninput %x: bf16[2, 5, 2, 2]\ninput %d: i32[2, 5]\n%y, %l = shift(%x, none, %d): bf16[2, 5, 2, 2], bf16[2, "
       "2, 2]"},
      {"input %x: bf16[1, 3, 2]\ninput %s: f32[1, 2]\n%y, %l = shift(%x, %s): bf16[1, 3, 2], f32[1, 2]"},
  };
  op.rejects = {
      {"input %x: f32[4]\n%y, %l = shift(%x): f32[4], f32[4]", "[batch, time, ...]"},
      {"input %x: f32[2, 4, 3]\ninput %s: f32[2, 4]\n%y, %l = shift(%x, %s): f32[2, 4, 3], f32[2, 3]", "x at one position"},
      {"input %x: f32[2, 4, 3]\ninput %d: i32[2]\n%y, %l = shift(%x, none, %d): f32[2, 4, 3], f32[2, 3]",
       "starts marks positions"},
  };
}

}  // namespace ingot::ir
