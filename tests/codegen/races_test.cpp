// The emulator's race detector: it must see what barriers, waits and warp barriers do and do not order, and be silent where they
// do.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "tests/codegen/emulated_machine.h"

namespace ingot {
namespace {

constexpr const char* kNone = nullptr;
constexpr const char* kEarly = "a read of what may not be written yet";
constexpr const char* kTooSoon = "a write over what may not be read yet";

/// What thread `t` of 128 does, and what is to be found in it.
struct Case {
  const char* name;
  const char* body;
  const char* found;
};

const Case kCases[] = {
    {"a_block_barrier_orders", "ig_poke(at(t), t); __syncthreads(); ig_peek(at(127 - t));", kNone},
    {"without_one_reads_come_early", "ig_poke(at(t), t); ig_peek(at(127 - t));", kEarly},
    {"without_one_writes_come_too_soon", "ig_peek(at(127 - t)); ig_poke(at(t), t);", kTooSoon},
    {"two_writers", "ig_poke(at(t / 2), t);", "a write over another"},
    {"a_warp_barrier_orders_a_warp", "ig_poke(at(t), t); __syncwarp(); ig_peek(at(t ^ 1));", kNone},
    {"but_no_other", "ig_poke(at(t), t); __syncwarp(); ig_peek(at(t ^ 32));", kEarly},
    {"shuffles_order_no_memory", "ig_poke(at(t), t); __shfl_xor_sync(0xffffffffu, t, 1); ig_peek(at(t ^ 1));", kEarly},
    {"nor_do_matrix_loads", "unsigned r[4]; ig_load_matrices(r, at(4 * t)); ig_poke(at(t), r[0]);", kTooSoon},
    {"a_barrier_behind_one_does", "unsigned r[4]; ig_load_matrices(r, at(4 * t)); __syncthreads(); ig_poke(at(t), r[0]);", kNone},
    {"who_arrives_tells",
     "if (t < 64) { ig_poke(at(t), t); ig_arrive(1, 128); } else { ig_gather(1, 128); ig_peek(at(t - 64)); }", kNone},
    {"who_arrives_is_not_told",
     "if (t < 64) { ig_poke(at(t), t); ig_arrive(1, 128); ig_poke(at(t), t); } else { ig_gather(1, 128); ig_peek(at(t - 64)); }",
     kEarly},
    {"a_buffer_is_free_when_its_reader_says_so",
     "if (t < 64) { ig_poke(at(t), t); ig_arrive(1, 128); ig_gather(2, 128); ig_poke(at(t), t); }"
     "else { ig_gather(1, 128); ig_peek(at(t - 64)); ig_arrive(2, 128); }",
     kNone},
    {"a_barrier_of_others_tells_nothing", "if (t == 127) ig_poke(at(0), t); if (t < 64) { ig_gather(1, 64); ig_peek(at(0)); }",
     kEarly},
    {"a_copy_waited_for", "copy(); ig_copy_wait_all(); ig_peek(at(4 * t));", kNone},
    {"a_copy_handed_on", "copy(); ig_copy_wait_all(); __syncthreads(); ig_peek(at(4 * (127 - t)));", kNone},
    {"a_copy_on_its_way", "copy(); ig_peek(at(4 * t));", "by an asynchronous copy"},
    {"others_wait_for_no_copy", "copy(); __syncthreads(); ig_copy_wait_all(); ig_peek(at(4 * (127 - t)));",
     "by an asynchronous copy"},
};

TEST(Races, AreFoundAndNothingElseIs) {
  const auto machine = testing::emulated_machine();
  std::vector<codegen::KernelText> kernels;
  for (const Case& test : kCases) {
    kernels.push_back({test.name, std::string("#include \"warp_cuda.inc\"\nextern \"C\" __global__ void ") + test.name +
                                      "(const char* in) {\n  IG_DYNAMIC_SHARED(memory);\n"
                                      "  const unsigned t = threadIdx.x;\n"
                                      "  const auto at = [&](unsigned word) { return memory + 4 * word; };\n"
                                      "  const auto copy = [&] { ig_copy_async(at(4 * t), in + 16 * t, true); };\n  " +
                                      test.body + "\n}\n"});
  }
  machine->build(kernels);
  codegen::Launch launch;
  launch.threads = 128, launch.tasks = 2, launch.shared_bytes = 4096;
  testing::Guarded in(4096, 0);
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    if (test.found == kNone) {
      machine->run(test.name, launch, {&in});
    } else {
      ::testing::TestPartResultArray results;
      {
        const ::testing::ScopedFakeTestPartResultReporter reporter(&results);
        machine->run(test.name, launch, {&in});
      }
      ASSERT_EQ(results.size(), 1);
      EXPECT_NE(std::string(results.GetTestPartResult(0).message()).find(test.found), std::string::npos)
          << results.GetTestPartResult(0).message();
    }
  }
}

}  // namespace
}  // namespace ingot
