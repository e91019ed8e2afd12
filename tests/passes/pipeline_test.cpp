// The pass manager: text pipelines, dumps, stops, disabled passes, times, the round trip, the reproducer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "ir/graph/text.h"
#include "passes/pass.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& pipeline) {
  try {
    passes::parse_pipeline(pipeline);
  } catch (const ir::UserError& error) {
    const ir::Diagnostic& d = error.diagnostics().front();
    return d.loc.text() + ": " + d.message;
  }
  return "no error";
}

TEST(PipelineText, NamesOptionsAndComments) {
  const auto steps = passes::parse_pipeline(
      "autocast{dtype=bf16}, carry{ prefix = decode.carry , saved=true }\n  cse   # why\n# more\ndce,check,");
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[0].info->name, "autocast");
  EXPECT_EQ(steps[0].options.at("dtype"), "bf16");
  EXPECT_EQ(steps[1].options.at("prefix"), "decode.carry");
  EXPECT_EQ(steps[1].options.at("saved"), "true");
  EXPECT_EQ(steps[2].info->name, "cse");
  EXPECT_EQ(steps[4].info->name, "check");
  EXPECT_TRUE(passes::parse_pipeline("  # nothing\n").empty());
}

TEST(PipelineText, MistakesAreLocatedAndNearNamesSuggested) {
  EXPECT_EQ(error_of("cse, canonicalise"), "<passes>:1:6: there is no pass 'canonicalise' (did you mean 'canonicalize'?)");
  EXPECT_EQ(error_of("cse\n dce2x9q"), "<passes>:2:2: there is no pass 'dce2x9q'");
  EXPECT_EQ(error_of("autocast{dtyp=bf16}"), "<passes>:1:10: the pass 'autocast' has no option 'dtyp' (did you mean 'dtype'?)");
  EXPECT_EQ(error_of("autocast{dtype=bf16, dtype=f16}"), "<passes>:1:22: the option 'dtype' is given twice");
  EXPECT_EQ(error_of("autocast{dtype}"), "<passes>:1:15: '=' is expected after the option 'dtype'");
  EXPECT_EQ(error_of("autocast{dtype=}"), "<passes>:1:16: a value is expected after '='");
  EXPECT_EQ(error_of("autocast{dtype=bf16"), "<passes>:1:20: ',' or '}' is expected after an option");
  EXPECT_EQ(error_of("cse dce"), "<passes>:1:5: a comma or a line break is expected between passes");
  EXPECT_EQ(error_of("cse, {"), "<passes>:1:6: a pass name is expected here");
}

TEST(PipelineText, EveryPassSaysWhatItDoes) {
  for (const passes::PassInfo& info : passes::pass_table()) {
    EXPECT_EQ(passes::find_pass(info.name), &info);
    EXPECT_TRUE(info.summary.ends_with(".")) << info.name;
  }
}

const char* const kModule = R"(
module m
param %w: f32[3] = "0"
graph @loss at model {
  input %x: f32[2, 3]
  param %w: f32[3]
  %a = mul(%x, %w): f32[2, 3]
  %b = mul(%x, %w): f32[2, 3]
  %c = add(%a, %b): f32[2, 3]
  %loss = sum(%c) {axes: [0, 1]}: f32[]
  output loss = %loss
}
)";

class Manager : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("passes_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    options_.dump_dir = folder_.string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ir::Graph run(const std::string& pipeline) {
    module_ = read_module(kModule);
    return passes::run_pipeline(module_.graph("loss"), module_, passes::parse_pipeline(pipeline), options_, "train");
  }
  std::string read(const std::string& file) const {
    std::ifstream in(folder_ / file);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::filesystem::path folder_;
  passes::PipelineOptions options_;
  ir::Module module_;
};

TEST_F(Manager, DumpsFeedBackIn) {
  options_.dump_after = {"all"};
  const ir::Graph straight = run("cse, autodiff, decompose, dce");
  EXPECT_EQ(files(),
            (std::vector<std::string>{"train.01.cse.ir", "train.02.autodiff.ir", "train.03.decompose.ir", "train.04.dce.ir"}));
  ir::Module dumped = ir::parse_module(read("train.02.autodiff.ir"), "dump");
  const ir::Graph resumed = passes::run_pipeline(dumped.graphs.front(), dumped, passes::parse_pipeline("decompose, dce"));
  EXPECT_TRUE(ir::same(resumed, straight));
}

TEST_F(Manager, DumpsWhatIsAskedFor) {
  options_.dump_after = {"cse", "dce"};
  run("cse, autodiff, dce");
  EXPECT_EQ(files(), (std::vector<std::string>{"train.01.cse.ir", "train.03.dce.ir"}));
}

TEST_F(Manager, ADumpThatCannotBeWrittenIsAnError) {
  options_.dump_after = {"all"};
  options_.dump_dir = (folder_ / "none").string();
  EXPECT_THROW(run("cse"), ir::UserError);
}

TEST_F(Manager, StopsAfterAPass) {
  options_.stop_after = "autodiff";
  EXPECT_EQ(run("cse, autodiff, decompose").level(), ir::Level::train);
  std::vector<std::string> remarks;
  options_.remarks = &remarks;
  EXPECT_EQ(run("cse, decompose").level(), ir::Level::core);  // a program without that pass runs to its end
  EXPECT_EQ(remarks, (std::vector<std::string>{"train: has no pass 'autodiff'"}));
}

TEST_F(Manager, LeavesOutWhatIsDisabled) {
  const size_t merged = run("cse").ops().size();
  options_.disable = {"cse"};
  EXPECT_EQ(run("cse").ops().size(), merged + 1);
}

TEST_F(Manager, RefusesNamesItDoesNotKnowAndPassesItNeeds) {
  options_.disable = {"cs"};
  EXPECT_THROW(run("cse"), ir::UserError);
  options_.disable = {"autodiff"};
  EXPECT_THROW(run("cse"), ir::UserError);
  options_.disable = {};
  options_.stop_after = "decomposition";
  EXPECT_THROW(run("cse"), ir::UserError);
  options_.stop_after = "";
  options_.dump_after = {"everything"};
  EXPECT_THROW(run("cse"), ir::UserError);
}

TEST_F(Manager, CountsOpsAndTime) {
  std::vector<passes::PassTime> times;
  options_.times = &times;
  run("cse, dce");
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].pass, "cse");
  EXPECT_EQ(times[0].ops_before, 6u);
  EXPECT_EQ(times[0].ops_after, 5u);
  EXPECT_GE(times[0].milliseconds, 0);
}

// An internal failure leaves a file that replays it.
TEST_F(Manager, WritesAReproducer) {
  try {
    run("cse, check, dce");
    FAIL() << "check must refuse a graph above level core";
  } catch (const ir::InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("pass 'check' on @train: check: stands before 'decompose'"));
    EXPECT_THAT(error.what(), HasSubstr("a reproducer is in " + (folder_ / "ingot-reproducer-check.ir").string()));
  }
  const std::string text = read("ingot-reproducer-check.ir");
  EXPECT_THAT(text, HasSubstr("// check: stands before 'decompose'\n// ingot opt "));
  EXPECT_THAT(text, HasSubstr("--passes \"check\"\n"));
  ir::Module module = ir::parse_module(text, "reproducer");
  EXPECT_THROW(passes::run_pipeline(module.graphs.front(), module, passes::parse_pipeline("check"), options_), ir::InternalError);
}

TEST_F(Manager, KeepsTheFirstErrorWhenNoReproducerCanBeWritten) {
  options_.dump_dir = (folder_ / "none").string();
  try {
    run("check");
    FAIL();
  } catch (const ir::InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("stands before 'decompose'"));
    EXPECT_THAT(error.what(), HasSubstr("no reproducer could be written"));
  }
}

// What check refuses.
TEST(Check, RefusesAProgramThatTrainsHalfTheModel) {
  const char* const half = R"(
module m
param %w: f32[3] = "0"
param %u: f32[3] = "0"
graph @train at core {
  param %w: f32[3]
  %n = add(%w, %w): f32[3]
  update %w = %n
})";
  EXPECT_THROW(pass_result(half, "check"), ir::InternalError);
}

TEST(Check, RefusesAProgramThatLeavesACopyStale) {
  const char* const stale = R"(
module m
param %w: f32[3] = "0"
compute %w.bf16: bf16[3] = "0" {trainable: false, saved: false}
graph @train at core {
  param %w: f32[3]
  %n = add(%w, %w): f32[3]
  update %w = %n
})";
  EXPECT_THROW(pass_result(stale, "check"), ir::InternalError);
}

TEST(Check, RefusesAProgramThatWritesWhatTheHostSets) {
  const char* const host = R"(
module m
hyper %lr: f32[] = "0"
graph @train at core {
  hyper %lr: f32[]
  %n = add(%lr, %lr): f32[]
  update %lr = %n
})";
  EXPECT_THROW(pass_result(host, "check"), ir::InternalError);
}

// The target's wish reaches ops with hand-tuned kernels, before autodiff: gradient and forward op agree. Without a target nothing changes.
TEST(Configure, KernelsGetWhatTheTargetWants) {
  std::string text = "graph @main at model {\n";
  for (const char* name : {"r", "w", "k", "v", "a", "b"}) text += std::string("  input %") + name + ": f32[1, 20, 1, 16]\n";
  text += "  %y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b) {chunk: 16}: f32[1, 20, 1, 16], f32[1, 1, 16, 16], f32[1, 1, 2, 16, 16]\n"
          "  %z = neg(%y): f32[1, 20, 1, 16]\n  output z = %z\n}\n";
  const ir::Graph graph = ir::parse_graph(text);
  ir::Module module;
  passes::PipelineOptions options;
  EXPECT_TRUE(ir::same(passes::run_pipeline(graph, module, passes::parse_pipeline("configure"), options), graph));
  int asked = 0;
  options.kernel_attrs = [&](const ir::Graph&, const ir::Op& op) {
    ++asked;
    ir::Attrs attrs = op.attrs;
    attrs.set("chunk", int64_t{4});
    return attrs;
  };
  const ir::Graph made = passes::run_pipeline(graph, module, passes::parse_pipeline("configure"), options);
  EXPECT_EQ(asked, 1);  // of the one kernel, and of no other op
  EXPECT_EQ(made.type(made.find("c")).text(), "f32[1, 1, 5, 16, 16]");
}

}  // namespace
}  // namespace ingot::tests
