#include "codegen/gemm.h"

#include <algorithm>

#include "ir/base/error.h"

namespace ingot::codegen {
namespace {

using ir::Shape;

/// A leading axis and how far one step along it moves in each matrix, in elements; 0 = broadcast.
struct BatchAxis {
  int64_t size, a, b, d;
};

/// Axes of size 1 are left out.
std::vector<BatchAxis> batch_axes(const Shape& a, const Shape& b, int64_t a_matrix, int64_t b_matrix, int64_t d_matrix) {
  const auto size_at = [](const Shape& shape, size_t from_right) {
    return from_right + 2 < shape.size() ? shape[shape.size() - 3 - from_right] : int64_t{1};
  };
  std::vector<BatchAxis> axes;
  for (size_t i = 0; i + 2 < std::max(a.size(), b.size()); ++i) {
    const int64_t in_a = size_at(a, i), in_b = size_at(b, i), size = std::max(in_a, in_b);
    ir::check((in_a == size || in_a == 1) && (in_b == size || in_b == 1), "gemm_parts: leading axes do not broadcast");
    if (size > 1) axes.push_back({size, in_a == 1 ? 0 : a_matrix, in_b == 1 ? 0 : b_matrix, d_matrix});
    a_matrix *= in_a;
    b_matrix *= in_b;
    d_matrix *= size;
  }
  std::reverse(axes.begin(), axes.end());
  return axes;
}

// Can `outer` and the axis inside it be walked by one stride?
bool merges(const BatchAxis& outer, const BatchAxis& inner) {
  return outer.a == inner.a * inner.size && outer.b == inner.b * inner.size && outer.d == inner.d * inner.size;
}

std::vector<BatchAxis> merged(const std::vector<BatchAxis>& axes) {
  std::vector<BatchAxis> out;
  for (const BatchAxis& axis : axes) {
    if (!out.empty() && merges(out.back(), axis)) {
      out.back() = {out.back().size * axis.size, axis.a, axis.b, axis.d};
    } else {
      out.push_back(axis);
    }
  }
  return out;
}

}  // namespace

std::vector<GemmPart> gemm_parts(const Shape& a, const Shape& b, bool ta, bool tb) {
  ir::Gemm g;
  g.ta = ta;
  g.tb = tb;
  g.m = a[a.size() - (ta ? 1 : 2)];
  g.k = a[a.size() - (ta ? 2 : 1)];
  g.n = b[b.size() - (tb ? 2 : 1)];
  std::vector<BatchAxis> axes = batch_axes(a, b, g.m * g.k, g.k * g.n, g.m * g.n);
  // Rows of a shared b: they only make the left matrix taller.
  while (!axes.empty() && !ta && axes.back().b == 0 && axes.back().a == g.m * g.k) {
    g.m *= axes.back().size;
    axes.pop_back();
  }
  g.lda = ta ? g.m : g.k;
  g.ldb = tb ? g.k : g.n;
  g.ldd = g.n;
  axes = merged(axes);
  if (!axes.empty()) {
    g.batch = axes.back().size;
    g.stride_a = axes.back().a;
    g.stride_b = axes.back().b;
    g.stride_d = axes.back().d;
    axes.pop_back();
  }
  GemmPart first{g, 0, 0, 0, (g.batch - 1) * g.stride_a + g.m * g.k, (g.batch - 1) * g.stride_b + g.k * g.n, g.batch * g.m * g.n};
  std::vector<GemmPart> parts{first};
  for (const BatchAxis& axis : axes) {
    std::vector<GemmPart> more;
    for (const GemmPart& part : parts) {
      for (int64_t i = 0; i < axis.size; ++i) {
        more.push_back(part);
        more.back().a += i * axis.a;
        more.back().b += i * axis.b;
        more.back().d += i * axis.d;
      }
    }
    parts = std::move(more);
  }
  return parts;
}

}  // namespace ingot::codegen
