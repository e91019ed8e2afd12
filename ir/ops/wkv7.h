// What the WKV7 op and its gradient share: the rules on operands and one step of the recurrence in double.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ir/graph/op_def.h"

namespace ingot::ir {

/// e^(-1/2): the decay is exp(-kDecayScale * sigmoid(w)), so it stays above 0.545.
inline constexpr double kDecayScale = 0.6065306597126334;

struct Wkv7Sizes {
  int64_t batch = 0, time = 0, heads = 0, head = 0, chunk = 0;
  int64_t chunks() const { return (time + chunk - 1) / chunk; }
  /// Offset of one token's head row in a [B, T, H, N] value.
  int64_t row(int64_t b, int64_t t, int64_t h) const { return ((b * time + t) * heads + h) * head; }
  /// Offset of one head's state in a [B, H, N, N] value.
  int64_t state(int64_t b, int64_t h) const { return (b * heads + h) * head * head; }
  /// Offset of one saved state in [B, H, chunks, N, N].
  int64_t saved(int64_t b, int64_t h, int64_t c) const { return ((b * heads + h) * chunks() + c) * head * head; }
  Shape state_shape() const { return {batch, heads, head, head}; }
  Shape saved_shape() const { return {batch, heads, chunks(), head, head}; }
};
inline Wkv7Sizes wkv7_sizes(const Type& r, const Attrs& attrs) {
  // A chunk longer than the time is the whole time; nothing downstream has to fear its size.
  return {r.shape[0], r.shape[1], r.shape[2], r.shape[3], std::min(attrs.integer("chunk"), r.shape[1])};
}

/// What the saved states are stored in: f32 unless the attribute says otherwise.
inline DType wkv7_saved_dtype(const Attrs& attrs) { return attrs.has("saved_dtype") ? attrs.dtype("saved_dtype") : DType::f32; }

/// Operands 0..5 are r, w, k, v, a, b: floats of one type [batch, time, heads, head]; `starts` is the operand index of the
/// document starts.
inline void need_wkv7_operands(const InferContext& ctx, int starts) {
  ctx.need_float(0);
  ctx.need_rank(0, 4);
  const Type& r = ctx.type(0);
  for (int i = 1; i < 6; ++i) {
    if (ctx.type(i) != r) ctx.fail("r, w, k, v, a and b must have one type: " + ctx.show(0) + ", " + ctx.show(i));
  }
  if (r.shape[1] < 1) ctx.fail("at least one position in time is needed: " + ctx.show(0));
  const int64_t head = r.shape[3];
  if (head < 16 || head > 128) {
    ctx.fail("the head size must be 16 to 128, what the kernels keep in registers: " + ctx.show(0) + " has heads of " +
             std::to_string(head));
  }
  if (ctx.attrs().integer("chunk") < 1) ctx.fail("chunk must be at least 1");
  if (ctx.attrs().has("segments") && ctx.attrs().integer("segments") < 1) ctx.fail("segments must be at least 1");
  if (ctx.has(starts)) {
    ctx.need_integer(starts);
    ctx.need_shape(starts, {r.shape[0], r.shape[1]}, "starts marks positions [batch, time]");
  }
}

/// sigmoid, and the decay of a raw logit.
inline double wkv7_sigmoid(double w) { return 1 / (1 + std::exp(-w)); }
inline double wkv7_decay(double w) { return std::exp(-kDecayScale * wkv7_sigmoid(w)); }

/// One token of one head; pointers to its rows of `head` numbers.
struct Wkv7Token {
  const double *r, *w, *k, *v, *a, *b;
};
inline Wkv7Token wkv7_token(const std::vector<const Tensor*>& in, int64_t row) {
  return {&in[0]->data[row], &in[1]->data[row], &in[2]->data[row], &in[3]->data[row], &in[4]->data[row], &in[5]->data[row]};
}

/// S[i][j], i along value and j along key, in place: sa = S a; S = S diag(d) + sa b^T + v k^T.
inline void wkv7_step(const Wkv7Token& token, int64_t n, double* state, double* sa) {
  for (int64_t i = 0; i < n; ++i) {
    double* row = state + i * n;
    sa[i] = 0;
    for (int64_t j = 0; j < n; ++j) sa[i] += row[j] * token.a[j];
    for (int64_t j = 0; j < n; ++j) row[j] = row[j] * wkv7_decay(token.w[j]) + sa[i] * token.b[j] + token.v[i] * token.k[j];
  }
}

}  // namespace ingot::ir
