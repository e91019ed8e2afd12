// `ingot compile` and `ingot inspect` as a user types them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <nlohmann/json.hpp>

#include "ir/plan/plan.h"
#include "tests/common/places.h"
#include "tests/common/program.h"

namespace ingot::tests {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kTiny = source_file("tests/tools/tiny.yaml");

/// With a kernel cache that outlives the test run, so that only the first one calls the compiler.
ProgramResult ingot(std::vector<std::string> words) {
  words.insert(words.begin(), build_file("ingot"));
  return run_program(words, "", {{"INGOT_CACHE_DIR", build_file("test-cache")}});
}

/// The plan of the tiny model, compiled once for all tests of one process.
const std::string& tiny_plan() {
  static const ScratchFolder folder;
  static const std::string path = [] {
    const std::string plan = folder.file("tiny.plan");
    const ProgramResult result = ingot({"compile", kTiny, "-o", plan});
    EXPECT_EQ(result.code, 0) << result.err;
    return plan;
  }();
  return path;
}

TEST(Compile, WritesAPlanAndSaysWhatIsInIt) {
  const ScratchFolder folder;
  const ProgramResult result =
      ingot({"compile", kTiny, "-o", folder.file("t.plan"), "width=16", "batch=1", "--microbatches", "1"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, StartsWith("tiny: a plan for cpu ("));
  EXPECT_THAT(result.out, HasSubstr("parameters  352 in 2 tensors, 1.38 KiB"));
  EXPECT_THAT(result.out, HasSubstr("tokens: i32[1, 5]"));
  const ir::Plan plan = ir::read_plan(folder.file("t.plan"));
  for (const char* program : {"init", "prepare", "train", "eval", "decode"}) EXPECT_TRUE(plan.find_program(program)) << program;
  EXPECT_TRUE(plan.files.contains(kTiny));
}

TEST(Compile, LanesChangeNoBuffersContents) {
  const ScratchFolder folder;
  const std::string plan = folder.file("lanes.plan");
  ASSERT_EQ(ingot({"compile", kTiny, "-o", plan, "--lanes", "3"}).code, 0);
  const std::string calls = ingot({"inspect", plan, "--calls", "--program", "train"}).out;
  EXPECT_THAT(calls, HasSubstr(" calls on 3 lanes\n"));
  EXPECT_THAT(calls, ContainsRegex("\n +[0-9]+  1 .*gemm.*  after [0-9]+")) << "a product beside others";
  const nlohmann::json one = nlohmann::json::parse(ingot({"inspect", tiny_plan(), "--calls", "--json"}).out)["calls"]["train"];
  const nlohmann::json three = nlohmann::json::parse(ingot({"inspect", plan, "--calls", "--json"}).out)["calls"]["train"];
  ASSERT_EQ(one.size(), three.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i]["lane"], 0);
    EXPECT_EQ(one[i]["args"], three[i]["args"]) << i;
  }
  EXPECT_EQ(ingot({"bench", tiny_plan(), "--lanes", "2"}).code, 1);
}

TEST(Compile, KernelsForAnyMachine) {
  const ScratchFolder folder;
  EXPECT_EQ(ingot({"compile", kTiny, "-o", folder.file("t.plan"), "--arch", "x86-64"}).code, 0);
  const ir::Plan plan = ir::read_plan(folder.file("t.plan"));
  EXPECT_EQ(plan.target, "cpu");
  EXPECT_THAT(plan.target_features, Not(HasSubstr("avx")));
  EXPECT_THAT(ingot({"compile", kTiny, "-o", folder.file("t.plan"), "--arch", "x86"}).err, HasSubstr("x86-64"));
}

TEST(Compile, TheSameModelGivesTheSameBytes) {
  const ScratchFolder folder;
  EXPECT_EQ(ingot({"compile", kTiny, "-o", folder.file("t.plan")}).code, 0);
  EXPECT_EQ(file_content(folder.file("t.plan")), file_content(tiny_plan()));
}

// Compiled from nothing, on one core of the machine and on all: what a plan holds depends on neither.
TEST(Compile, CoresAndTheCacheChangeNoByte) {
  const ScratchFolder folder;
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  std::vector<std::string> plans;
  for (const cpu_set_t* cores : {&all, &one}) {
    const std::string number = std::to_string(plans.size());
    ASSERT_EQ(sched_setaffinity(0, sizeof *cores, cores), 0);  // the program run inherits it
    const ProgramResult result = run_program({build_file("ingot"), "compile", kTiny, "-o", folder.file(number + ".plan")},
                                             "", {{"INGOT_CACHE_DIR", folder.file("cache-" + number)}});
    EXPECT_EQ(result.code, 0) << result.err;
    plans.push_back(file_content(folder.file(number + ".plan")));
  }
  sched_setaffinity(0, sizeof all, &all);
  EXPECT_FALSE(plans[0].empty());
  EXPECT_TRUE(plans[0] == plans[1]);
  EXPECT_TRUE(plans[0] == file_content(tiny_plan()));
}

TEST(Compile, MicrobatchesMakeThreePrograms) {
  const ScratchFolder folder;
  const ProgramResult result = ingot({"compile", kTiny, "-o", folder.file("t.plan"), "--microbatches", "4", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  const ir::Plan plan = ir::read_plan(folder.file("t.plan"));
  for (const char* program : {"first", "next", "last"}) EXPECT_TRUE(plan.find_program(program)) << program;
  EXPECT_FALSE(plan.find_program("train"));
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["info"]["options.microbatches"], "4");
}

TEST(Compile, PrecisionAndProgramsAreChosen) {
  const ScratchFolder folder;
  const ProgramResult result =
      ingot({"compile", kTiny, "-o", folder.file("t.plan"), "--precision", "bf16", "--programs", "eval,verify"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("precision=bf16"));
  const ir::Plan plan = ir::read_plan(folder.file("t.plan"));
  EXPECT_TRUE(plan.find_program("verify"));
  EXPECT_FALSE(plan.find_program("train"));
}

TEST(Compile, StopsAfterAPassAndPrintsTheGraphs) {
  const ScratchFolder folder;
  const ProgramResult result = ingot({"compile", kTiny, "--stop-after", "autodiff", "--programs", "train", "--time-passes"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("graph @train at train {"));
  EXPECT_THAT(result.out, HasSubstr("output grad.emb.weight"));
  EXPECT_THAT(result.err, HasSubstr("autodiff"));
  const std::string file = folder.write("stopped.ir", result.out);
  EXPECT_EQ(ingot({"opt", file, "--passes", "optimizer, decompose, check"}).code, 0);
}

TEST(Compile, DumpsFeedBackIn) {
  const ScratchFolder folder;
  const ProgramResult result = ingot({"compile", kTiny, "-o", folder.file("t.plan"), "--dump-after", "all", "--dump-dir",
                                      folder.file("dumps"), "--verify-roundtrip"});
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string dump = folder.file("dumps/train.08.autodiff.ir");
  ASSERT_NE(file_content(dump), "");
  EXPECT_EQ(ingot({"opt", dump}).out, file_content(dump));
}

TEST(Compile, MistakesHaveACodeAndAPlace) {
  const ScratchFolder folder;
  const std::string plan = folder.file("t.plan");
  struct Case {
    std::vector<std::string> words;
    int code;
    std::string says;
  };
  const std::vector<Case> cases = {
      {{kTiny}, 1, "compile needs -o X.plan"},
      {{"no/such.yaml", "-o", plan}, 1, "no/such.yaml"},
      {{kTiny, "-o", plan, "widht=3"}, 1, "width"},
      {{kTiny, "-o", plan, "width"}, 1, "'width' is not of the form key=value"},
      {{kTiny, "-o", plan, "width=1/0"}, 1, "zero"},
      {{kTiny, "-o", plan, "--precision", "f64"}, 1, "--precision is one of f32, bf16, f16, not 'f64'"},
      {{kTiny, "-o", plan, "--precison", "f32"}, 1, "compile has no option '--precison'; did you mean '--precision'?"},
      {{kTiny, "-o", plan, "--target", "tpu"}, 1, "--target is one of cpu, cuda, cuda:sm_80, cuda:sm_90, not 'tpu'"},
      {{kTiny, "-o", plan, "--programs", "trian"}, 1, "did you mean 'train'?"},
      {{kTiny, "-o", plan, "--microbatches", "0"}, 1, "--microbatches"},
      {{kTiny, "-o", plan, "--disable", "autodiff"}, 1, "cannot do without the pass 'autodiff'"},
      {{kTiny, "-o", plan, "--stop-after", "autodif"}, 1, "did you mean 'autodiff'?"},
      {{kTiny, "-o", plan, "--dump-after", "cse", "--dump-dir", "/dev/null/x"}, 2, "cannot make the folder"},
      {{kTiny, "-o", "/no/such/folder/t.plan"}, 2, "/no/such/folder/t.plan"},
  };
  for (const Case& c : cases) {
    std::vector<std::string> words = c.words;
    words.insert(words.begin(), "compile");
    const ProgramResult result = ingot(words);
    EXPECT_EQ(result.code, c.code) << c.says << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.says));
    EXPECT_EQ(result.out, "") << c.says;
    EXPECT_EQ(file_content(plan), "") << c.says;
  }
}

TEST(Compile, AnErrorOfTheModelShowsLineAndCaret) {
  const ScratchFolder folder;
  std::string text = file_content(kTiny);
  text.replace(text.find("tanh(embedding"), 4, "tahn");
  const std::string model = folder.write("wrong.yaml", text);
  const ProgramResult result = ingot({"compile", model, "-o", folder.file("t.plan")});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, StartsWith(model + ":29:8: error: "));
  EXPECT_THAT(result.err, HasSubstr("tanh"));
  EXPECT_THAT(result.err, HasSubstr("\n    - h: tahn(embedding(tokens, emb.weight))\n         ^"));
}

// ---------------------------------------------------------------- inspect

TEST(Inspect, PlanInAllItsParts) {
  EXPECT_THAT(ingot({"inspect", tiny_plan()}).out, StartsWith("tiny: a plan for cpu"));
  const std::string calls = ingot({"inspect", tiny_plan(), "--calls", "--program", "eval"}).out;
  EXPECT_THAT(calls, HasSubstr("@eval: "));
  EXPECT_THAT(calls, HasSubstr("gemm "));
  EXPECT_THAT(calls, HasSubstr("tiny.yaml:29:"));
  EXPECT_THAT(calls, Not(HasSubstr("@train")));
  EXPECT_THAT(ingot({"inspect", tiny_plan(), "--buffers"}).out, HasSubstr(" emb.weight f32[11, 8]"));
  EXPECT_THAT(ingot({"inspect", tiny_plan(), "--kernels"}).out, HasSubstr("kernels/"));
  const std::string memory = ingot({"inspect", tiny_plan(), "--memory"}).out;
  EXPECT_THAT(memory, HasSubstr("arenas\n"));
  EXPECT_THAT(memory, HasSubstr("@train: at most "));
}

TEST(Inspect, APlanIsKnownByHowItBegins) {
  const ScratchFolder folder;
  EXPECT_THAT(ingot({"inspect", folder.write("renamed", file_content(tiny_plan()))}).out, StartsWith("tiny: a plan for cpu"));
}

TEST(Inspect, PlanAsJson) {
  const nlohmann::json json = nlohmann::json::parse(ingot({"inspect", tiny_plan(), "--json"}).out);
  EXPECT_EQ(json["parameters"], 176);
  EXPECT_EQ(json["programs"].size(), 5u);
  EXPECT_GT(json["memory_bytes"], 0);
}

TEST(Inspect, CallsShowTheirWork) {
  const ir::Plan plan = ir::read_plan(tiny_plan());
  const nlohmann::json json = nlohmann::json::parse(ingot({"inspect", tiny_plan(), "--calls", "--json"}).out)["calls"];
  for (const ir::Program& program : plan.programs) {
    ASSERT_EQ(json[program.name].size(), program.calls.size());
    for (size_t i = 0; i < program.calls.size(); ++i) {
      EXPECT_EQ(json[program.name][i]["flops"], program.calls[i].flops);
      EXPECT_EQ(json[program.name][i]["bytes"], program.calls[i].bytes);
    }
  }
  // The head's product: 2 * 10 * 11 * 8.
  EXPECT_THAT(ingot({"inspect", tiny_plan(), "--calls", "--program", "eval"}).out, HasSubstr(" 1.76 kFLOP"));
}

// The bound is counted again here, call by call.
TEST(Inspect, MemoryAtThePeak) {
  const ir::Plan plan = ir::read_plan(tiny_plan());
  const nlohmann::json json = nlohmann::json::parse(ingot({"inspect", tiny_plan(), "--memory", "--json"}).out)["memory"];
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    int64_t most = 0;
    for (int call = 0; call < static_cast<int>(plan.programs[p].calls.size()); ++call) {
      int64_t alive = 0;
      for (const ir::Buffer& b : plan.buffers) {
        const bool lives = b.first < 0 || (b.first <= call && call <= b.last);
        if (b.program == static_cast<int>(p) && b.view_of == ir::kNoBuffer && lives) alive += b.bytes;
      }
      most = std::max(most, alive);
    }
    if (most == 0) continue;
    const nlohmann::json& program = json["programs"][plan.programs[p].name];
    EXPECT_EQ(program["bound"], most);
    EXPECT_GE(program["placed"], program["temps"]);
    int64_t by_line = 0, by_role = 0, alive = 0;
    for (const auto& line : program["by_line"]) by_line += line["bytes"].get<int64_t>();
    for (const auto& [role, bytes] : program["by_role"].items()) by_role += bytes.get<int64_t>();
    for (const auto& buffer : program["alive"]) alive += buffer["bytes"].get<int64_t>();
    EXPECT_EQ(by_line, most);
    EXPECT_EQ(by_role, most);
    EXPECT_EQ(alive, most);
  }
  const std::string text = ingot({"inspect", tiny_plan(), "--memory"}).out;
  EXPECT_THAT(text, HasSubstr("placed in "));
  EXPECT_THAT(text, HasSubstr("tests/tools/tiny.yaml:3"));
}

// h = tanh(..) is what the head's gradient reads; the rest is there anyway or made again.
TEST(Inspect, SavedByTheForward) {
  const nlohmann::json json = nlohmann::json::parse(ingot({"inspect", tiny_plan(), "--saved", "--json"}).out)["saved"];
  EXPECT_EQ(json["pass_bytes"], 2 * 10 * 8);
  ASSERT_GE(json["values"].size(), 1u);
  double passes = 0;
  for (const auto& value : json["values"]) {
    EXPECT_THAT(value["line"].get<std::string>(), HasSubstr("tiny.yaml:"));
    EXPECT_DOUBLE_EQ(value["passes"], value["bytes"].get<double>() / 160);
    passes += value["passes"].get<double>();
  }
  EXPECT_DOUBLE_EQ(json["per_layer"][""], passes);
  EXPECT_THAT(ingot({"inspect", tiny_plan(), "--saved"}).out, HasSubstr("that the forward makes and the backward reads"));
}

TEST(Inspect, PlanKeepsItsGraphs) {
  const ScratchFolder folder;
  const ProgramResult fused = ingot({"inspect", tiny_plan(), "--at", "fused", "--program", "train"});
  EXPECT_EQ(fused.code, 0) << fused.err;
  EXPECT_THAT(fused.out, HasSubstr("graph @train at fused {"));
  EXPECT_EQ(ingot({"opt", folder.write("fused.ir", fused.out)}).out, fused.out);
  EXPECT_THAT(ingot({"inspect", tiny_plan(), "--at", "model"}).out, HasSubstr("graph @loss at model {"));
  EXPECT_EQ(ingot({"inspect", tiny_plan(), "--at", "train"}).code, 1);
}

TEST(Inspect, ModelAtEveryLevel) {
  const ProgramResult summary = ingot({"inspect", kTiny, "width=16"});
  EXPECT_THAT(summary.out, HasSubstr("352 parameters"));
  EXPECT_THAT(ingot({"inspect", kTiny, "--at", "model"}).out, HasSubstr("graph @decode at model {"));
  EXPECT_THAT(ingot({"inspect", kTiny, "--at", "train"}).out, HasSubstr("graph @train at train {"));
  const ProgramResult core = ingot({"inspect", kTiny, "--at", "core", "--program", "eval"});
  EXPECT_THAT(core.out, HasSubstr("graph @eval at core {"));
  EXPECT_THAT(core.out, Not(HasSubstr("graph @train")));
}

TEST(Inspect, SaysWhereANameComesFrom) {
  const std::string in_plan = ingot({"inspect", tiny_plan(), "--why", "h"}).out;
  EXPECT_THAT(in_plan, HasSubstr("tiny.yaml:29:8"));
  EXPECT_THAT(in_plan, HasSubstr("@train call "));
  const std::string in_model = ingot({"inspect", kTiny, "--at", "train", "--why", "%h"}).out;
  EXPECT_THAT(in_model, HasSubstr("made by  %h: f32[2, 5, 8] = tanh("));
  EXPECT_THAT(in_model, HasSubstr("derived  %h.grad"));
  EXPECT_THAT(ingot({"inspect", kTiny, "--why", "emb.weight"}).out,
              HasSubstr("param %emb.weight: f32[11, 8] = \"normal(0, 1)\""));
  const ProgramResult unknown = ingot({"inspect", kTiny, "--why", "logit"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'logits'?"));
}

TEST(Inspect, Differences) {
  const ScratchFolder folder;
  EXPECT_EQ(ingot({"inspect", tiny_plan(), "--diff", tiny_plan()}).out, "no difference\n");
  const std::string a = folder.write("a.ir", "input %x: f32[2]\n%y = neg(%x): f32[2]\n");
  const std::string b = folder.write("b.ir", "input %x: f32[2]\n%y = abs(%x): f32[2]\n");
  EXPECT_THAT(ingot({"inspect", a, "--diff", b}).out, HasSubstr("-  %y = neg(%x): f32[2]\n+  %y = abs(%x): f32[2]\n"));
  EXPECT_EQ(nlohmann::json::parse(ingot({"inspect", a, "--diff", b, "--json"}).out)["same"], false);
  EXPECT_EQ(ingot({"inspect", a, "--diff", tiny_plan()}).code, 1);
}

TEST(Inspect, DrawsGraphs) {
  const ScratchFolder folder;
  EXPECT_EQ(ingot({"inspect", kTiny, "--program", "loss", "--dot", folder.file("loss.dot")}).code, 0);
  const std::string dot = file_content(folder.file("loss.dot"));
  EXPECT_THAT(dot, StartsWith("digraph \"loss\" {"));
  EXPECT_THAT(dot, HasSubstr("[label=\"tanh\\nh\""));
}

TEST(Inspect, RefusesWhatIsNotThere) {
  const ScratchFolder folder;
  EXPECT_EQ(ingot({"inspect", kTiny, "--calls"}).code, 1);
  EXPECT_THAT(ingot({"inspect", tiny_plan(), "width=3"}).err, HasSubstr("'width=3' changes a model"));
  EXPECT_THAT(ingot({"inspect", tiny_plan(), "--calls", "--program", "trian"}).err, HasSubstr("did you mean 'train'?"));
  EXPECT_THAT(ingot({"inspect", kTiny, "--at", "cor"}).err, HasSubstr("did you mean 'core'?"));
  const std::string whole = file_content(tiny_plan());
  const ProgramResult cut = ingot({"inspect", folder.write("cut.plan", whole.substr(0, whole.size() / 2))});
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.err, HasSubstr("cut.plan"));
  EXPECT_EQ(ingot({"inspect", folder.write("foreign.plan", "PK and nothing else")}).code, 1);
  EXPECT_EQ(ingot({"inspect", folder.write("empty.plan", "")}).code, 1);
  EXPECT_EQ(ingot({"inspect", folder.file("missing.plan")}).code, 1);
}

}  // namespace
}  // namespace ingot::tests
