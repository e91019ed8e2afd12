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

/// Products of 8 x 8 matrices and elementwise ops between them, each of any two values before it, all named so.
std::string random_products(uint64_t seed, const std::string& name) {
  Random random(seed);
  std::string text = fmt::format("input %{0}0: f32[8, 8]\ninput %{0}1: f32[8, 8]\n", name);
  const auto any = [&](int count) { return fmt::format("%{}{}", name, random.below(count)); };
  constexpr int kOps = 24;
  for (int i = 2; i < kOps; ++i) {
    const std::string a = any(i), b = any(i), c = any(i);
    const std::string op = random.chance(0.3)   ? fmt::format("tanh({})", a)
                           : random.chance(0.3) ? fmt::format("matmul({}, {}, {})", a, b, c)
                                                : fmt::format("matmul({}, {})", a, b);
    text += fmt::format("%{}{} = {}: f32[8, 8]\n", name, i, op);
  }
  for (int i = kOps / 2; i < kOps; ++i) text += fmt::format("output o{} = %{}{}\n", i, name, i);
  return text;
}

/// Counts the ops that are said to have siblings, which must stand beside them and need none of them.
int check_siblings(const ir::Graph& graph) {
  int found = 0;
  for (ir::OpId id = 0; id < graph.ops().size(); ++id) {
    const auto count = [&](ir::OpId op) {
      const ir::Attrs& attrs = graph.op(op).attrs;
      return static_cast<ir::OpId>(attrs.has("siblings") ? attrs.integer("siblings") : 1);
    };
    const ir::OpId first = id, end = id + count(id);
    for (; id + 1 < end; ++id) {
      EXPECT_EQ(count(id + 1), count(first)) << text_of(graph);
      for (const ir::ValueId operand : graph.op(id + 1).operands) {
        EXPECT_TRUE(operand == ir::kNone || graph.value(operand).op < first) << text_of(graph);
      }
    }
    found += end - first > 1 ? static_cast<int>(end - first) : 0;
  }
  return found;
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

// Families of products that need each other or not: the answer stays, those said to be siblings stand side by side and need none
// of each other, and names do not matter.
TEST(RandomGraphs, SiblingsNeedNoneOfEachOther) {
  const std::string pipeline = "siblings{tiles_at_a_time=1e9}";
  int together = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const std::string text = random_products(seed, "v");
    ir::Module before = read_module(text), after = read_module(text);
    run_passes(after, pipeline);
    const ir::Graph& graph = after.graphs.front();
    Random random(seed);
    const Named inputs = random_inputs(before.graphs.front(), random);
    ASSERT_TRUE(identical(evaluate(before.graphs.front(), inputs, {}), evaluate(graph, inputs, {}))) << text_of(graph);
    together += check_siblings(graph);
    std::string renamed = pass_result(random_products(seed, "other"), pipeline);
    for (size_t at = 0; (at = renamed.find("%other", at)) != std::string::npos;) renamed.replace(at, 6, "%v");
    ASSERT_EQ(renamed, pass_result(text, pipeline));
  }
  EXPECT_GT(together, 1000);
}

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
