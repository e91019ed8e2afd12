// Composition of views into one index map (declared in region.h).
#include <numeric>

#include "passes/region.h"

namespace ingot::passes {

using ir::Shape;

IndexMap broadcast_map(const Shape& from, const Shape& to) {
  IndexMap map;
  map.dims = to;
  map.strides.assign(to.size(), 0);
  int64_t stride = 1;
  for (size_t i = 0; i < from.size(); ++i) {  // i counts from the right
    const int64_t size = from[from.size() - 1 - i];
    if (size != 1) map.strides[to.size() - 1 - i] = stride;
    stride *= size;
  }
  return map;
}

namespace {

// The view's result enumerated row-major over its dims: place[d] is the flat distance of one step of digit d.
std::vector<int64_t> places(const Shape& dims) {
  std::vector<int64_t> place(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) place[d - 1] = place[d] * dims[d];
  return place;
}

// A piece of a map's dim that moves within one digit of the view.
struct Piece {
  int64_t size = 1;
  int digit = -1;    // -1: moves nothing
  int64_t step = 0;  // in units of that digit
};

// Splits one dim (size, stride) into pieces, outermost first, each inside one digit. False when it straddles digits.
bool split_dim(int64_t size, int64_t stride, const Shape& dims, const std::vector<int64_t>& place, std::vector<Piece>& out) {
  if (size == 1 || stride == 0) {
    out.push_back({size, -1, 0});
    return true;
  }
  for (size_t d = dims.size(); d-- > 0;) {
    const int64_t span = place[d] * dims[d];
    if (stride >= span) continue;
    if (stride % place[d] != 0) return false;
    if (size * stride <= span) {
      out.push_back({size, static_cast<int>(d), stride / place[d]});
      return true;
    }
    if (span % stride != 0 || size % (span / stride) != 0) return false;
    const int64_t low = span / stride;
    if (!split_dim(size / low, span, dims, place, out)) return false;
    out.push_back({low, static_cast<int>(d), stride / place[d]});
    return true;
  }
  return false;
}

}  // namespace

std::optional<IndexMap> compose(const IndexMap& map, const ir::View& view) {
  const std::vector<int64_t> place = places(view.dims);
  std::vector<Piece> pieces;
  for (size_t k = 0; k < map.dims.size(); ++k) {
    if (!split_dim(map.dims[k], map.strides[k], view.dims, place, pieces)) return std::nullopt;
  }
  // The starting point's digits; no digit may carry into the next.
  IndexMap out;
  out.shift = map.shift;
  out.period = map.period;
  out.inner = map.inner;
  out.offset = view.offset;
  std::vector<int64_t> reach(view.dims.size());
  int64_t rest = map.offset;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    reach[d] = rest / place[d];
    rest %= place[d];
    out.offset += reach[d] * view.strides[d];
  }
  for (const Piece& piece : pieces) {
    out.dims.push_back(piece.size);
    out.strides.push_back(piece.digit < 0 ? 0 : piece.step * view.strides[static_cast<size_t>(piece.digit)]);
    if (piece.digit >= 0) reach[static_cast<size_t>(piece.digit)] += (piece.size - 1) * piece.step;
  }
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (reach[d] >= view.dims[d]) return std::nullopt;
  }
  if (view.guard_axis < 0) return out;

  // A token shift: exactly one piece must walk the whole time axis, one step at a time.
  if (map.shift != 0) return std::nullopt;
  const auto axis = static_cast<size_t>(view.guard_axis);
  out.shift = static_cast<int>(view.guard_shift);
  out.period = view.dims[axis];
  int walkers = 0;
  int64_t inner = 1;
  for (size_t k = pieces.size(); k-- > 0;) {
    if (pieces[k].digit == view.guard_axis) {
      if (pieces[k].size != out.period || pieces[k].step != 1) return std::nullopt;
      out.inner = inner;
      ++walkers;
    }
    inner *= pieces[k].size;
  }
  if (out.period == 1) return out;  // every shifted read is outside
  if (walkers != 1) return std::nullopt;
  return out;
}

}  // namespace ingot::passes
