// When each call ran, for chrome://tracing and Perfetto.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan/plan.h"

namespace ingot::runtime {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;

  Trace() : start_(Clock::now()) {}
  void add(const ir::Program& program, const ir::Call& call, Clock::time_point begin, Clock::time_point end);
  /// {"traceEvents": [...]}: one complete event a call, its label as name, its kind as category, flops and bytes as arguments.
  std::string json() const;

 private:
  struct Event {
    const ir::Program* program;
    const ir::Call* call;
    double begin, duration;  ///< microseconds
  };
  Clock::time_point start_;
  std::vector<Event> events_;
};

}  // namespace ingot::runtime
