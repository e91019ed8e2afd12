#include "codegen/lanes.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/plan/check.h"
#include "ir/plan/lanes.h"

namespace ingot::codegen {
namespace {

// What a large card does in a second, roughly. Only proportions matter.
constexpr double kFlops = 4e14, kBytes = 3e12, kCallSeconds = 4e-6;

double seconds(const ir::Call& call) {
  // Of launches, flops count operations of generated code: their bytes say more.
  const double busy = call.kind == ir::CallKind::gemm ? std::max(call.flops / kFlops, call.bytes / kBytes) : call.bytes / kBytes;
  return kCallSeconds + busy;
}

/// Who needs whom, by the bytes they touch: call -> earlier calls that it must come after. Not all of them: those that others of
/// the list come after in turn may be missing.
std::vector<std::vector<int>> needs_of(const ir::Plan& plan, const ir::Program& program) {
  struct Touch {
    int call;
    ir::ByteRange bytes;
    bool write;
  };
  std::map<ir::BufferId, std::vector<Touch>> touches;  // by owner
  std::vector<std::vector<int>> needs(program.calls.size());
  for (size_t i = 0; i < program.calls.size(); ++i) {
    std::set<int> found;
    for (const ir::Access& access : program.calls[i].args) {
      if (access.buffer == ir::kNoBuffer) continue;
      const ir::ByteRange bytes = ir::bytes_of(plan.buffers[access.buffer]);
      const bool write = ir::writes(access);
      std::vector<Touch>& before = touches[ir::owner_of(plan, access.buffer)];
      for (const Touch& touch : before) {
        if (touch.call != static_cast<int>(i) && (touch.write || write) && touch.bytes.overlaps(bytes)) found.insert(touch.call);
      }
      // Whoever conflicts with what was written over conflicts with the writer too.
      if (write) std::erase_if(before, [&](const Touch& t) { return t.bytes.begin >= bytes.begin && t.bytes.end <= bytes.end; });
      before.push_back({static_cast<int>(i), bytes, write});
    }
    needs[i].assign(found.begin(), found.end());
  }
  return needs;
}

class LaneSpreader {
 public:
  LaneSpreader(const ir::Plan& plan, ir::Program& program, int lanes)
      : program_(program), needs_(needs_of(plan, program)), clocks_(lanes), free_(static_cast<size_t>(lanes), 0) {
    const size_t calls = program.calls.size();
    first_user_.assign(calls, static_cast<int>(calls));
    for (size_t i = calls; i-- > 0;) {
      for (const int need : needs_[i]) first_user_[static_cast<size_t>(need)] = static_cast<int>(i);
    }
    until_.assign(calls + 1, 0);
    for (size_t i = 0; i < calls; ++i) until_[i + 1] = until_[i] + seconds(program.calls[i]);
    end_.assign(calls, 0);
  }

  void run() {
    for (int i = 0; i < static_cast<int>(program_.calls.size()); ++i) {
      ir::Call& call = program_.calls[static_cast<size_t>(i)];
      call.lane = choose(i);
      call.after = awaited(i, call.lane);
      clocks_.add(call.lane, call.after);
      const double begin = start(i, call.lane);
      end_[static_cast<size_t>(i)] = free_[static_cast<size_t>(call.lane)] = begin + seconds(call);
    }
  }

 private:
  /// When call i would begin on that lane.
  double start(int i, int lane) const {
    double at = std::max(free_[0], free_[static_cast<size_t>(lane)]);
    for (const int need : needs_[static_cast<size_t>(i)]) at = std::max(at, end_[static_cast<size_t>(need)]);
    return at;
  }

  /// Lane 0, or the first of the lanes that are free the earliest and will have finished before lane 0 comes to who needs it.
  int choose(int i) const {
    const double takes = seconds(program_.calls[static_cast<size_t>(i)]);
    const double needed =
        free_[0] + until_[static_cast<size_t>(first_user_[static_cast<size_t>(i)])] - until_[static_cast<size_t>(i) + 1];
    int best = 0;
    for (int lane = 1; lane < clocks_.lanes(); ++lane) {
      const double begin = start(i, lane);
      const bool idle = begin <= free_[0] + takes, in_time = begin + takes <= needed;
      if (idle && in_time && (best == 0 || begin < start(i, best))) best = lane;
    }
    return best;
  }

  /// The fewest calls to wait for: of other lanes, and such that none of them comes after another.
  std::vector<int> awaited(int i, int lane) const {
    std::set<int, std::greater<>> wanted(needs_[static_cast<size_t>(i)].begin(), needs_[static_cast<size_t>(i)].end());
    if (lane != 0 && clocks_.last(0) >= 0) wanted.insert(clocks_.last(0));
    if (lane == 0) {
      for (const int done : long_done(start(i, 0))) wanted.insert(done);
    }
    std::vector<int> after;
    for (const int call : wanted) {  // the latest first: earlier ones may be among those it follows
      const auto known = [&](int later) {
        return later >= 0 && (later == call || (later > call && clocks_.ordered(call, later)));
      };
      if (!known(clocks_.last(lane)) && std::none_of(after.begin(), after.end(), known)) after.push_back(call);
    }
    std::sort(after.begin(), after.end());
    return after;
  }

  /// Per other lane, the last call that should have ended as long before `time` as it took.
  std::vector<int> long_done(double time) const {
    std::vector<int> out;
    for (int lane = 1; lane < clocks_.lanes(); ++lane) {
      for (int call = clocks_.last(lane); call >= 0; call = clocks_.before(call, lane)) {
        if (end_[static_cast<size_t>(call)] + seconds(program_.calls[static_cast<size_t>(call)]) > time) continue;
        out.push_back(call);
        break;
      }
    }
    return out;
  }

  ir::Program& program_;
  const std::vector<std::vector<int>> needs_;
  ir::LaneClocks clocks_;
  std::vector<double> free_;     ///< per lane: when its last call ends
  std::vector<double> end_;      ///< per call so far
  std::vector<double> until_;    ///< seconds of all calls before this one
  std::vector<int> first_user_;  ///< per call: the first that needs it; the number of calls when none does
};

}  // namespace

void spread_over_lanes(const ir::Plan& plan, ir::Program& program, int lanes) { LaneSpreader(plan, program, lanes).run(); }

std::vector<int> ends_of_calls(const ir::Program& program) {
  const ir::LaneClocks clocks(program);
  const auto lanes = static_cast<size_t>(clocks.lanes());
  std::vector<std::vector<int>> on_lane(lanes);
  for (int i = 0; i < clocks.calls(); ++i) on_lane[static_cast<size_t>(clocks.lane(i))].push_back(i);
  std::vector<int> ends(static_cast<size_t>(clocks.calls()));
  for (int i = 0; i < clocks.calls(); ++i) {
    int& end = ends[static_cast<size_t>(i)] = i;
    for (size_t lane = 0; lane < lanes; ++lane) {
      // Along a lane, clocks only go up: the first call that comes after this one ends the search.
      const std::vector<int>& calls = on_lane[lane];
      if (clocks.lane(i) == static_cast<int>(lane)) continue;
      const auto after = std::partition_point(calls.begin(), calls.end(), [&](int call) { return !clocks.ordered(i, call); });
      if (after != calls.begin()) end = std::max(end, *std::prev(after));
    }
  }
  return ends;
}

}  // namespace ingot::codegen
