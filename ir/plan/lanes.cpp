#include "ir/plan/lanes.h"

#include <algorithm>

namespace ingot::ir {

int lane_count(const Program& program) {
  int lanes = 1;
  for (const Call& call : program.calls) lanes = std::max(lanes, call.lane + 1);
  return lanes;
}

LaneClocks::LaneClocks(const Program& program) : LaneClocks(lane_count(program)) {
  clocks_.reserve(program.calls.size() * static_cast<size_t>(lanes_));
  for (const Call& call : program.calls) add(call.lane, call.after);
}

void LaneClocks::add(int lane, const std::vector<int>& after) {
  const auto width = static_cast<size_t>(lanes_);
  const size_t begin = clocks_.size();
  clocks_.resize(begin + width, -1);
  const auto follow = [&](int earlier) {
    if (earlier < 0) return;
    const size_t from = static_cast<size_t>(earlier) * width;
    for (size_t i = 0; i < width; ++i) clocks_[begin + i] = std::max(clocks_[begin + i], clocks_[from + i]);
    int& own = clocks_[begin + static_cast<size_t>(lane_of_[static_cast<size_t>(earlier)])];
    own = std::max(own, earlier);
  };
  follow(last(lane));
  for (const int earlier : after) follow(earlier);
  last_[static_cast<size_t>(lane)] = calls();
  lane_of_.push_back(lane);
}

}  // namespace ingot::ir
