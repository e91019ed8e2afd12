// Programs whose calls stand on several lanes: which call has surely finished before which begins.
//
// Calls of one lane run one after the other, in list order. A call waits for those it names in `after`, all lanes begin after
// what ran before the program and end before what runs after it; nothing else is promised.
#pragma once
#include <cstddef>
#include <vector>

#include "ir/plan/plan.h"

namespace ingot::ir {

/// How many lanes the program has: the highest one's number, and one.
int lane_count(const Program& program);

/// Per call, for each lane, the last call known to have finished before it begins. O(lanes) a call and per call it waits for.
class LaneClocks {
 public:
  explicit LaneClocks(int lanes) : lanes_(lanes), last_(static_cast<size_t>(lanes), -1) {}
  explicit LaneClocks(const Program& program);

  /// The next call of the list. `after` names earlier calls.
  void add(int lane, const std::vector<int>& after);

  /// Of calls on `lane`, the last one that has finished before `call` begins; -1: none.
  int before(int call, int lane) const {
    return clocks_[static_cast<size_t>(call) * static_cast<size_t>(lanes_) + static_cast<size_t>(lane)];
  }
  /// The last call of `lane` so far; -1: none.
  int last(int lane) const { return last_[static_cast<size_t>(lane)]; }
  int lane(int call) const { return lane_of_[static_cast<size_t>(call)]; }
  /// Has `earlier` finished before `later` begins?
  bool ordered(int earlier, int later) const { return before(later, lane(earlier)) >= earlier; }
  int calls() const { return static_cast<int>(lane_of_.size()); }
  int lanes() const { return lanes_; }

 private:
  int lanes_;
  std::vector<int> clocks_;  ///< [call][lane]
  std::vector<int> lane_of_, last_;
};

}  // namespace ingot::ir
