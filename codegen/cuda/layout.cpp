#include "codegen/cuda/layout.h"

#include <algorithm>
#include <cmath>

namespace ingot::codegen::cuda {
namespace {

constexpr double kFew = 56;          // registers of demand that leave room for two or more blocks of 256 threads
constexpr double kMost = 150;        // of a thread in a block of 256
constexpr int64_t kRowsPerHalo = 8;  // rows that make up for computing one twice

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The most columns a thread can read together: what divides the row, and the head where heads matter.
int widest(int64_t columns, int64_t n, const RowDemand& demand) {
  for (int e : {8, 4, 2}) {
    if (columns % e == 0 && (!demand.heads || n % e == 0)) return e;
  }
  return 1;
}

int choose_at_once(const passes::RegionPlan& plan, const RowDemand& demand) {
  const int most = widest(plan.columns(), plan.n, demand);
  // 16 bytes of a 16-bit value where registers allow it, else 8.
  return most == 8 && 8 * demand.registers > kFew ? 4 : most;
}

double thread_demand(const RowLayout& layout, const RowDemand& demand) {
  return layout.at_once * layout.chunks * demand.registers;
}

/// Fewest warps a row whose threads hold little; a warp alone needs no barrier.
void spread_row(RowLayout& layout, int64_t pieces, const RowDemand& demand) {
  for (const int warps : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    layout.warps = warps;
    layout.chunks = static_cast<int>(ceil_div(pieces, 32 * warps));
    if (thread_demand(layout, demand) <= kFew && layout.chunks <= 4) return;
  }
}

/// Blocks of about 256 threads per part of the columns; a part holds whole heads.
void cut_columns(RowLayout& layout, const passes::RegionPlan& plan, int64_t pieces, const RowDemand& demand) {
  layout.chunks = 1;
  layout.warps = static_cast<int>(std::min<int64_t>(8, ceil_div(pieces, 32)));
  const auto whole_heads = [&] { return !demand.heads || layout.slab() % plan.n == 0; };
  if (32 * layout.warps < pieces) {
    while (layout.warps > 1 && !whole_heads()) --layout.warps;
    if (!whole_heads()) return spread_row(layout, pieces, demand);
  }
  layout.slabs = ceil_div(pieces, layout.lanes());
}

}  // namespace

RowLayout choose_layout(const passes::RegionPlan& plan, const RowDemand& demand, const Arch& arch) {
  RowLayout layout;
  layout.at_once = choose_at_once(plan, demand);
  const int64_t pieces = plan.columns() / layout.at_once;
  if (demand.whole_rows) {
    spread_row(layout, pieces, demand);
    const double allowed = std::min(kMost, 65536.0 / layout.threads() - 40);
    if (layout.chunks > 4 || thread_demand(layout, demand) > allowed) {
      layout.way = demand.heads ? RowLayout::Way::apart : RowLayout::Way::looped;
      layout.chunks = 1;
      layout.warps = static_cast<int>(std::clamp<int64_t>(pieces / 64, 1, 16));
    }
  } else {
    cut_columns(layout, plan, pieces, demand);
  }
  const bool looped = layout.way == RowLayout::Way::looped;
  // Sums: a partial row per block, two blocks a multiprocessor, so blocks are larger.
  const int wanted = demand.sums ? 16 : 8;
  layout.teams = looped ? 1 : std::clamp(wanted / layout.warps, 1, 8);
  layout.teams = static_cast<int>(std::min<int64_t>(layout.teams, plan.rows));
  const double registers = looped ? 64 : std::min(255.0, 40 + 1.1 * thread_demand(layout, demand));
  while (layout.teams > 1 && layout.threads() * registers > 65536) --layout.teams;
  const int most = demand.sums ? 2 : std::min(16, 2048 / layout.threads());
  layout.resident = std::clamp(static_cast<int>(65536 / (layout.threads() * registers)), 1, std::max(1, most));

  const int64_t least = demand.halo ? kRowsPerHalo : 1;
  const int64_t ranges = std::max<int64_t>(1, int64_t{1} * layout.resident * arch.multiprocessors / layout.slabs);
  layout.rows_each = std::max(std::min(least, ceil_div(plan.rows, layout.teams)), ceil_div(plan.rows, ranges * layout.teams));
  layout.ranges = ceil_div(plan.rows, layout.rows_each * layout.teams);
  return layout;
}

}  // namespace ingot::codegen::cuda
