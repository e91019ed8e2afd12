// What the loss and its gradient share: the rules on operands and the masks of classes and rows.
#pragma once
#include <cstdint>

#include "ir/graph/builder.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {

/// Operands 0 and 1 are logits [..., V] and targets [...].
inline void need_logits_and_targets(const InferContext& ctx) {
  ctx.need_float(0);
  ctx.need_integer(1);
  Shape rows = ctx.type(0).shape;
  if (rows.empty() || rows.back() < 1) ctx.fail("logits need a last axis of at least one class: " + ctx.show(0));
  rows.pop_back();
  ctx.need_shape(1, rows, "one target for each row of logits");
}

/// [...] -> [..., 1]: one number a row, broadcasting over its classes.
inline ValueId beside_classes(Builder& b, ValueId per_row) {
  Shape shape = b.shape(per_row);
  shape.push_back(1);
  return b.reshape(per_row, shape);
}

/// The class numbers 0..V-1, in the targets' dtype.
inline ValueId class_numbers(Builder& b, int64_t classes, DType dtype) {
  Attrs attrs;
  attrs.set("shape", std::vector<int64_t>{classes});
  attrs.set("axis", int64_t{0});
  attrs.set("dtype", dtype);
  return b.make("iota", {}, attrs);
}

/// Which rows count: bool [...].
inline ValueId valid_rows(Builder& b, ValueId targets, int64_t ignore) {
  return b.make("ne", {targets, b.constant(static_cast<double>(ignore), b.type(targets).dtype)});
}

}  // namespace ingot::ir
