// The threads that calls of a plan are spread over.
//
// Why not OpenMP's: a plan has thousands of calls of some microseconds each. OpenMP's threads meet at a barrier after each one
// and spin there, so one thread that the system has put aside stops all others: on two cores shared with other work a step took
// twenty times its own time. Here nobody waits for a thread that has not taken a piece of the work, and idle threads spin
// for some microseconds and then sleep. oneDNN, whose threads are OpenMP's, is only ever asked for one (see gemm.h).
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace ingot::runtime {

class Pool {
 public:
  /// The pool of this many threads (the caller counts as one). Made when first asked for, kept until the program ends.
  static Pool& of(int threads);
  int threads() const { return threads_; }

  /// body(begin, end, thread) for parts of 0..count-1 of `chunk` each, in any order, thread in 0..threads-1. Returns when all are
  /// done; the first exception is rethrown. A pool that is busy (another session, a nested call) lets the caller do it all.
  template <typename Body>
  void run(int64_t count, int64_t chunk, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_parts(
        count, chunk,
        [](void* self, int64_t begin, int64_t end, int thread) { (*static_cast<Plain*>(self))(begin, end, thread); },
        const_cast<std::remove_const_t<Plain>*>(&body));
  }

 private:
  using Call = void (*)(void* body, int64_t begin, int64_t end, int thread);

  explicit Pool(int threads);
  void run_parts(int64_t count, int64_t chunk, Call call, void* body);
  void submit(int64_t count, int64_t chunk, uint32_t parts, Call call, void* body);
  void work(int thread);
  void take_parts(int thread);
  void run_part(Call call, void* body, int64_t begin, int64_t end, int thread);
  void wait_for_all(uint32_t parts);

  int threads_;
  std::vector<std::jthread> workers_;
  std::atomic<bool> busy_{false};
  // One job at a time. `ticket_` is (generation << 32 | parts not yet taken); the rest is written before the ticket and belongs
  // to whoever then takes a part of that generation.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<Call> call_{nullptr};
  std::atomic<void*> body_{nullptr};
  std::atomic<int64_t> count_{0}, chunk_{1};
  std::atomic<uint32_t> parts_{0}, finished_{0};
  std::atomic<uint32_t> wake_{0};
  std::atomic<int> sleepers_{0};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace ingot::runtime
