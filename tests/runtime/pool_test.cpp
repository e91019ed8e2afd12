// The pool of threads: every part once, nested and failing work, many small jobs.
#include "runtime/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "tests/runtime/scratch_folder.h"

namespace ingot::runtime {
namespace {

TEST(Pool, EveryIndexOnceAndThreadsInRange) {
  for (const int threads : {1, 2, 7}) {
    for (const int64_t count : {0, 1, 5, 1000}) {
      for (const int64_t chunk : {0, 1, 3, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        std::atomic<bool> in_range = true;
        Pool::of(threads).run(count, chunk, [&](int64_t begin, int64_t end, int thread) {
          if (thread < 0 || thread >= threads || begin >= end) in_range = false;
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        EXPECT_TRUE(in_range);
        for (const auto& n : seen) EXPECT_EQ(n, 1);
      }
    }
  }
}

// Late wakers must not run parts of a job that is over, nor miss one that has begun.
TEST(Pool, ManySmallJobs) {
  std::vector<int64_t> values(64);
  for (int job = 0; job < 20000; ++job) {
    Pool::of(3).run(64, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i + job % 2;
    });
  }
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], static_cast<int64_t>(20000 * i + 10000));
}

TEST(Pool, SleepingThreadsWake) {
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int64_t> sum = 0;
    Pool::of(2).run(100, 1, [&](int64_t begin, int64_t, int) { sum += begin; });
    EXPECT_EQ(sum, 4950);
  }
}

TEST(Pool, NestedAndConcurrentRuns) {
  std::atomic<int64_t> total = 0;
  const auto inner = [&](int64_t begin, int64_t end, int) { total += end - begin; };
  const auto job = [&] {
    for (int i = 0; i < 200; ++i) {
      Pool::of(2).run(8, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t k = begin; k < end; ++k) Pool::of(2).run(8, 1, inner);
      });
    }
  };
  std::thread other(job);
  job();
  other.join();
  EXPECT_EQ(total, 2 * 200 * 64);
}

TEST(Pool, FailuresReachTheCaller) {
  for (const int threads : {1, 4}) {
    const auto fail = [&] {
      Pool::of(threads).run(100, 1, [](int64_t begin, int64_t, int) {
        if (begin == 50) throw std::runtime_error("part 50");
      });
    };
    if (threads > 1) {
      EXPECT_EQ(error_of(fail), "part 50");
    }
    std::atomic<int> after = 0;
    Pool::of(threads).run(10, 1, [&](int64_t begin, int64_t end, int) { after += static_cast<int>(end - begin); });
    EXPECT_EQ(after, 10);
  }
}

}  // namespace
}  // namespace ingot::runtime
