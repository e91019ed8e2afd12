// Mathematics over the last axis that the normalisations, softmax and the loss share: as ops (always in f32, whatever the
// operands are stored in) and as loops of the references.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>

#include "ir/graph/builder.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {

inline ValueId to_f32(Builder& b, ValueId x) { return b.cast(x, DType::f32); }

inline int64_t last_axis(const Builder& b, ValueId x) { return b.type(x).rank() - 1; }

/// [..., n] -> [..., 1].
inline ValueId row_sum(Builder& b, ValueId x) { return b.sum(x, {last_axis(b, x)}, true); }
inline ValueId row_max(Builder& b, ValueId x) { return b.max(x, {last_axis(b, x)}, true); }
inline ValueId row_mean(Builder& b, ValueId x) {
  const ValueId sum = row_sum(b, x);
  return b.div(sum, b.constant(static_cast<double>(b.shape(x).back())));
}

/// The shape of one number per row that still broadcasts over the row: the last axis becomes 1.
inline Shape per_row(Shape shape) {
  shape.back() = 1;
  return shape;
}

/// Mean and 1/sqrt(variance + eps) of each row, in two passes: the variance is that of x - mean, so a large common offset
/// costs nothing. Biased variance, as every normalisation here uses.
struct RowMoments {
  ValueId centred, mean, rstd;
};
inline RowMoments row_moments(Builder& b, ValueId x, double eps) {
  const ValueId mean = row_mean(b, x);
  const ValueId centred = b.sub(x, mean);
  const ValueId variance = row_mean(b, b.make("square", {centred}));
  return {centred, mean, b.make("rsqrt", {b.add(variance, eps)})};
}

/// Gradient of xhat = (x - mean) * rstd with respect to x, given g = dL/dxhat:
///   dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
inline ValueId normalised_gradient(Builder& b, ValueId g, ValueId xhat, ValueId rstd) {
  const ValueId along = b.mul(xhat, row_mean(b, b.mul(g, xhat)));
  return b.mul(rstd, b.sub(b.sub(g, row_mean(b, g)), along));
}

/// Saved results are there for the gradient rule alone. A loss that depends on one is refused instead of losing that part
/// of its gradient silently.
inline void refuse_gradient_of(const GradientContext& ctx, int result) {
  if (ctx.grad(result) == kNone) return;
  const Op& op = ctx.op();
  throw UserError(op.loc, op.def->name + ": the saved result `" + op.def->results[result].name +
                              "` has no gradient; write its formula out where the loss needs it");
}

// ---------------------------------------------------------------- references

struct Rows {
  int64_t count, width;
};
inline Rows rows_of(const Type& type) {
  const int64_t width = type.shape.empty() ? 1 : type.shape.back();
  return {width == 0 ? 0 : type.elements() / width, width};
}

/// One row's mean and 1/sqrt(biased variance + eps).
struct Moments {
  double mean = 0, rstd = 0;
};
inline Moments reference_moments(const double* x, int64_t width, double eps) {
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < width; ++i) mean += x[i];
  mean /= static_cast<double>(width);
  for (int64_t i = 0; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean);
  variance /= static_cast<double>(width);
  return {mean, 1 / std::sqrt(variance + eps)};
}

}  // namespace ingot::ir
