// `ingot train` and `ingot generate` as users type them: what is printed, exit codes, stopping and resuming.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "runtime/safetensors.h"
#include "tests/common/places.h"
#include "tests/runtime/scratch_folder.h"

namespace ingot::tools {
namespace {

using runtime::ScratchFolder;
using runtime::slurp;
using testing::HasSubstr;

struct Ran {
  int code = -1;
  std::string text;  ///< both streams
};

// Runs the program; when `stop_at` appears in its output, sends it the signal.
Ran run(const std::string& arguments, const std::string& stop_at = "", int number = 0) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const std::string command = "cd " + tests::source_file("") + " && INGOT_CACHE_DIR=" + tests::build_file("test-cache") + " exec " +
                              tests::build_file("ingot") + " " + arguments;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  Ran ran;
  std::array<char, 4096> part;
  for (ssize_t n; (n = read(ends[0], part.data(), part.size())) > 0;) {
    ran.text.append(part.data(), static_cast<size_t>(n));
    if (number != 0 && ran.text.find(stop_at) != std::string::npos) kill(child, std::exchange(number, 0));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return ran;
}

const std::string kTrain =
    "train models/rwkv7.yaml layers=2 width=32 head=16 vocab=256 batch=2 time=16 ffn=64 rank_w=32 rank_a=32 rank_v=32 rank_g=32 "
    "warmup=2 "
    "--data tests/data/tinyshakespeare_25k.txt ";

TEST(TrainCommand, TrainsThenGenerates) {
  ScratchFolder folder;
  const std::string out = folder.path("run");
  const Ran ran = run(kTrain + "--steps 4 --log-every 2 --out " + out);
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_THAT(ran.text, HasSubstr("step 2/4  loss "));
  EXPECT_THAT(ran.text, HasSubstr("step 4  val loss "));
  EXPECT_THAT(ran.text, HasSubstr("finished 4 steps; saved " + out + "/step-00000004"));
  EXPECT_THAT(ran.text, testing::Not(testing::ContainsRegex("[\r\x1b]")));
  const Ran text = run("generate " + out + " --prompt 'To be' -n 20 --seed 1");
  EXPECT_EQ(text.code, 0) << text.text;
  EXPECT_EQ(text.text.substr(0, 5), "To be");
  EXPECT_EQ(text.text.size(), 5u + 20 + 1);
  EXPECT_EQ(run("generate " + out + " --prompt 'To be' -n 20 --seed 1").text, text.text);
  const Ran again = run(kTrain + "--steps 4 --out " + out);
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.text, HasSubstr("already holds a run"));
}

// The float64 curve of tests/golden/README.md with the command a user types.
TEST(TrainCommand, ReproducesTheFloat64Curve) {
  ScratchFolder folder;
  const std::string out = folder.path("run");
  const Ran ran = run("train models/rwkv7.yaml --init tests/golden/curve_rwkv7.safetensors "
                      "--data tests/data/tinyshakespeare_25k.txt --steps 150 lr=1e-3 lr_final=1e-4 warmup=10 decay=0.1 clip=1.0 "
                      "l2wrap=0 layers=2 width=64 head=32 vocab=256 batch=4 time=32 ffn=256 rank_w=32 rank_a=32 rank_v=32 "
                      "rank_g=32 --out " + out);
  ASSERT_EQ(ran.code, 0) << ran.text;
  const runtime::Safetensors curve(tests::source_file("tests/golden/curve_rwkv7.safetensors"));
  std::map<std::string, double> worst;
  std::istringstream lines(slurp(out + "/metrics.jsonl"));
  size_t steps = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (!json.contains("grad_norm")) continue;  // a validation
    ASSERT_LT(steps, 150u);
    EXPECT_EQ(json.at("step"), steps + 1);
    for (const char* name : {"loss", "lr", "grad_norm"}) {
      const double want = curve.read_doubles(std::string("out.") + name)[steps], got = json.at(name);
      const double error = std::abs(got - want) / std::abs(want);
      EXPECT_LE(error, std::string(name) == "grad_norm" ? 1e-2 : 1e-4) << name << " of step " << steps + 1;
      worst[name] = std::max(worst[name], error);
    }
    ++steps;
  }
  EXPECT_EQ(steps, 150u);
  for (const auto& [name, error] : worst) RecordProperty("worst_" + name, std::to_string(error * 1e6) + " millionths");
}

TEST(TrainCommand, SignalsSaveAndResumeContinues) {
  for (const int number : {SIGINT, SIGTERM}) {
    ScratchFolder folder;
    const std::string out = folder.path("run"), command = kTrain + "--steps 1000000 --eval-every 0 --out " + out;
    const Ran ran = run(command, "step 1/", number);
    EXPECT_EQ(ran.code, 128 + number) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("; saved " + out + "/step-"));
    const Ran resumed = run(command + " --resume", "resumed", number);
    EXPECT_EQ(resumed.code, 128 + number) << resumed.text;
  }
}

TEST(TrainCommand, MistakesAreOneSentence) {
  ScratchFolder folder;
  const std::string short_file = folder.write("short.txt", "too short");
  const std::string kModel = kTrain.substr(0, kTrain.find("--data"));
  EXPECT_THAT(run(kModel + "--data " + short_file).text, HasSubstr("too short: have 9 tokens, need 33"));
  const Ran vocab = run(kTrain + "vocab=90 --steps 5");
  EXPECT_EQ(vocab.code, 1);
  EXPECT_THAT(vocab.text, testing::ContainsRegex("token [0-9]+ at byte [0-9]+ is outside the vocabulary of 90"));
  const std::string out = folder.path("run");
  EXPECT_EQ(run(kTrain + "vocab=90 --steps 5 --out " + out).code, 1);
  EXPECT_FALSE(std::filesystem::exists(out)) << "a mistake in the data leaves no folder behind";
  const Ran interval = run(kTrain + "--save-every -1");
  EXPECT_EQ(interval.code, 1);
  EXPECT_THAT(interval.text, HasSubstr("the number of steps between checkpoints is -1; it must be at least 0"));
  const Ran seed = run(kTrain + "--seed -1");
  EXPECT_EQ(seed.code, 1);
  EXPECT_THAT(seed.text, HasSubstr("--seed: -1; it is a number from 0 up"));
  EXPECT_THAT(run(kTrain + "--steps 99999999999").text, HasSubstr("the step counter, an i32, ends at 2147483647"));
  EXPECT_THAT(run(kTrain + "--progress bar").text, HasSubstr("auto, plain or none"));
  EXPECT_THAT(run(kTrain + "--steps 1").text, HasSubstr("warmup is 2 steps, the whole run 1"));
  const Ran init = run(kTrain + "--steps 5 --init tests/golden/curve_rwkv7.safetensors");
  EXPECT_EQ(init.code, 1);
  EXPECT_THAT(init.text, HasSubstr("head.weight is F32[256, 64] in the file, f32[256, 32] in the model"));
  EXPECT_THAT(run("generate " + folder.path("absent") + " --prompt x").text, HasSubstr("absent"));
  EXPECT_THAT(run("generate tests").text, HasSubstr("tests: error: this folder holds no run"));
}

TEST(TrainCommand, GenerateSaysWhatIsWrongBeforeTheFirstToken) {
  const Ran prompt = run("generate tests/tools/tiny.yaml --prompt A");
  EXPECT_EQ(prompt.code, 1);
  EXPECT_THAT(prompt.text, testing::EndsWith("error: the prompt's token 65 (number 1) is outside the vocabulary, 0 .. 10\n"));
  EXPECT_THAT(prompt.text, testing::Not(testing::ContainsRegex("(^|\n)A")));
  EXPECT_THAT(run("generate tests/tools/tiny.yaml --prompt '' ").text, HasSubstr("an empty prompt"));
}

TEST(TrainCommand, AFlagCannotChangeACompiledPlan) {
  ScratchFolder folder;
  const std::string plan = folder.path("t.plan"), wants = " is compiled already, so --precision cannot change it";
  ASSERT_EQ(run("compile tests/tools/tiny.yaml vocab=256 -o " + plan).code, 0);
  for (const std::string& words :
       {"train " + plan + " --steps 3 --data tests/data/tinyshakespeare_25k.txt", "inspect " + plan, "generate " + plan}) {
    const Ran ran = run(words + " --precision bf16");
    EXPECT_EQ(ran.code, 1) << words;
    EXPECT_THAT(ran.text, HasSubstr(wants));
  }
}

}  // namespace
}  // namespace ingot::tools
