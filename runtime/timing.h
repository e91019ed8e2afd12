// Seconds by the host's clock, and what is typical of several.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

namespace ingot::runtime {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Of at least one value; of an even number the greater of the two in the middle.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

}  // namespace ingot::runtime
