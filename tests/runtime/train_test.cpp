// The training loop on a plan written by hand: metrics, stopping, resuming bit-equal, and every damage to a checkpoint.
#include "runtime/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/base/error.h"
#include "runtime/safetensors.h"
#include "tests/runtime/bigram.h"
#include "tests/runtime/scratch_folder.h"

namespace ingot::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string sample_text() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "to be, or not to be, that is question " + std::to_string(i * i) + ". ";
  return text;
}

// The CPU's session with the manners of a GPU's: what a run left can still be read after the next one began.
class AheadSession final : public Session {
 public:
  explicit AheadSession(std::unique_ptr<Session> of) : of_(std::move(of)) {}
  const ir::Plan& plan() const override { return of_->plan(); }
  void initialise(uint64_t seed) override { of_->initialise(seed); }
  void run(const std::string& program) override {
    previous_.clear();
    if (last_ == program) {
      for (const ir::Port& port : plan().find_program(program)->outputs)
        previous_.emplace(port.name, of_->output(program, port.name));
    }
    of_->run(program);
    last_ = program;
    ++runs_;
  }
  void set_input(const std::string& program, const std::string& name, const HostTensor& value) override {
    of_->set_input(program, name, value);
  }
  HostTensor output(const std::string& program, const std::string& name) const override { return of_->output(program, name); }
  bool runs_ahead() const override { return true; }
  HostTensor previous_output(const std::string&, const std::string& name) const override { return previous_.at(name); }
  double previous_gap() const override { return runs_ < 3 ? -1 : 0.25; }
  HostTensor read_variable(const std::string& name) const override { return of_->read_variable(name); }
  void write_variable(const std::string& name, const HostTensor& value) override { of_->write_variable(name, value); }
  void record(bool on) override { of_->record(on); }
  const Trace& trace() const override { return of_->trace(); }

 private:
  std::unique_ptr<Session> of_;
  std::map<std::string, HostTensor> previous_;
  std::string last_;
  int runs_ = 0;
};

// One `ingot train` of the hand-made plan, in this process.
struct Training {
  ScratchFolder& folder;
  TrainOptions options;
  BigramOptions model;
  double holdout = 0.1;
  std::string shown;  ///< what was printed
  int signal_at_first_line = 0;

  explicit Training(ScratchFolder& f) : folder(f) {
    options.out = folder.path("run");
    options.steps = 12;
    options.eval_every = 0;
    options.seed = 3;
  }

  std::unique_ptr<Session> session;
  bool ahead = false;  ///< the session runs ahead, as a GPU's does
  TrainResult go() {
    const std::string text = folder.path("text.txt");
    if (!fs::exists(text)) folder.write("text.txt", sample_text());
    SessionOptions session_options;
    session_options.threads = 1;
    session = Session::open(bigram_plan(model), session_options);
    if (ahead) session = std::make_unique<AheadSession>(std::move(session));
    DataOptions data;
    data.time = model.time, data.batch = model.batch, data.vocab = model.vocab, data.holdout = holdout;
    data.least = options.microbatches * model.batch;
    const TokenData tokens(text, data);
    shown.clear();
    cookie_io_functions_t functions{};
    functions.write = [](void* self, const char* line, size_t size) { return static_cast<Training*>(self)->print(line, size); };
    std::FILE* out = fopencookie(this, "w", functions);
    TrainResult result;
    std::exception_ptr failure;
    try {
      Progress progress(ProgressMode::plain, out, 5);
      Signals signals;
      result = train(*session, tokens, options, progress, signals);
    } catch (...) {
      failure = std::current_exception();
    }
    std::fclose(out);
    if (failure) std::rethrow_exception(failure);
    return result;
  }
  // What the loop prints arrives here while it runs: the place to interrupt it.
  ssize_t print(const char* text, size_t size) {
    if (shown.empty() && signal_at_first_line != 0) raise(signal_at_first_line), raise(SIGINT);
    shown.append(text, size);
    return static_cast<ssize_t>(size);
  }
  std::string table() const {
    const auto bytes = session->read_variable("table").bytes;
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// Lines of metrics.jsonl without the times.
std::vector<std::string> metrics(const std::string& out) {
  std::istringstream in(slurp(out + "/metrics.jsonl"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::ordered_json::parse(line);
    json.erase("tokens_per_s");
    lines.push_back(json.dump());
  }
  return lines;
}

std::vector<std::string> folders(const std::string& out) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(out)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Train, WritesMetricsAndTheLastCheckpoint) {
  ScratchFolder folder;
  Training run(folder);
  run.options.eval_every = 6;
  const TrainResult result = run.go();
  EXPECT_EQ(result.end, TrainEnd::finished);
  EXPECT_EQ(result.step, 12);
  EXPECT_EQ(folders(run.options.out), std::vector<std::string>{"step-00000012"});
  const auto lines = metrics(run.options.out);
  ASSERT_EQ(lines.size(), 15u);
  const auto first = nlohmann::json::parse(lines[1]), val = nlohmann::json::parse(lines[0]),
             last = nlohmann::json::parse(lines[13]);
  EXPECT_EQ(val["step"], 0);
  EXPECT_NEAR(val["val_loss"].get<double>(), std::log(256), 0.5);
  EXPECT_EQ(first["step"], 1);
  EXPECT_EQ(first["tokens"], 16);
  EXPECT_NEAR(first["loss"].get<double>(), std::log(256), 0.5);
  EXPECT_FLOAT_EQ(first["lr"].get<float>(), 0.5f);
  EXPECT_GT(first["grad_norm"].get<double>(), 0);
  EXPECT_EQ(last["tokens"], 12 * 16);
  EXPECT_LT(last["loss"].get<double>(), first["loss"].get<double>());
  EXPECT_THAT(run.shown, HasSubstr("step 5/12  loss "));
  EXPECT_THAT(run.shown, testing::Not(HasSubstr("step 4/12")));
  EXPECT_THAT(run.shown, testing::Not(testing::ContainsRegex("[\r\x1b]")));
}

TEST(Train, ADeviceThatRunsAheadTrainsAlikeAndIsTimed) {
  ScratchFolder plain_folder, ahead_folder;
  Training plain(plain_folder), ahead(ahead_folder);
  plain.options.eval_every = ahead.options.eval_every = 6;
  ahead.ahead = true;
  plain.go();
  ahead.go();
  EXPECT_EQ(metrics(plain.options.out), metrics(ahead.options.out));
  EXPECT_EQ(plain.table(), ahead.table());
  EXPECT_THAT(plain.shown, testing::Not(HasSubstr("between two steps")));
  // Of steps 2..6 and 8..12 all but the first had three runs behind them.
  EXPECT_THAT(ahead.shown,
              testing::ContainsRegex("host [0-9.]+ ms a step beside the device's work, 250.000 ms between two steps: "
                                     "medians of the last [0-9]+\n"));
}

TEST(Train, StoppedTwiceEqualsOneRun) {
  ScratchFolder straight_folder, stopped_folder;
  Training straight(straight_folder), stopped(stopped_folder);
  straight.options.eval_every = stopped.options.eval_every = 4;
  straight.go();
  stopped.options.steps = 12;
  stopped.options.save_every = 5;
  stopped.go();  // checkpoints at 5, 10, 12
  for (const char* lost : {"/step-00000012", "/step-00000010"}) fs::remove_all(stopped.options.out + lost);
  stopped.options.resume = true;
  stopped.go();  // from 5
  fs::remove_all(stopped.options.out + "/step-00000012");
  stopped.go();  // from 10
  EXPECT_THAT(stopped.shown, HasSubstr("step-00000010 at step 10"));
  EXPECT_EQ(straight.table(), stopped.table());
  EXPECT_EQ(metrics(straight.options.out), metrics(stopped.options.out));
  EXPECT_EQ(slurp(straight.options.out + "/step-00000012/optimizer.safetensors"),
            slurp(stopped.options.out + "/step-00000012/optimizer.safetensors"));
}

TEST(Train, SignalsFinishTheStepAndSave) {
  for (const int number : {SIGINT, SIGTERM}) {
    ScratchFolder folder, whole_folder;
    Training run(folder), whole(whole_folder);
    run.signal_at_first_line = number;  // twice: the second changes nothing
    const TrainResult result = run.go();
    EXPECT_EQ(result.end, TrainEnd::signal);
    EXPECT_EQ(result.signal, number);
    EXPECT_EQ(result.step, 1);
    EXPECT_EQ(open_checkpoint(result.checkpoint).state.step, 1);
    run.signal_at_first_line = 0;
    run.options.resume = true;
    run.go();
    whole.go();
    EXPECT_EQ(run.table(), whole.table());
  }
}

TEST(Train, SignalsBeforeTheFirstStepExitAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Signals signals;
        raise(SIGTERM);
      },
      testing::ExitedWithCode(128 + SIGTERM), "nothing to save yet");
}

// What a kill between two writes, a full disk or a bad sector leaves: each file of the newest checkpoint cut, gone, or flipped.
TEST(Train, DamagedCheckpointsArePassedOver) {
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "state.json"}) {
    for (const char* damage : {"truncate", "remove", "flip"}) {
      ScratchFolder folder;
      Training run(folder);
      run.options.save_every = 6;
      run.go();
      const std::string good = run.table(), newest = run.options.out + "/step-00000012", path = newest + "/" + file;
      const std::string text = slurp(path);
      if (damage == std::string("truncate")) {
        fs::resize_file(path, text.size() / 2);
      } else if (damage == std::string("remove")) {
        fs::remove(path);
      } else {
        std::string flipped = text;
        flipped[text.size() / 3] = static_cast<char>(flipped[text.size() / 3] ^ 0x10);
        std::ofstream(path, std::ios::binary) << flipped;
        if (file == std::string("state.json")) continue;  // a flipped digit of the manifest is not always detectable
      }
      EXPECT_NE(error_of([&] { open_checkpoint(newest); }), "no error") << file << " " << damage;
      std::vector<std::string> warnings;
      EXPECT_EQ(newest_checkpoint(run.options.out, "", [&](const std::string& w) { warnings.push_back(w); }).state.step, 6);
      EXPECT_EQ(warnings.size(), 1u);
      run.options.resume_from = newest;
      EXPECT_NE(error_of([&] { run.go(); }), "no error");  // asked for by name: no silent fallback
      run.options.resume_from.clear();
      run.options.resume = true;
      run.go();
      EXPECT_THAT(run.shown, HasSubstr("step-00000006 at step 6"));
      EXPECT_EQ(run.table(), good) << file << " " << damage;
      EXPECT_THAT(folders(run.options.out), testing::Contains("set-aside-step-00000012"));
    }
  }
}

TEST(Train, LeftoversOfAKilledSaveAreNoCheckpoint) {
  ScratchFolder folder;
  Training run(folder);
  run.options.save_every = 6;
  run.go();
  fs::rename(run.options.out + "/step-00000012", run.options.out + "/.step-00000012.tmp-1");
  run.options.resume = true;
  run.go();
  EXPECT_THAT(run.shown, HasSubstr("at step 6"));
  EXPECT_THAT(folders(run.options.out), ElementsAre("step-00000006", "step-00000012"));
}

TEST(Train, NoCheckpointAtAll) {
  ScratchFolder folder;
  Training run(folder);
  run.options.resume = true;
  EXPECT_THAT(error_of([&] { run.go(); }), HasSubstr("no run to resume here"));
  fs::create_directories(run.options.out);
  folder.write("run/run.json", "{\"run\": \"1\"}");
  EXPECT_THAT(error_of([&] { run.go(); }), HasSubstr("this run has saved no checkpoint yet; to start again, remove the folder"));
}

TEST(Train, AnOccupiedFolderIsRefused) {
  ScratchFolder folder;
  Training run(folder);
  run.go();
  const std::string before = slurp(run.options.out + "/metrics.jsonl");
  EXPECT_THAT(error_of([&] { run.go(); }), HasSubstr("the folder already holds a run; --resume continues it"));
  EXPECT_EQ(slurp(run.options.out + "/metrics.jsonl"), before);
}

TEST(Train, RetentionCountsStepsNotNames) {
  ScratchFolder folder;
  Training run(folder);
  run.options.save_every = 1;
  run.options.keep = 3;
  run.go();
  EXPECT_THAT(folders(run.options.out), ElementsAre("step-00000010", "step-00000011", "step-00000012"));
  // Names that sort otherwise than their steps, and a leftover of another run with a higher step.
  const std::string out = folder.path("keep");
  fs::create_directories(out);
  RunState state{"mine", 0, 0, 0, 0, {}}, other{"other", 5000, 0, 0, 0, {}};
  save_checkpoint(out, *run.session, other);
  for (const int64_t step : {8, 9, 10, 99999999, 100000000}) {
    state.step = step;
    const Checkpoint newest = save_checkpoint(out, *run.session, state);
    prune_checkpoints(out, newest, step == 10 ? 1 : 2);
    EXPECT_TRUE(fs::exists(newest.path));
  }
  EXPECT_THAT(folders(out), ElementsAre("step-00005000", "step-100000000", "step-99999999"));
  EXPECT_EQ(newest_checkpoint(out, "mine", [](const std::string&) {}).state.step, 100000000);
}

TEST(Train, ChangedConfigIsShownAndRefused) {
  ScratchFolder folder;
  Training run(folder);
  run.options.steps = 6;
  run.go();
  run.options.resume = true;
  run.options.steps = 12;
  run.options.hypers = {{"lr", "0.25"}};
  const std::string error = error_of([&] { run.go(); });
  EXPECT_THAT(error, HasSubstr("another lr (lr: 0.5 -> 0.25); --allow-change lr continues"));
  EXPECT_THAT(error, HasSubstr("another steps (steps: 6.0 -> 12.0)"));
  EXPECT_THAT(run.shown, HasSubstr("changed: lr: 0.5 -> 0.25"));
  EXPECT_THAT(run.shown, testing::Not(HasSubstr("memory.")));
  run.options.allow_change = {"lr", "stpes"};
  EXPECT_THAT(error_of([&] { run.go(); }), HasSubstr("--allow-change stpes: the run has no such key; did you mean steps?"));
  run.options.allow_change = {"lr", "steps"};
  EXPECT_EQ(run.go().step, 12);
}

TEST(Train, AnotherModelIsRefused) {
  ScratchFolder folder;
  Training run(folder);
  run.go();
  run.options.resume = true;
  run.options.allow_change = {"vocab", "data"};
  run.model.vocab = 200;
  const std::string error = error_of([&] { run.go(); });
  EXPECT_THAT(error, HasSubstr("table is F32[256, 256] in the checkpoint, f32[200, 200] in the model"));
  EXPECT_THAT(error, HasSubstr("table.m is F32[256, 256]"));
}

TEST(Train, AnotherDataFileIsRefused) {
  ScratchFolder folder;
  Training run(folder);
  run.go();
  run.options.resume = true;
  std::string text = sample_text();
  text[10] = '#';
  folder.write("text.txt", text);
  EXPECT_THAT(error_of([&] { run.go(); }), HasSubstr("another data ("));
}

TEST(Train, StopsItselfWhenTheLossIsNotFinite) {
  ScratchFolder folder;
  Training run(folder);
  const HostTensor broken = HostTensor::from_doubles({ir::DType::f32, {256, 256}}, std::vector<double>(65536, NAN));
  run.options.init = folder.path("nan.safetensors");
  write_safetensors(run.options.init, {{"table", broken}});
  run.options.steps = 50;
  run.options.patience = 3;
  const TrainResult result = run.go();
  EXPECT_EQ(result.end, TrainEnd::diverged);
  EXPECT_EQ(result.step, 3);
  EXPECT_THAT(result.reason, HasSubstr("was not finite for 3 steps in a row, 1 to 3; the weights are those of step 0"));
  EXPECT_EQ(folders(run.options.out), std::vector<std::string>{});
  EXPECT_THAT(metrics(run.options.out).back(), HasSubstr("null"));
}

TEST(Train, MicrobatchesEqualOneLargeBatch) {
  ScratchFolder one_folder, four_folder;
  Training one(one_folder), four(four_folder);
  one.model.batch = 8;
  four.model.batch = 2;
  four.model.microbatches = true;
  four.options.microbatches = 4;
  one.holdout = four.holdout = 0;
  one.go();
  four.go();
  const auto a = metrics(one.options.out), b = metrics(four.options.out);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = nlohmann::json::parse(a[i]), y = nlohmann::json::parse(b[i]);
    EXPECT_EQ(x["tokens"], y["tokens"]);
    EXPECT_EQ(x["lr"], y["lr"]);
    EXPECT_NEAR(x["loss"].get<double>(), y["loss"].get<double>(), 1e-5);
    EXPECT_NEAR(x["grad_norm"].get<double>(), y["grad_norm"].get<double>(), 1e-5);
  }
}

TEST(Train, OptionsAreChecked) {
  ScratchFolder folder;
  const auto error_with = [&](auto&& change) {
    Training run(folder);
    run.options.out.clear();
    change(run);
    return error_of([&] { run.go(); });
  };
  EXPECT_THAT(error_with([](Training& r) { r.options.microbatches = 2; }),
              HasSubstr("compiled for one microbatch and cannot take 2 a step"));
  EXPECT_THAT(error_with([](Training& r) { r.options.steps = 0; }), HasSubstr("the number of steps is 0; it must be at least 1"));
  EXPECT_THAT(error_with([](Training& r) {
                r.options.hypers = {{"lrr", "1"}};
              }),
              HasSubstr("no such train scalar; did you mean lr?"));
  EXPECT_THAT(error_with([](Training& r) {
                r.options.hypers = {{"lr", "1x"}};
              }),
              HasSubstr("lr=1x: the value must be a finite number"));
  EXPECT_THAT(error_with([](Training& r) { r.options.hypers = {{"lr", "nan"}}; }), HasSubstr("must be a finite number"));
  EXPECT_THAT(error_with([](Training& r) { r.options.hypers = {{"steps", "5"}}; }), HasSubstr("the number of steps is --steps"));
  EXPECT_THAT(error_with([](Training& r) { r.options.resume = true; }), HasSubstr("--resume needs --out"));
  EXPECT_EQ(error_with([](Training&) {}), "no error");
}

// A disk that fills up while a checkpoint is written: one sentence, the run's earlier checkpoint intact, no half folder.
TEST(Train, AFullDiskLosesNothing) {
  ScratchFolder folder;
  Training run(folder);
  run.options.steps = 6;
  run.go();
  run.options.steps = 12;
  run.options.allow_change = {"steps"};
  run.options.resume = true;
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 200000;  // the plan fits, the weights do not
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] { run.go(); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("weights.safetensors: File too large"));
  EXPECT_EQ(folders(run.options.out), std::vector<std::string>{"step-00000006"});
  EXPECT_EQ(open_checkpoint(run.options.out + "/step-00000006").state.step, 6);
}

}  // namespace
}  // namespace ingot::runtime
