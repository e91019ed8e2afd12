// verify_plan: who shares bytes with whom, and what was written before it is read.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "ir/plan/check.h"

namespace ingot::ir {
namespace {

/// Buffers live at the same time, by offset. An insertion that meets a neighbour's bytes is the fault; since those already in
/// do not overlap, the neighbours on both sides are enough.
class LiveBytes {
 public:
  LiveBytes(const Plan& plan, int arena) : plan_(plan), arena_(arena) {}

  void insert(BufferId id, const std::string& when) {
    const ByteRange range = bytes_of(plan_.buffers[id]);
    const auto next = live_.lower_bound(range.begin);
    if (next != live_.end() && next->first < range.end) fail(id, next->second, when);
    if (next != live_.begin()) {
      const BufferId before = std::prev(next)->second;
      if (bytes_of(plan_.buffers[before]).end > range.begin) fail(id, before, when);
    }
    live_.emplace(range.begin, id);
  }
  void erase(BufferId id) { live_.erase(plan_.buffers[id].offset); }

 private:
  [[noreturn]] void fail(BufferId a, BufferId b, const std::string& when) const {
    if (a > b) std::swap(a, b);
    bad_plan(fmt::format("{} and {} overlap in arena {} while both are live{}", show(plan_, a), show(plan_, b),
                         plan_.arenas[arena_].name, when));
  }

  const Plan& plan_;
  int arena_;
  std::map<int64_t, BufferId> live_;
};

// Births and deaths in call order; a buffer dies after its last call, so births of a call come before its deaths.
void sweep(const Plan& plan, const std::vector<BufferId>& temps, LiveBytes live, const Program& program) {
  std::vector<std::tuple<int, bool, BufferId>> events;
  for (const BufferId id : temps) {
    events.emplace_back(plan.buffers[id].first, false, id);
    events.emplace_back(plan.buffers[id].last, true, id);
  }
  std::sort(events.begin(), events.end());
  for (const auto& [call, death, id] : events) {
    if (death) {
      live.erase(id);
    } else {
      live.insert(id, fmt::format(" ({})", show(program, static_cast<size_t>(call))));
    }
  }
}

void check_order(const Plan& plan, const Program& program) {
  std::map<BufferId, Written> written;
  // Variables hold what the last program left, inputs what the host wrote.
  const auto starts_undefined = [&](BufferId id) { return plan.buffers[id].role >= BufferRole::output; };
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const Call& call = program.calls[i];
    for (const Access& access : call.args) {
      if (access.buffer == kNoBuffer || !starts_undefined(access.buffer) || !needs_contents(plan, access)) continue;
      if (!written[owner_of(plan, access.buffer)].covers(contents_of(plan.buffers[access.buffer]))) {
        bad_plan(fmt::format("{}: {} is read before it was written", show(program, i), show(plan, access.buffer)));
      }
    }
    for (const Access& access : call.args) {
      if (access.buffer == kNoBuffer || !writes(access)) continue;
      written[owner_of(plan, access.buffer)].add(contents_of(plan.buffers[access.buffer]));
    }
  }
  for (const Port& port : program.outputs) {
    if (!written[owner_of(plan, port.buffer)].covers(contents_of(plan.buffers[port.buffer]))) {
      bad_plan(fmt::format("program {}: output '{}' is never written", program.name, port.name));
    }
  }
}

}  // namespace

ByteRange contents_of(const Buffer& buffer) { return {buffer.offset, buffer.offset + buffer.type.bytes()}; }

void Written::add(ByteRange range) {
  auto it = runs_.upper_bound(range.begin);
  if (it != runs_.begin() && std::prev(it)->second >= range.begin) --it;
  while (it != runs_.end() && it->first <= range.end) {
    range.begin = std::min(range.begin, it->first);
    range.end = std::max(range.end, it->second);
    it = runs_.erase(it);
  }
  runs_.emplace(range.begin, range.end);
}

bool Written::covers(const ByteRange& range) const {
  const auto it = runs_.upper_bound(range.begin);
  return it != runs_.begin() && std::prev(it)->second >= range.end;
}

// O(n log n): per arena the buffers that live always, then per program its temps swept over them.
void check_overlap(const Plan& plan) {
  for (int arena = 0; arena < static_cast<int>(plan.arenas.size()); ++arena) {
    LiveBytes always(plan, arena);
    std::vector<std::vector<BufferId>> temps(plan.programs.size());
    for (BufferId id = 0; id < plan.buffers.size(); ++id) {
      const Buffer& b = plan.buffers[id];
      if (b.arena != arena || b.view_of != kNoBuffer) continue;
      if (b.first == -1) {
        always.insert(id, "");
      } else {
        temps[b.program].push_back(id);
      }
    }
    for (size_t p = 0; p < plan.programs.size(); ++p) sweep(plan, temps[p], always, plan.programs[p]);
  }
}

void check_order(const Plan& plan) {
  for (const Program& program : plan.programs) check_order(plan, program);
}

}  // namespace ingot::ir
