// verify_plan: calls on different lanes that touch the same bytes are ordered by `after`.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "ir/plan/check.h"
#include "ir/plan/lanes.h"

namespace ingot::ir {
namespace {

/// Who touched some bytes last, per lane; -1: nobody. Earlier ones of a lane have finished when its last one has.
struct Touched {
  int64_t end = 0;
  std::vector<int> wrote, touched;
};

/// The bytes of one arena in runs that were touched alike, by their first byte.
class TouchedBytes {
 public:
  explicit TouchedBytes(int lanes) : none_{0, std::vector<int>(static_cast<size_t>(lanes), -1), {}} {
    none_.touched = none_.wrote;
  }

  /// The runs that make up `range`, split where it begins and ends.
  template <class Each>
  void visit(const ByteRange& range, const Each& each) {
    split(range.begin);
    split(range.end);
    int64_t at = range.begin;
    while (at < range.end) {
      auto run = runs_.lower_bound(at);
      if (run == runs_.end() || run->first > at) {  // bytes nobody has touched
        const int64_t end = run == runs_.end() ? range.end : std::min(range.end, run->first);
        run = runs_.emplace_hint(run, at, none_);
        run->second.end = end;
      }
      each(run->second);
      at = run->second.end;
    }
  }

 private:
  void split(int64_t at) {
    auto run = runs_.lower_bound(at);
    if (run == runs_.begin()) return;
    run = std::prev(run);
    if (run->second.end <= at) return;
    Touched rest = run->second;
    run->second.end = at;
    runs_.emplace(at, std::move(rest));
  }

  Touched none_;
  std::map<int64_t, Touched> runs_;
};

void check_lanes(const Plan& plan, const Program& program) {
  const LaneClocks clocks(program);
  if (clocks.lanes() == 1) return;
  std::vector<TouchedBytes> arenas(plan.arenas.size(), TouchedBytes(clocks.lanes()));
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const int now = static_cast<int>(i), lane = program.calls[i].lane;
    for (const Access& access : program.calls[i].args) {
      if (access.buffer == kNoBuffer) continue;
      const Buffer& b = plan.buffers[access.buffer];
      arenas[static_cast<size_t>(b.arena)].visit(bytes_of(b), [&](Touched& run) {
        for (int other = 0; other < clocks.lanes(); ++other) {
          const int before = (writes(access) ? run.touched : run.wrote)[static_cast<size_t>(other)];
          if (other == lane || before < 0 || clocks.ordered(before, now)) continue;
          bad_plan(fmt::format("{} does not wait for call {} on lane {}, which touches the same bytes of {}", show(program, i),
                               before, other, show(plan, access.buffer)));
        }
        run.touched[static_cast<size_t>(lane)] = now;
        if (writes(access)) run.wrote[static_cast<size_t>(lane)] = now;
      });
    }
  }
}

}  // namespace

// O(n log n) in the accesses of a program, times its lanes.
void check_lanes(const Plan& plan) {
  for (const Program& program : plan.programs) check_lanes(plan, program);
}

}  // namespace ingot::ir
