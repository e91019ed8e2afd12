// What the op files share: shapes and indices, the loop of elementwise references, and rules with their messages.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ir/graph/builder.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {

// ---------------------------------------------------------------- shapes and indices

/// Elements between neighbours along each axis of a dense row-major tensor.
inline std::vector<int64_t> dense_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t k = shape.size(); k-- > 1;) strides[k - 1] = strides[k] * shape[k];
  return strides;
}

/// Strides that read an operand of shape `from` at indices of the shape `to` it broadcasts to (0 along stretched axes).
inline std::vector<int64_t> broadcast_strides(const Shape& from, const Shape& to) {
  std::vector<int64_t> strides(to.size(), 0);
  const std::vector<int64_t> dense = dense_strides(from);
  const size_t missing = to.size() - from.size();
  for (size_t k = 0; k < from.size(); ++k) strides[missing + k] = from[k] == 1 ? 0 : dense[k];
  return strides;
}

/// Product of the sizes in [first, last).
inline int64_t count_between(const Shape& shape, size_t first, size_t last) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.begin() + static_cast<std::ptrdiff_t>(last),
                         int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

/// The shape left when `axes` (ascending) are reduced: 1 in their place, or nothing.
inline Shape reduced_shape(const Shape& shape, const std::vector<int64_t>& axes, bool keep) {
  Shape out;
  for (size_t k = 0; k < shape.size(); ++k) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(k)) != axes.end();
    if (!reduced) out.push_back(shape[k]);
    if (reduced && keep) out.push_back(1);
  }
  return out;
}

/// Walks the indices of `shape` in row-major order, keeping one position per list of strides.
class IndexWalk {
 public:
  IndexWalk(const Shape& shape, std::vector<std::vector<int64_t>> strides)
      : shape_(shape), strides_(std::move(strides)), index_(shape.size(), 0), at_(strides_.size(), 0) {}
  const Shape& index() const { return index_; }
  int64_t at(size_t i) const { return at_[i]; }
  void next() {
    for (size_t k = shape_.size(); k-- > 0;) {
      for (size_t i = 0; i < at_.size(); ++i) at_[i] += strides_[i][k];
      if (++index_[k] < shape_[k]) return;
      index_[k] = 0;
      for (size_t i = 0; i < at_.size(); ++i) at_[i] -= strides_[i][k] * shape_[k];
    }
  }

 private:
  Shape shape_;
  std::vector<std::vector<int64_t>> strides_;
  Shape index_;
  std::vector<int64_t> at_;
};

// ---------------------------------------------------------------- references

/// What a buffer of this dtype makes of a computed value: integers truncate (NaN, as from modulo 0, is 0), bools compare with 0,
/// floats keep the double.
inline double stored(DType dtype, double value) {
  if (is_float(dtype)) return value;
  if (dtype == DType::boolean) return value != 0 ? 1 : 0;
  return std::isnan(value) ? 0 : std::trunc(value);
}

/// Result k at every index = f(operands at that index, broadcast)[k].
template <class F>
void elementwise_reference(ReferenceContext& c, F&& f) {
  const Shape& shape = c.result(0).type.shape;
  std::vector<std::vector<int64_t>> strides;
  for (const Tensor* in : c.in) strides.push_back(broadcast_strides(in->type.shape, shape));
  IndexWalk walk(shape, std::move(strides));
  std::vector<double> values(c.in.size());
  std::vector<double> results(c.out.size());
  const int64_t count = element_count(shape);
  for (int64_t n = 0; n < count; ++n, walk.next()) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = c.in[i]->data[static_cast<size_t>(walk.at(i))];
    f(values.data(), results.data());
    for (size_t k = 0; k < results.size(); ++k) {
      c.out[k].data[static_cast<size_t>(n)] = stored(c.out[k].type.dtype, results[k]);
    }
  }
}

// ---------------------------------------------------------------- rules

/// Arithmetic is not defined on bool.
inline void need_number(const InferContext& c, int i) {
  if (c.type(i).dtype == DType::boolean) c.fail("needs numbers, but " + c.show(i) + "; cast it, or use select");
}

inline void need_bool(const InferContext& c, int i) {
  if (c.type(i).dtype != DType::boolean) c.fail("needs a bool, but " + c.show(i) + "; compare it with something");
}

/// Attr `axes`: absent = all; negative ones count from the end; ascending, each once.
inline void normalize_axes(Attrs& attrs, const InferContext& c) {
  const int64_t rank = c.type(0).rank();
  std::vector<int64_t> axes;
  if (attrs.has("axes")) {
    for (const int64_t axis : attrs.integers("axes")) axes.push_back(c.axis(axis, rank));
  } else {
    for (int64_t k = 0; k < rank; ++k) axes.push_back(k);
  }
  std::sort(axes.begin(), axes.end());
  const auto twice = std::adjacent_find(axes.begin(), axes.end());
  if (twice != axes.end()) c.fail("axis " + std::to_string(*twice) + " stands twice in axes");
  attrs.set("axes", std::move(axes));
}

/// Attr `axis` of operand 0: negative counts from the end.
inline void normalize_axis(Attrs& attrs, const InferContext& c) {
  attrs.set("axis", c.axis(attrs.integer("axis"), c.type(0).rank()));
}

/// Ops that move or rename elements do no arithmetic.
inline double no_flops(const Graph&, const Op&) { return 0; }

/// One operation per element of operand 0 (reductions).
inline double flops_per_input(const Graph& graph, const Op& op) {
  return static_cast<double>(graph.type(op.operands[0]).elements());
}

}  // namespace ingot::ir
