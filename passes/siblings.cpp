// siblings: equal products that do not need each other stand side by side, where the device makes them in less time together.
//
//   %r = matmul(%xr, %wr)                       %t = tanh(%xk)
//   %s = exp(%r)                                %r = matmul(%xr, %wr) {siblings: 3}
//   %k = matmul(%xk, %wk)                =>     %k = matmul(%xk, %wk) {siblings: 3}
//   %t = tanh(%xk)                              %v = matmul(%t, %wv) {siblings: 3}
//   %v = matmul(%t, %wv)                        %s = exp(%r)
//
// Equal: shapes, dtypes, transpositions, whether something is added. The graph stays what it was; where the operands of
// siblings lie at equal strides, which codegen sees to (codegen/siblings.h), one call makes them all.
//
// A product is made in tiles, so many at a time: siblings that stand together share their last round of them. They are taken
// where that saves a tenth of the rounds, so never on a target that makes one tile at a time. Only products a few calls apart
// are: what they read and make is alive about that long anyway. What a later one needs moves before the first, and the later one
// with it; all else keeps its order.
#include <algorithm>
#include <cmath>
#include <set>

#include "passes/algebra.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

constexpr int kNear = 8;  ///< calls between the first sibling and the last
constexpr size_t kMostSiblings = 16;
constexpr double kLeastGain = 0.1;  ///< of all rounds

struct Tiles {
  double rows = 1, columns = 1, wide_columns = 1, at_a_time = 1;

  /// Rounds of tiles for so many products [m, n].
  double rounds(double count, double m, double n) const {
    const double width = n >= wide_columns ? std::max(columns, wide_columns) : columns;
    return std::ceil(count * std::ceil(m / rows) * std::ceil(n / width) / at_a_time);
  }
};

class Siblings {
 public:
  Siblings(const Graph& graph, const Tiles& tiles) : graph_(graph), tiles_(tiles), out_(like(graph)), rw_(graph, out_) {}

  Graph run() {
    for (OpId id = 0; id < graph_.ops().size(); ++id) order_.push_back({id});
    for (size_t at = 0; at < order_.size(); ++at) {
      if (order_[at].size() == 1 && one_product(order_[at][0])) gather(at);
    }
    for (const std::vector<OpId>& slot : order_) {
      for (const OpId id : slot) write(id, slot.size());
    }
    rw_.finish();
    return std::move(out_);
  }

 private:
  // ---------------------------------------------------------------- which products

  // A product of two matrices, whatever axes of length 1 stand before them; rows of several may share the right one.
  bool one_product(OpId id) const {
    const Op& op = graph_.op(id);
    if (!is_gemm(op)) return false;
    const ir::Shape &a = graph_.type(op.operands[0]).shape, &b = graph_.type(op.operands[1]).shape;
    const auto leading = [](const ir::Shape& shape) { return ir::element_count({shape.begin(), shape.end() - 2}); };
    return leading(b) == 1 && (leading(a) == 1 || !op.attrs.boolean("ta")) && graph_.type(op.results[0]).elements() > 0;
  }

  bool equal(OpId first, OpId second) const {
    const Op &a = graph_.op(first), &b = graph_.op(second);
    if (!is_gemm(b) || a.def != b.def || a.phase != b.phase) return false;
    if (a.attrs.boolean("ta") != b.attrs.boolean("ta") || a.attrs.boolean("tb") != b.attrs.boolean("tb")) return false;
    const auto same_type = [&](ValueId x, ValueId y) {
      return (x == kNone) == (y == kNone) && (x == kNone || graph_.type(x) == graph_.type(y));
    };
    return same_type(a.operands[0], b.operands[0]) && same_type(a.operands[1], b.operands[1]) &&
           same_type(gemm_addend(a), gemm_addend(b)) && same_type(a.results[0], b.results[0]);
  }

  bool pays(OpId id, size_t count) const {
    const ir::Shape& made = graph_.type(graph_.op(id).results[0]).shape;
    const auto n = static_cast<double>(made.back());
    const double m = static_cast<double>(ir::element_count(made)) / n, all = static_cast<double>(count);
    return tiles_.rounds(all, m, n) <= (1 - kLeastGain) * all * tiles_.rounds(1, m, n);
  }

  // Takes the siblings of the product at this place in, if that pays.
  void gather(size_t at) {
    const OpId first = order_[at][0];
    std::vector<size_t> taken{at};
    std::vector<std::set<size_t>> needed{{}};  // per place taken: those between that must come before the first
    int apart = 0;
    for (size_t next = at + 1; next < order_.size() && apart <= kNear && taken.size() < kMostSiblings; ++next) {
      if (order_[next].size() == 1 && equal(first, order_[next][0])) {
        std::set<size_t> needs = needs_of(next, at);
        const bool independent = std::none_of(taken.begin(), taken.end(), [&](size_t t) { return needs.contains(t); });
        if (independent) {
          needed.push_back(std::move(needs));
          taken.push_back(next);
        }
      }
      apart += is_call(next);
    }
    while (taken.size() > 1 && !pays(first, taken.size())) taken.pop_back();
    std::set<size_t> before;
    for (size_t i = 0; i < taken.size(); ++i) before.merge(needed[i]);
    if (taken.size() > 1) move_together(taken, before);
  }

  bool is_call(size_t place) const {
    const Op& op = graph_.op(order_[place][0]);
    return !ir::lowering_as<ir::SourceLowering>(op) && !ir::lowering_as<ir::ViewLowering>(op);
  }

  // Places from `begin` on that what stands at `place` needs, directly or not.
  std::set<size_t> needs_of(size_t place, size_t begin) const {
    std::set<OpId> wanted;
    const auto want = [&](const std::vector<OpId>& slot) {
      for (const OpId id : slot) {
        for (const ValueId operand : graph_.op(id).operands) {
          if (operand != kNone) wanted.insert(graph_.value(operand).op);
        }
      }
    };
    want(order_[place]);
    std::set<size_t> needs;
    for (size_t before = place; before-- > begin;) {
      const std::vector<OpId>& slot = order_[before];
      if (std::none_of(slot.begin(), slot.end(), [&](OpId id) { return wanted.contains(id); })) continue;
      needs.insert(before);
      want(slot);
    }
    return needs;
  }

  // ---------------------------------------------------------------- the new order

  void move_together(const std::vector<size_t>& taken, const std::set<size_t>& needed) {
    std::vector<std::vector<OpId>> before, after;
    std::vector<OpId> together;
    for (size_t place = taken[0]; place <= taken.back(); ++place) {
      std::vector<OpId>& slot = order_[place];
      if (std::find(taken.begin(), taken.end(), place) != taken.end()) {
        together.push_back(slot[0]);
      } else {
        (needed.contains(place) ? before : after).push_back(std::move(slot));
      }
    }
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(taken.back()) + 1;
    auto to = order_.begin() + static_cast<std::ptrdiff_t>(taken[0]);
    to = std::move(before.begin(), before.end(), to);
    *to++ = std::move(together);
    order_.erase(std::move(after.begin(), after.end(), to), end);
  }

  void write(OpId id, size_t siblings) {
    Op op = graph_.op(id);
    if (siblings > 1) op.attrs.set("siblings", static_cast<int64_t>(siblings));
    rw_.copy(op);
  }

  const Graph& graph_;
  const Tiles tiles_;
  Graph out_;
  ir::Rewriter rw_;
  std::vector<std::vector<OpId>> order_;  ///< ops and, in one place, siblings
};

Graph run(const Graph& graph, PassContext& context) {
  Tiles tiles;
  tiles.rows = number_option(context, "siblings", "tile_rows", "1", 1);
  tiles.columns = number_option(context, "siblings", "tile_columns", "1", 1);
  tiles.wide_columns = number_option(context, "siblings", "wide_tile_columns", "1", 1);
  tiles.at_a_time = number_option(context, "siblings", "tiles_at_a_time", "1", 1);
  const bool done =
      std::any_of(graph.ops().begin(), graph.ops().end(), [](const Op& op) { return is_gemm(op) && op.attrs.has("siblings"); });
  return done ? graph : Siblings(graph, tiles).run();
}

}  // namespace

PassInfo siblings_pass() {
  return {"siblings",
          "Puts equal products side by side where the device makes them in less time together.",
          {"tile_rows", "tile_columns", "wide_tile_columns", "tiles_at_a_time"},
          false,
          run};
}

}  // namespace ingot::passes
