// Random graphs through every pass that works on any graph: the interpreter's answer stays, twice is once, orders agree.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <ostream>

#include "ir/graph/verify.h"
#include "passes/pass.h"
#include "tests/common/random_graph.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

struct Sample {
  ir::Module module;
  Named inputs, variables;
};

/// nullopt when the numbers drawn take an op out of its domain (ids past a table).
std::optional<Sample> try_draw(uint64_t seed) {
  RandomGraphOptions options;
  options.seed = seed;
  options.ops = 12;
  options.most_elements = 128;
  Sample sample;
  sample.module = random_module(options);
  Random random(seed + 1);
  const ir::Graph& graph = sample.module.graphs.front();
  sample.inputs = random_inputs(graph, random, -2, 2, sample.module.ranges);
  sample.variables = random_variables(graph, random, -2, 2);
  try {
    evaluate(graph, sample.inputs, sample.variables);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return sample;
}

Sample draw(uint64_t seed) {
  for (uint64_t again = 0; again < 50; ++again) {
    if (std::optional<Sample> sample = try_draw(seed + again * 1000003)) return std::move(*sample);
  }
  throw std::runtime_error("no random graph can be evaluated");
}

ir::Graph through(const Sample& sample, const ir::Graph& graph, const std::string& pipeline) {
  ir::Module module = sample.module;
  return passes::run_pipeline(graph, module, passes::parse_pipeline(pipeline));
}

Named answer(const Sample& sample, const ir::Graph& graph, ir::InterpretOptions options = {}) {
  return evaluate(graph, sample.inputs, sample.variables, options);
}

struct Rewrite {
  const char* pass;
  enum { bits, bits_in_double, close } keeps;
  friend void PrintTo(const Rewrite& rewrite, std::ostream* out) { *out << rewrite.pass; }
};

class RandomGraphs : public testing::TestWithParam<Rewrite> {};

TEST_P(RandomGraphs, KeepTheirAnswer) {
  const auto& [pass, keeps] = GetParam();
  int changed = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Sample sample = draw(seed);
    const ir::Graph& before = sample.module.graphs.front();
    const ir::Graph after = through(sample, before, pass);
    const auto show = [&] { return text_of(before) + "became\n" + text_of(after); };
    changed += text_of(before) != text_of(after);
    if (keeps == Rewrite::close) {
      ASSERT_LE(distance(answer(sample, before), answer(sample, after)), 1e-9) << show();
    } else {
      const ir::InterpretOptions sixteen{true, false};
      ASSERT_TRUE(identical(answer(sample, before, sixteen), answer(sample, after, sixteen))) << show();
    }
    if (keeps == Rewrite::bits) {
      const ir::InterpretOptions all{true, true};
      ASSERT_TRUE(identical(answer(sample, before, all), answer(sample, after, all))) << show();
      ASSERT_TRUE(identical(answer(sample, before), answer(sample, after))) << show();
    }
    ASSERT_EQ(text_of(through(sample, after, pass)), text_of(after));
  }
  // A generator that gives a pass nothing to do would test nothing.
  EXPECT_GT(changed, 50);
}

// fold keeps doubles where the machine would round to f32 in between; a decomposition adds up in its own order.
INSTANTIATE_TEST_SUITE_P(Passes, RandomGraphs,
                         testing::Values(Rewrite{"canonicalize", Rewrite::bits}, Rewrite{"cse", Rewrite::bits},
                                         Rewrite{"dce", Rewrite::bits}, Rewrite{"fold", Rewrite::bits_in_double},
                                         Rewrite{"schedule", Rewrite::bits}, Rewrite{"decompose", Rewrite::close}),
                         [](const auto& test) { return test.param.pass; });

// All orders of two passes, and all of them together, backwards too.
TEST(RandomGraphs, AnyOrderKeepsTheAnswer) {
  const std::vector<std::string> names{"canonicalize", "cse", "dce", "fold", "decompose"};
  std::vector<std::string> pipelines{"decompose, fold, dce, cse, canonicalize"};
  for (const std::string& first : names) {
    for (const std::string& second : names) pipelines.push_back(first + ", " + second);
  }
  for (uint64_t seed = 0; seed < 2500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed + 100000));
    const Sample sample = draw(seed + 100000);
    const ir::Graph& before = sample.module.graphs.front();
    const std::string& pipeline = pipelines[seed % pipelines.size()];
    const ir::Graph after = through(sample, before, pipeline);
    ASSERT_LE(distance(answer(sample, before), answer(sample, after)), 1e-9) << pipeline << "\n"
                                                                             << text_of(before) << text_of(after);
  }
}

// Fusing changes no number: a region computes what its ops compute.
TEST(RandomGraphs, FusingKeepsTheAnswer) {
  int fused = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Sample sample = draw(seed + 200000);
    const ir::Graph before = through(sample, sample.module.graphs.front(), "decompose, dce");
    const ir::Graph after = through(sample, before, "fuse");
    ASSERT_TRUE(identical(answer(sample, before), answer(sample, after))) << text_of(before) + "became\n" + text_of(after);
    ASSERT_EQ(text_of(through(sample, after, "fuse")), text_of(after));
    for (const ir::Op& op : after.ops()) fused += op.region != nullptr;
  }
  EXPECT_GT(fused, 2000);
}

// autocast changes values by roundings only: with every float rounded to f32 or less, answers agree to what bf16 holds. Graphs
// whose answer a small change moves far (comparisons, floors, divisions by almost nothing) say nothing and are passed over.
TEST(RandomGraphs, AutocastOnlyRounds) {
  int judged = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Sample sample = draw(seed);
    const ir::Graph& before = sample.module.graphs.front();
    const ir::Graph after = through(sample, before, "autocast{dtype=f16}");
    const Named want = answer(sample, before), have = answer(sample, after);
    ASSERT_EQ(want.size(), have.size());
    ASSERT_EQ(text_of(through(sample, after, "autocast{dtype=f16}")), text_of(after));
    for (const auto& [name, tensor] : want) ASSERT_EQ(tensor.type.shape, have.at(name).type.shape);
    judged += distance(want, have) < 1e-2;
  }
  EXPECT_GT(judged, 320);
}

}  // namespace
}  // namespace ingot::tests
