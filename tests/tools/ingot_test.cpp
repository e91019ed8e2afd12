// The program `ingot` as a user types it: what it says, where, and with which exit code. `compile` and `inspect` have their own
// files; here stand the rules all commands share, `ops` and `opt`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/common/places.h"
#include "tests/common/program.h"

namespace ingot::tests {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

ProgramResult ingot(std::vector<std::string> words, const std::string& input = "") {
  words.insert(words.begin(), build_file("ingot"));
  return run_program(words, input);
}

constexpr const char* kTwins =
    "input %x: f32[2]\n%y = neg(%x): f32[2]\n%z = neg(%x): f32[2]\n%a = add(%y, %z): f32[2]\noutput a = %a\n";

TEST(Ingot, HelpAndVersionEndWithZero) {
  for (const char* flag : {"--help", "-h", "--version"}) {
    const ProgramResult result = ingot({flag});
    EXPECT_EQ(result.code, 0) << flag;
    EXPECT_EQ(result.err, "") << flag;
    EXPECT_NE(result.out, "") << flag;
  }
  EXPECT_THAT(ingot({"opt", "--help"}).out, HasSubstr("--passes"));
}

TEST(Ingot, WrongWordsAreTheUsersMistake) {
  EXPECT_EQ(ingot({}).code, 1);
  EXPECT_THAT(ingot({}).err, HasSubstr("a command is needed, one of "));
  const ProgramResult command = ingot({"complie"});
  EXPECT_EQ(command.code, 1);
  EXPECT_THAT(command.err, HasSubstr("there is no command 'complie'; did you mean 'compile'?"));
  const ProgramResult option = ingot({"ops", "--jsno"});
  EXPECT_EQ(option.code, 1);
  EXPECT_EQ(option.err, "<command line>: error: ops has no option '--jsno'; did you mean '--json'?\n");
  const ProgramResult value = ingot({"opt", "--passes"});
  EXPECT_EQ(value.code, 1);
  EXPECT_THAT(value.err, HasSubstr("--passes"));
  EXPECT_EQ(ingot({"ops", "matmul", "too", "many"}).code, 1);
}

TEST(Ingot, AFullDiskIsTheMachinesFault) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const ProgramResult result = run_program({"/bin/sh", "-c", build_file("ingot") + " ops > /dev/full"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot write to the standard output"));
}

TEST(Ops, ListsEveryOp) {
  const ProgramResult result = ingot({"ops"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("\nmatmul(a, b, ta=false, tb=false, dtype=none, c=none, siblings=none) -> y\n"));
  EXPECT_THAT(result.out, HasSubstr("`ingot ops NAME` shows one in full."));
}

TEST(Ops, PageOfOneOp) {
  const std::string page = ingot({"ops", "wkv7"}).out;
  EXPECT_THAT(page, StartsWith("wkv7("));
  for (const char* part : {"\noperands\n", "\nattributes\n", "\nresults\n", "\nfacts\n", "kernel \"wkv7\"", "carries", "starts",
                           "default 32", "\nexamples\n"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(ingot({"ops", "max"}).out, HasSubstr("max(a, b) means maximum(a, b)"));
  EXPECT_THAT(ingot({"ops", "lt"}).out, HasSubstr("zero by definition"));
}

TEST(Ops, UnknownOpGetsTheNearest) {
  const ProgramResult result = ingot({"ops", "matmull"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("there is no op 'matmull'; did you mean 'matmul'?"));
}

TEST(Ops, Json) {
  const nlohmann::json all = nlohmann::json::parse(ingot({"ops", "--json"}).out);
  EXPECT_GT(all.size(), 50u);
  const nlohmann::json one = nlohmann::json::parse(ingot({"ops", "layer_norm", "--json"}).out);
  EXPECT_EQ(one["name"], "layer_norm");
  EXPECT_EQ(one["operands"].size(), 3u);
}

TEST(Opt, RunsAPipelineOnBareLines) {
  const ProgramResult result = ingot({"opt", "-", "--passes", "cse, dce", "--no-locations"}, kTwins);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out,
            "module main\n\ngraph @main at model {\n  input %x: f32[2]\n  %y = neg(%x): f32[2]\n  %a = add(%y, %y): f32[2]\n  "
            "output a = %a\n}\n");
}

TEST(Opt, WithoutPassesItReadsAndPrints) {
  const ProgramResult once = ingot({"opt", "-"}, kTwins);
  EXPECT_EQ(once.code, 0) << once.err;
  EXPECT_EQ(ingot({"opt", "-"}, once.out).out, once.out);
}

TEST(Opt, ALoneGraphDeclaresWhatItReads) {
  const ProgramResult result =
      ingot({"opt", "-", "--no-locations"}, "input %x: f32[2]\nstate %s: f32[2]\n%y = add(%x, %s): f32[2]\nupdate %s = %y\n");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("state %s: f32[2] = \"0\"\n"));
}

TEST(Opt, PicksAGraphAndKeepsTheOthers) {
  const std::string module =
      "graph @a {\n  input %x: f32[2]\n  %y = neg(%x): f32[2]\n}\ngraph @b {\n  input %x: f32[2]\n  %y = neg(%x): f32[2]\n}\n";
  const ProgramResult result = ingot({"opt", "-", "--graph", "b", "--passes", "dce", "--no-locations"}, module);
  EXPECT_EQ(result.out,
            "module \"\"\n\ngraph @a at model {\n  input %x: f32[2]\n  %y = neg(%x): f32[2]\n}\n\ngraph @b at model {\n  input "
            "%x: f32[2]\n}\n");
  const ProgramResult unknown = ingot({"opt", "-", "--graph", "c"}, module);
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("there is no graph @c"));
}

TEST(Opt, WritesDumpsThatFeedBackIn) {
  const ScratchFolder folder;
  const ProgramResult result =
      ingot({"opt", "-", "--passes", "cse, dce", "--dump-after", "all", "--dump-dir", folder.file("new/dumps"), "-o",
             folder.file("out.ir"), "--time-passes", "--verify-roundtrip"},
            kTwins);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("cse"));
  const std::string dump = file_content(folder.file("new/dumps/main.02.dce.ir"));
  EXPECT_NE(dump, "");
  EXPECT_EQ(dump, file_content(folder.file("out.ir")));
  EXPECT_EQ(ingot({"opt", folder.file("new/dumps/main.01.cse.ir"), "--passes", "dce"}).out, dump);
}

TEST(Opt, StopsAndDisables) {
  EXPECT_THAT(ingot({"opt", "-", "--passes", "cse, dce", "--disable", "cse"}, kTwins).out, HasSubstr("%z = neg"));
  EXPECT_THAT(ingot({"opt", "-", "--passes", "dce, cse", "--stop-after", "dce"}, kTwins).out, HasSubstr("%z = neg"));
  EXPECT_THAT(ingot({"opt", "-", "--passes", "cse, dce"}, kTwins).out, Not(HasSubstr("%z = neg")));
}

TEST(Opt, MistakesAreLocated) {
  const ProgramResult text = ingot({"opt", "-"}, "input %x: f32[2]\n%y = tahn(%x): f32[2]\n");
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.err, StartsWith("-:2:6: error: unknown op 'tahn'; did you mean 'tanh'?"));
  const ProgramResult pass = ingot({"opt", "-", "--passes", "cse, dcce"}, kTwins);
  EXPECT_EQ(pass.code, 1);
  EXPECT_THAT(pass.err, HasSubstr("<passes>:1:6: error: there is no pass 'dcce' (did you mean 'dce'?)"));
  const ProgramResult missing = ingot({"opt", "no/such/file.ir"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr("no/such/file.ir: error: there is no such file"));
  EXPECT_EQ(ingot({"opt", "/"}).code, 1);
  EXPECT_EQ(ingot({"opt", "-"}, "").code, 1) << "a file without a graph";
  EXPECT_EQ(ingot({"inspect", "-"}, "").err, "-: error: the file holds no graph\n");
  const ProgramResult nothing = ingot({"opt", "-", "--passes", "autodiff"}, kTwins);
  EXPECT_EQ(nothing.code, 1);
  EXPECT_EQ(nothing.err, "error: @main has no output 'loss', so autodiff has nothing to start from\n");
  EXPECT_EQ(ingot({"opt", "-", "-o", "/no/such/folder/x.ir"}, kTwins).code, 2);
}

TEST(Opt, ListsPasses) { EXPECT_THAT(ingot({"opt", "--list"}).out, HasSubstr("\ncse\n    ")); }

}  // namespace
}  // namespace ingot::tests
