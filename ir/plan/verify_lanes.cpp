// verify_plan: calls on different lanes that touch the same bytes are ordered by `after`.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ir/plan/check.h"

namespace ingot::ir {
namespace {

/// Per call, for each lane the last call of that lane known to have finished before it began (-1: none).
std::vector<std::vector<int>> clocks(const Program& program, int lanes) {
  std::vector<std::vector<int>> clock(program.calls.size(), std::vector<int>(static_cast<size_t>(lanes), -1));
  std::vector<int> last(static_cast<size_t>(lanes), -1);
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const Call& call = program.calls[i];
    const auto follow = [&](int before) {
      if (before < 0) return;
      for (int lane = 0; lane < lanes; ++lane) clock[i][lane] = std::max(clock[i][lane], clock[before][lane]);
      int& own = clock[i][program.calls[before].lane];
      own = std::max(own, before);
    };
    follow(last[call.lane]);
    for (const int before : call.after) follow(before);
    last[call.lane] = static_cast<int>(i);
  }
  return clock;
}

struct Touch {
  int call, lane, arena;
  ByteRange bytes;
  bool write;
};

void check_lanes(const Plan& plan, const Program& program) {
  int lanes = 1;
  for (const Call& call : program.calls) lanes = std::max(lanes, call.lane + 1);
  if (lanes == 1) return;
  const auto clock = clocks(program, lanes);
  std::vector<Touch> touches;
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const Call& call = program.calls[i];
    for (const Access& access : call.args) {
      if (access.buffer == kNoBuffer) continue;
      const Buffer& b = plan.buffers[access.buffer];
      const Touch now{static_cast<int>(i), call.lane, b.arena, bytes_of(b), writes(access)};
      for (const Touch& before : touches) {
        if (before.lane == now.lane || before.arena != now.arena || !(before.write || now.write)) continue;
        if (!before.bytes.overlaps(now.bytes) || clock[i][before.lane] >= before.call) continue;
        bad_plan(fmt::format("{} does not wait for call {} on lane {}, which touches the same bytes of {}", show(program, i),
                             before.call, before.lane, show(plan, access.buffer)));
      }
      touches.push_back(now);
    }
  }
}

}  // namespace

// O(n^2) in the accesses of a program that has more than one lane; such programs have thousands, not millions.
void check_lanes(const Plan& plan) {
  for (const Program& program : plan.programs) check_lanes(plan, program);
}

}  // namespace ingot::ir
