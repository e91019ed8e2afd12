// A kernel traps, and with it the card's context is lost: whatever call shows it, a program ends with one sentence and the right
// code, touches the card no more, and keeps what was saved.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <sstream>
#include <thread>

#include "ir/plan/plan.h"
#include "runtime/checkpoint.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/tune.h"
#include "tests/common/places.h"
#include "tests/common/program.h"
#include "tests/runtime/bigram.h"
#include "tools/shared/exit.h"

namespace ingot::tools {
namespace {

using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using tests::ProgramResult;
using tests::ScratchFolder;

// The plan written by hand, for a card: its kernels are never run. @prepare has a product on a lane of its own.
ir::Plan plan_for_a_card() {
  runtime::BigramOptions small;
  small.vocab = 16;
  ir::Plan plan = runtime::bigram_plan(small);
  plan.target = "cuda:sm_90";
  for (ir::Kernel& kernel : plan.kernels) kernel.threads = 32;
  const ir::BufferId table = plan.find_binding("table")->buffer, copy = plan.find_binding("table.copy")->buffer;
  ir::Call product;
  product.kind = ir::CallKind::gemm;
  product.label = "table.square";
  product.args = {{table, ir::AccessMode::read}, {table, ir::AccessMode::read}, {copy, ir::AccessMode::write}};
  product.gemm.m = product.gemm.n = product.gemm.k = product.gemm.lda = product.gemm.ldb = product.gemm.ldd = small.vocab;
  product.lane = 1;
  product.after = {0};
  for (ir::Program& program : plan.programs) {
    if (program.name == "prepare") program.calls.push_back(product);
  }
  return plan;
}

class LostContext : public testing::Test {
 protected:
  LostContext() {
    ir::write_plan(plan_for_a_card(), plan_);
    folder_.write("text", std::string(2000, '\7'));
  }

  // On the fake card, which is lost at the `lose_at`-th call of its libraries; 0: never.
  ProgramResult run(std::vector<std::string> words, int64_t lose_at, const std::string& with = "700") const {
    words.insert(words.begin(), tests::build_file("ingot"));
    return tests::run_program(words, "",
                              {{"LD_LIBRARY_PATH", tests::build_file("tests/fake_gpu")},
                               {"INGOT_FAKE_LOSE_AT", std::to_string(lose_at)},
                               {"INGOT_FAKE_LOSE_WITH", with},
                               {"INGOT_FAKE_COUNT", folder_.file("count")}});
  }

  // How many calls an untroubled run makes.
  int64_t calls_of(const std::vector<std::string>& words) const {
    const ProgramResult good = run(words, 0);
    EXPECT_EQ(good.code, 0) << good.err;
    EXPECT_EQ(good.err, "");
    return std::stoll(tests::file_content(folder_.file("count")));
  }

  struct Lost {
    int64_t at = 0;  ///< the call at which the card was lost
    ProgramResult result;
  };

  // What becomes of it when the card is lost at call `from`, `by` calls later, ... until the last; words by the number of the
  // call.
  std::vector<Lost> sweep(int64_t from, int64_t by, const std::function<std::vector<std::string>(int64_t)>& words) const {
    std::vector<Lost> all;
    for (int64_t n = from, last = calls_of(words(0)); n <= last; n += by) all.push_back({n, {}});
    std::atomic<size_t> next = 0;
    std::vector<std::thread> workers(4);
    for (std::thread& worker : workers) {
      worker = std::thread([&] {
        for (size_t i; (i = next++) < all.size();) all[i].result = run(words(all[i].at), all[i].at);
      });
    }
    for (std::thread& worker : workers) worker.join();
    return all;
  }

  // One sentence with the driver's words, and the code of a bug of ours; a run that had done all it was for may end well.
  static void expect_told(const Lost& one, const std::string& done) {
    const ProgramResult& lost = one.result;
    SCOPED_TRACE(testing::Message() << "lost at call " << one.at << ", code " << lost.code << ": " << lost.err);
    if (lost.code == 0) {
      EXPECT_THAT(lost.out, HasSubstr(done));
      EXPECT_EQ(lost.err, "");
      return;
    }
    EXPECT_EQ(lost.code, 3);
    EXPECT_THAT(lost.err, ContainsRegex("^ingot: internal error: [^\n]*failed[^\n]*an illegal memory access was encountered "
                                        "\\(CUDA_ERROR_ILLEGAL_ADDRESS\\), seen at \"[^\n]*\n"
                                        "This is a bug of ours. To reproduce it: [^\n]*\n$"));
  }

  // Lost while a step runs: the latest call after which the sentence is of program train.
  ProgramResult in_the_step(const std::vector<std::string>& words) const {
    for (int64_t n = calls_of(words); n > 0; n -= 8) {
      ProgramResult lost = run(words, n);
      if (lost.err.find("program train") != std::string::npos) return lost;
    }
    return {};
  }

  // The checkpoints of a run, in order: each whole, and nothing half written beside them.
  static std::vector<std::string> checkpoints(const std::string& out) {
    std::vector<std::string> saved;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(out, none)) {
      EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path();
      if (entry.is_directory()) saved.push_back(entry.path().string());
    }
    std::sort(saved.begin(), saved.end());
    for (const std::string& path : saved) EXPECT_NO_THROW(runtime::open_checkpoint(path)) << path;
    return saved;
  }

  ScratchFolder folder_;
  const std::string plan_ = folder_.file("x.plan");
};

constexpr int64_t kOpened = 100;  // calls that open a session, which are the same for every command

TEST_F(LostContext, BenchEndsWithASentence) {
  const std::vector<std::string> words{"bench", plan_, "--program", "eval", "--steps", "1", "--warmup", "0", "--threads", "1"};
  const auto all = sweep(kOpened, 2, [&](int64_t) { return std::vector(words); });
  EXPECT_GT(all.size(), 100U);
  for (const Lost& lost : all) expect_told(lost, "ceilings");
}

TEST_F(LostContext, RunEndsWithASentenceAtEveryCall) {
  const std::vector<std::string> words{"run", plan_, "--program", "train", "--check-nan", "--threads", "1"};
  for (const Lost& lost : sweep(1, 1, [&](int64_t) { return std::vector(words); })) expect_told(lost, "grad_norm");
}

TEST_F(LostContext, TrainKeepsWhatItSavedAndSaysSo) {
  const auto out = [&](int64_t n) { return folder_.file("out-" + std::to_string(n)); };
  const auto all = sweep(kOpened, 3, [&](int64_t n) {
    return std::vector<std::string>{
        "train", plan_,          "--data", folder_.file("text"), "--out", out(n),      "--steps", "2", "--save-every",
        "1",     "--eval-every", "0",      "--progress",         "none",  "--threads", "1"};
  });
  size_t told = 0;
  for (const Lost& lost : all) {
    expect_told(lost, "");
    const ProgramResult& result = lost.result;
    SCOPED_TRACE(result.err);
    const std::vector<std::string> saved = checkpoints(out(lost.at));
    EXPECT_TRUE(result.code != 0 || saved.size() == 2U);
    if (result.err.find("training was at") == std::string::npos) continue;
    ++told;
    EXPECT_THAT(result.err,
                HasSubstr(saved.empty() ? "before the first checkpoint" : "--resume goes on from " + saved.back() + "\n"));
  }
  EXPECT_GT(told, 20U);
}

// A run that was lost goes on where its sentence says.
TEST_F(LostContext, TrainGoesOnFromWhatItNamed) {
  std::vector<std::string> words{"train", plan_,          "--data", folder_.file("text"), "--out", folder_.file("out"), "--steps",
                                 "3",     "--save-every", "1",      "--eval-every",       "0",     "--threads",         "1"};
  int64_t n = calls_of(words);
  do {
    std::filesystem::remove_all(folder_.file("out"));
    n -= 20;
  } while (run(words, n).code == 0);
  words.emplace_back("--resume");
  const ProgramResult resumed = run(words, 0);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resumed " + folder_.file("out")));
}

TEST_F(LostContext, NamesTheProgramOrTheCall) {
  const std::vector<std::string> words{"train", plan_,          "--data", folder_.file("text"), "--steps",
                                       "1",     "--eval-every", "0",      "--threads",          "1"};
  const ProgramResult graph = in_the_step(words);
  EXPECT_THAT(graph.err, HasSubstr("program train, run 2 of the session"));
  EXPECT_THAT(graph.err, HasSubstr("--no-graph"));
  EXPECT_THAT(graph.err, HasSubstr("training was at step "));
  std::vector<std::string> one_by_one = words;
  one_by_one.emplace_back("--no-graph");
  const ProgramResult calls = in_the_step(one_by_one);
  EXPECT_THAT(calls.err, ContainsRegex("call [01] of program train, kernel (pass|update) for (pass|update), failed on the GPU"));
  EXPECT_THAT(calls.err, Not(HasSubstr("--no-graph, or")));
}

// Tuning is a command's only together with a compiler for cards: here it is a process that does nothing else.
void tune_in_child(int64_t lose_at, const std::string& count, const std::string& err) {
  setenv("INGOT_FAKE_LOSE_AT", std::to_string(lose_at).c_str(), 1);
  setenv("INGOT_FAKE_COUNT", count.c_str(), 1);
  // Later openings by name get the libraries of that name that are there.
  for (const char* name : {"libcuda.so.1", "libcublasLt.so.13"}) {
    if (!dlopen(tests::build_file(std::string("tests/fake_gpu/") + name).c_str(), RTLD_NOW | RTLD_GLOBAL)) _exit(125);
  }
  if (!std::freopen(err.c_str(), "w", stderr)) _exit(125);
  const int code = guarded("tune", [] { runtime::cuda::tune(plan_for_a_card()); });
  std::fflush(stderr);
  runtime::cuda::end_if_lost(code);
  std::exit(code);
}

TEST_F(LostContext, TuningEndsWithASentenceAtEveryCall) {
  const auto tune = [&](int64_t lose_at) {
    const std::string err = folder_.file("err");
    const pid_t child = fork();
    if (child == 0) tune_in_child(lose_at, folder_.file("count"), err);
    int status = 0;
    waitpid(child, &status, 0);
    return Lost{lose_at, {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), "", tests::file_content(err)}};
  };
  EXPECT_EQ(tune(0).result.code, 0);
  const int64_t calls = std::stoll(tests::file_content(folder_.file("count")));
  EXPECT_GT(calls, 50);
  int64_t named = 0;
  for (int64_t n = 1; n <= calls; ++n) {
    const Lost lost = tune(n);
    expect_told(lost, "");
    if (lost.result.err.find("tuning a product of 16 x 16 x 16 failed on the GPU") != std::string::npos) ++named;
  }
  EXPECT_GT(named, 20);
}

// A failure that leaves the context whole: wherever a constructor stops half way, what it held is given back.
TEST_F(LostContext, NothingIsHeldAfterACallThatFailed) {
  const std::vector<std::string> words{tests::build_file("ingot"), "run", plan_, "--program", "eval", "--threads", "1"};
  const auto fail = [&](int64_t at) {
    const ProgramResult failed = tests::run_program(words, "",
                                                    {{"LD_LIBRARY_PATH", tests::build_file("tests/fake_gpu")},
                                                     {"INGOT_FAKE_FAIL_AT", std::to_string(at)},
                                                     {"INGOT_FAKE_COUNT", folder_.file("count")}});
    int64_t calls = 0, live = -1;
    std::istringstream(tests::file_content(folder_.file("count"))) >> calls >> live;
    EXPECT_EQ(live, 0) << "failed at call " << at << ", code " << failed.code << ": " << failed.err;
    EXPECT_THAT(failed.code, AnyOf(0, 2, 3)) << failed.err;
    EXPECT_EQ(failed.code == 0, failed.err.empty()) << failed.err;
    return calls;
  };
  const int64_t calls = fail(0);
  for (int64_t at = 1; at <= calls; at += 2) fail(at);
}

// What the card did is no bug of ours.
TEST_F(LostContext, ACardThatFailsIsTheMachines) {
  const ProgramResult lost = run({"run", plan_, "--program", "train"}, 60, "214");
  EXPECT_EQ(lost.code, 2) << lost.err;
  EXPECT_THAT(lost.err, ContainsRegex("^ingot: error: [^\n]*CUDA_ERROR_ECC_UNCORRECTABLE[^\n]*dmesg[^\n]*\n$"));
}

}  // namespace
}  // namespace ingot::tools
