// When each call ran: for `ingot bench`, chrome://tracing and Perfetto.
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

  /// One run of a call, in the order they ran. Times in microseconds since the trace was made.
  struct Event {
    const ir::Program* program;
    const ir::Call* call;
    double begin, duration;
  };

  Trace() : start_(Clock::now()) {}
  void add(const ir::Program& program, const ir::Call& call, Clock::time_point begin, Clock::time_point end);
  const std::vector<Event>& events() const { return events_; }
  /// {"traceEvents": [...]}: one complete event a call, its label as name, its kind as category, flops and bytes as arguments.
  std::string json() const;

 private:
  Clock::time_point start_;
  std::vector<Event> events_;
};

}  // namespace ingot::runtime
