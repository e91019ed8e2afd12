#include "codegen/cuda/layout.h"

#include <algorithm>
#include <cmath>

namespace ingot::codegen::cuda {
namespace {

constexpr double kFew = 56;            // registers of demand that leave room for two or more blocks of 256 threads
constexpr double kMost = 150;          // of a thread in a block of 256
constexpr int64_t kRowsPerHalo = 8;    // rows that make up for computing one twice
constexpr int64_t kScratch = 8 << 10;  // bytes of shared memory that kernels declare themselves, at most

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

/// One wave of blocks, each with a range of rows per team.
void share_rows(RowLayout& layout, const passes::RegionPlan& plan, const RowDemand& demand, const Arch& arch) {
  const int64_t least = demand.halo ? kRowsPerHalo : 1;
  const int64_t ranges = std::max<int64_t>(1, int64_t{1} * layout.resident * arch.multiprocessors / layout.slabs);
  layout.spread = layout.way == RowLayout::Way::resident && !demand.halo;
  if (layout.spread) {
    layout.rows_each = ceil_div(plan.rows, ranges * layout.teams);
    layout.ranges = std::min(ranges, ceil_div(plan.rows, layout.teams));
    return;
  }
  layout.rows_each = std::max(std::min(least, ceil_div(plan.rows, layout.teams)), ceil_div(plan.rows, ranges * layout.teams));
  layout.ranges = ceil_div(plan.rows, layout.rows_each * layout.teams);
}

// ---------------------------------------------------------------- rows that wait in shared memory

constexpr double kMostAhead = 136;        // registers a thread is thought to need there: what is thought too much by
constexpr double kTighter = 0.85;         // this factor, compilers still fit without spilling
constexpr double kInFlight = 56 << 10;    // bytes a multiprocessor has to have under way to keep memory busy
constexpr int64_t kRowsWorthAhead = 16;   // fewer rows are gone before the first is there
constexpr int64_t kWide = 512;            // columns from which even the simplest region gains
constexpr double kParametersAtOnce = 40;  // registers of them that a thread may wait for together

/// Registers of a thread whose streams wait in shared memory.
double registers_ahead(const RowLayout& layout, const RowDemand& demand) {
  return 24 + layout.at_once * layout.chunks * (demand.registers - 0.8 * demand.waiting);
}

/// Of one whose compiler is short of them: it works on few columns at a time then.
double registers_at_least(const RowLayout& layout, const RowDemand& demand) {
  const double rest = demand.registers - demand.lasting;
  return 0.8 * (24 + layout.at_once * layout.chunks * demand.lasting + 4 * rest);
}

int64_t shared_ahead(const RowLayout& layout, const RowDemand& demand) {
  const int64_t elements = int64_t{1} * layout.lanes() * layout.chunks * layout.at_once;
  const int64_t small = int64_t{1} * layout.lanes() * layout.chunks * 4 * demand.small;
  const auto row = static_cast<int64_t>(static_cast<double>(elements) * demand.row_bytes) + small;
  const auto once = static_cast<int64_t>(static_cast<double>(elements) * demand.parameter_bytes);
  return layout.teams * (demand.depth + layout.ahead) * row + once + kScratch;
}

/// As many columns a thread as its registers allow: a row's fixed costs are shared by fewer threads, and a multiprocessor holds
/// more teams, whose meetings hide behind each other's work. False where no team is large enough.
bool share_columns(RowLayout& layout, const passes::RegionPlan& plan, const RowDemand& demand, int at_once) {
  layout.at_once = at_once;
  const int64_t pieces = plan.columns() / layout.at_once;
  if (!demand.whole_rows) {
    layout.warps = static_cast<int>(std::min<int64_t>(8, ceil_div(pieces, 32)));
    layout.slabs = ceil_div(pieces, layout.lanes());
    return (!demand.heads || layout.slabs == 1 || layout.slab() % plan.n == 0) && registers_ahead(layout, demand) <= kMostAhead;
  }
  for (const int warps : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32}) {
    layout.warps = warps;
    layout.chunks = static_cast<int>(ceil_div(pieces, layout.lanes()));
    const double allowed = std::min(kMostAhead, 65536.0 / layout.lanes() / kTighter);
    if (layout.chunks <= 4 && registers_ahead(layout, demand) <= allowed) return true;
  }
  return false;
}

/// A thread's chunks two by two, where so many columns may be read together: as many registers, half the copies, reads and
/// writes, and copies of 16 bytes pass the first-level cache by. But a chunk's parameters are read at once, and where they are
/// many the warps of a row wait for all of theirs at the same time: norm and six mixes, 8 parameters, took 37.7 us joined and
/// 26.7 apart (8192 x 768, H200), 153 and 142 (16384 x 2048); norm and one mix with its gradient, 3, gains.
void join_chunks(RowLayout& layout, const RowDemand& demand, int64_t columns, int64_t most) {
  if (most < 2 * layout.at_once || layout.chunks % 2 != 0 || columns % (2 * layout.at_once) != 0) return;
  if (2 * layout.at_once * demand.parameter_bytes > 4 * kParametersAtOnce) return;
  layout.at_once *= 2;
  layout.chunks /= 2;
}

/// Blocks that a multiprocessor has registers for: each of its four parts gives out 16384 to warps, by eights to a thread.
int blocks_at_once(const RowLayout& layout, double registers) {
  const int each = static_cast<int>(std::ceil(registers / 8)) * 8;
  return 4 * (16384 / (32 * each)) / (layout.warps * layout.teams);
}

/// Copies rows ahead where that is worth it and fits; else leaves the layout alone.
bool copy_ahead(RowLayout& out, const passes::RegionPlan& plan, const RowDemand& demand, const Arch& arch, int most) {
  const bool worth = demand.whole_rows || demand.heads || plan.columns() >= kWide || out.at_once * demand.registers > kFew;
  if (!worth || arch.shared_bytes() == 0 || plan.rows < kRowsWorthAhead || demand.row_bytes == 0) return false;
  RowLayout layout;
  const int64_t neighbours = std::min<int64_t>(most, demand.aligned);
  // Two columns at once where four are too many for the registers.
  const auto fits = [&](int at_once) { return neighbours >= at_once && share_columns(layout, plan, demand, at_once); };
  if (!fits(4) && !(neighbours >= 4 && demand.whole_rows && fits(2))) return false;
  join_chunks(layout, demand, plan.columns(), neighbours);
  layout.teams = static_cast<int>(std::min<int64_t>(std::clamp(8 / layout.warps, 1, 8), plan.rows));
  const double registers = std::min(kTighter * registers_ahead(layout, demand), registers_at_least(layout, demand));
  const int crowd = blocks_at_once(layout, registers);
  for (layout.resident = std::clamp(crowd, 1, demand.whole_rows ? 4 : 3); layout.resident > 0; --layout.resident) {
    const double row = static_cast<double>(layout.slab()) * demand.row_bytes * layout.teams * layout.resident;
    for (layout.ahead = std::clamp(static_cast<int>(kInFlight / row) + 1, 2, 6); layout.ahead > 0; --layout.ahead) {
      if (layout.resident * shared_ahead(layout, demand) > arch.shared_bytes()) continue;
      out = layout;
      return true;
    }
  }
  return false;
}

// ---------------------------------------------------------------- rows that every sweep but the first finds in shared memory

constexpr int64_t kRoomAhead = 3;  // halves of a row that a block should have room for

/// The team among so many warps that leaves the fewest threads without a chunk.
int even_warps(int64_t pieces, int most) {
  const auto taken = [&](int warps) { return ceil_div(pieces, int64_t{32} * warps) * warps; };
  int best = most;
  for (int warps = most; 4 * warps >= 3 * most; --warps) {
    if (taken(warps) < taken(best)) best = warps;
  }
  return best;
}

/// Keeps a looped region's rows in shared memory where one fits; else leaves the layout alone.
bool hold_rows(RowLayout& out, const passes::RegionPlan& plan, const RowDemand& demand, const Arch& arch) {
  RowLayout layout = out;
  layout.at_once = static_cast<int>(std::min<int64_t>(out.at_once, demand.aligned));
  if (demand.halo || demand.row_bytes == 0 || layout.at_once * demand.narrowest % 4 != 0) return false;
  const int64_t pieces = plan.columns() / layout.at_once;
  const auto row = static_cast<int64_t>(static_cast<double>(plan.columns()) * demand.row_bytes);
  const int most = thread_demand(layout, demand) <= kFew ? 32 : 16;
  for (layout.resident = 4; layout.resident > 0; --layout.resident) {
    const int64_t room = arch.shared_bytes() / layout.resident - kScratch;
    if (layout.resident > 1 && 2 * room < kRoomAhead * row) continue;
    layout.warps = even_warps(pieces, static_cast<int>(std::clamp<int64_t>(pieces / 32, 1, most / layout.resident)));
    layout.chunks = static_cast<int>(ceil_div(pieces, layout.lanes()));
    const auto slot = static_cast<int64_t>(static_cast<double>(layout.lanes() * layout.at_once) * demand.row_bytes);
    layout.slots = static_cast<int>(std::min<int64_t>(room / slot, int64_t{2} * layout.chunks));
    if (layout.slots < layout.chunks) continue;
    out = layout;
    return true;
  }
  return false;
}

}  // namespace

RowLayout choose_layout(const passes::RegionPlan& plan, const RowDemand& demand, const Arch& arch) {
  RowLayout layout;
  layout.at_once = choose_at_once(plan, demand);
  const int most = widest(plan.columns(), plan.n, demand);
  if (copy_ahead(layout, plan, demand, arch, most)) {
    share_rows(layout, plan, demand, arch);
    return layout;
  }
  const int64_t pieces = plan.columns() / layout.at_once;
  if (demand.whole_rows) {
    spread_row(layout, pieces, demand);
    const double allowed = std::min(kMost, 65536.0 / layout.threads() - 40);
    if (layout.chunks > 4 || thread_demand(layout, demand) > allowed) {
      layout.way = demand.heads ? RowLayout::Way::apart : RowLayout::Way::looped;
      layout.chunks = 1;
      // A vocabulary's rows: 16 warps that step through many pieces. Others are here for the registers they need: a piece a
      // thread.
      layout.warps = static_cast<int>(std::clamp<int64_t>(pieces / 32, 1, pieces >= 1024 ? 16 : 8));
      if (layout.way == RowLayout::Way::looped && hold_rows(layout, plan, demand, arch)) {
        share_rows(layout, plan, demand, arch);
        return layout;
      }
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
  const int crowd = demand.sums ? 2 : std::min(16, 2048 / layout.threads());
  layout.resident = std::clamp(static_cast<int>(65536 / (layout.threads() * registers)), 1, std::max(1, crowd));
  share_rows(layout, plan, demand, arch);
  return layout;
}

}  // namespace ingot::codegen::cuda
