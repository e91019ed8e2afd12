#include "runtime/pool.h"

#include <omp.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace ingot::runtime {
namespace {

constexpr int kSpins = 2000;  // about 30 microseconds: the pause between two calls of a plan is shorter

uint32_t parts_left(uint64_t ticket) { return static_cast<uint32_t>(ticket); }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

Pool& Pool::of(int threads) {
  static std::mutex mutex;
  static auto* pools = new std::map<int, Pool*>;  // never taken down: its threads sleep until the process ends
  const std::lock_guard lock(mutex);
  Pool*& pool = (*pools)[threads];
  if (!pool) pool = new Pool(threads);
  return *pool;
}

Pool::Pool(int threads) : threads_(threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

void Pool::run_parts(int64_t count, int64_t chunk, Call call, void* body) {
  if (count <= 0) return;
  chunk = std::max({chunk, int64_t{1}, count / std::numeric_limits<int32_t>::max() + 1});
  const int64_t parts = (count + chunk - 1) / chunk;
  if (parts == 1 || threads_ == 1 || busy_.exchange(true)) return call(body, 0, count, 0);
  submit(count, chunk, static_cast<uint32_t>(parts), call, body);
  take_parts(0);
  wait_for_all(static_cast<uint32_t>(parts));
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  busy_.store(false);
  if (failure) std::rethrow_exception(failure);
}

void Pool::submit(int64_t count, int64_t chunk, uint32_t parts, Call call, void* body) {
  call_.store(call, std::memory_order_relaxed);
  body_.store(body, std::memory_order_relaxed);
  count_.store(count, std::memory_order_relaxed);
  chunk_.store(chunk, std::memory_order_relaxed);
  parts_.store(parts, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
  const uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(generation << 32 | parts);
  // Either this sees a sleeper, or the sleeper, which counted itself first, sees the ticket.
  if (sleepers_.load() == 0) return;
  wake_.fetch_add(1);
  wake_.notify_all();
}

void Pool::work(int thread) {
  omp_set_num_threads(1);  // oneDNN reads it
  for (;;) {
    take_parts(thread);
    for (int i = 0; i < kSpins && parts_left(ticket_.load(std::memory_order_relaxed)) == 0; ++i) relax();
    if (parts_left(ticket_.load()) != 0) continue;
    const uint32_t wake = wake_.load();
    sleepers_.fetch_add(1);
    if (parts_left(ticket_.load()) == 0) wake_.wait(wake);
    sleepers_.fetch_sub(1);
  }
}

// A part is taken by counting the ticket down. If that succeeds, the job read before it was still the current one (generations
// never repeat, and the next job is not written before every part of this one is done).
void Pool::take_parts(int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (parts_left(ticket) != 0) {
    const Call call = call_.load(std::memory_order_relaxed);
    void* const body = body_.load(std::memory_order_relaxed);
    const int64_t count = count_.load(std::memory_order_relaxed), chunk = chunk_.load(std::memory_order_relaxed);
    const uint32_t parts = parts_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    const int64_t begin = static_cast<int64_t>(parts - parts_left(ticket)) * chunk;
    run_part(call, body, begin, std::min(begin + chunk, count), thread);
    if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts) finished_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void Pool::run_part(Call call, void* body, int64_t begin, int64_t end, int thread) try {
  call(body, begin, end, thread);
} catch (...) {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = std::current_exception();
}

void Pool::wait_for_all(uint32_t parts) {
  for (int i = 0; i < kSpins; ++i) {
    if (finished_.load(std::memory_order_acquire) == parts) return;
    relax();
  }
  for (uint32_t done = finished_.load(std::memory_order_acquire); done != parts;
       done = finished_.load(std::memory_order_acquire)) {
    finished_.wait(done);
  }
}

}  // namespace ingot::runtime
