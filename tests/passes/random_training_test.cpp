// Random blocks with a backward through the passes that only whole programs meet: recompute, storage in 16 bits, prepare,
// accumulate, optimizer, carry. Each keeps the answer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "passes/pass.h"
#include "passes/traffic.h"
#include "tests/common/random_block.h"
#include "tests/common/random_graph.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

using ir::Graph;
using ir::Op;

struct Sample {
  ir::Module module;
  Named inputs, variables;
};

Sample sample(uint64_t seed, int ops) {
  Sample made;
  made.module.variables = {BlockMaker::vector(), BlockMaker::matrix()};
  made.module.graphs.push_back(BlockMaker(seed, ir::Level::model).make_loss(ops));
  Random random(seed + 1);
  made.inputs = random_inputs(made.module.graphs.front(), random);
  made.variables = random_variables(made.module.graphs.front(), random);
  return made;
}

Graph through(ir::Module& module, const Graph& graph, const std::string& pipeline) {
  return passes::run_pipeline(graph, module, passes::parse_pipeline(pipeline));
}

/// With what @prepare makes of the variables, when there is one.
Named answer(const Sample& sample, const ir::Module& module, const Graph& graph, ir::InterpretOptions options = {}) {
  Named variables = sample.variables;
  if (const Graph* prepare = module.find_graph("prepare")) {
    for (auto& [name, value] : ir::interpret(*prepare, {}, variables, options).updates) variables[name] = std::move(value);
  }
  return evaluate(graph, sample.inputs, variables, options);
}

constexpr const char* kTrain = "autodiff, decompose, canonicalize, cse, dce";
constexpr const char* kTrainNarrow = "autocast{dtype=bf16}, autodiff, decompose, canonicalize, cse, dce";

// What is made again is what was made: no bit changes, and cse afterwards merges nothing back.
TEST(RandomTraining, RecomputeKeepsTheAnswer) {
  int made_again = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Sample drawn = sample(seed, 10);
    const Graph before = through(drawn.module, drawn.module.graphs.front(), kTrain);
    const Graph after = through(drawn.module, before, "recompute");
    ASSERT_TRUE(identical(answer(drawn, drawn.module, before), answer(drawn, drawn.module, after)))
        << text_of(before) << text_of(after);
    const auto kept = [&](const Graph& graph, const std::string& pipeline) {
      return passes::count_traffic(through(drawn.module, graph, pipeline)).saved;
    };
    ASSERT_LE(kept(after, "dce, fuse"), kept(before, "dce, fuse")) << text_of(before) << text_of(after);
    ASSERT_EQ(kept(after, "cse, dce, fuse"), kept(after, "dce, fuse"));
    for (const Op& op : after.ops()) made_again += op.phase == ir::Phase::recompute;
  }
  EXPECT_GT(made_again, 1000);
}

// Storing in 16 bits changes roundings alone: without them fused is unfused to the last bit, with them it is as far from the
// truth as its graph says, and a value rounded in the forward is rounded in the backward.
TEST(RandomTraining, NarrowOnlyRounds) {
  const ir::InterpretOptions sixteen{true, false};
  int regions = 0, near = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Sample drawn = sample(seed, 10);
    const Graph before = through(drawn.module, drawn.module.graphs.front(), kTrainNarrow);
    const Graph again = through(drawn.module, before, "recompute{narrow=bf16}, dce");
    ir::Module plain = drawn.module;
    const Graph wide = through(plain, again, "fuse"), fused = through(drawn.module, again, "fuse{narrow=bf16}");
    ASSERT_TRUE(identical(answer(drawn, plain, wide), answer(drawn, drawn.module, fused))) << text_of(again) << text_of(fused);
    ASSERT_EQ(text_of(through(drawn.module, fused, "fuse{narrow=bf16}")), text_of(fused));
    ASSERT_LE(passes::count_traffic(fused).forward, passes::count_traffic(wide).forward);
    near += distance(answer(drawn, plain, wide, sixteen), answer(drawn, drawn.module, fused, sixteen)) < 3e-2;
    for (const Op& op : fused.ops()) regions += op.region != nullptr;
  }
  EXPECT_GT(regions, 800);
  EXPECT_GT(near, 360);
}

// Copies of parameters made once per update hold what casts in every program would.
TEST(RandomTraining, PrepareKeepsTheAnswer) {
  int copies = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Sample drawn = sample(seed, 8);
    const Graph before = through(drawn.module, drawn.module.graphs.front(), kTrainNarrow);
    ir::Module prepared = drawn.module;
    const Graph after = through(prepared, before, "prepare");
    const ir::InterpretOptions sixteen{true, false};
    ASSERT_TRUE(identical(answer(drawn, drawn.module, before, sixteen), answer(drawn, prepared, after, sixteen)))
        << text_of(before) << text_of(after);
    copies += prepared.variables.size() > drawn.module.variables.size();
  }
  EXPECT_GT(copies, 150);
}

/// What the updates make of the variables.
void take_over(Named& variables, const Named& answer) {
  for (const auto& [name, value] : answer) {
    if (name.starts_with("update ")) variables[name.substr(7)] = value;
  }
}

/// Zeros for what the passes declared and nobody gave a value.
void give_zeros(Named& variables, const ir::Module& module) {
  for (const ir::Variable& variable : module.variables) variables.try_emplace(variable.name, ir::Tensor(variable.type));
}

// Three microbatches leave the sum of what each gives alone.
TEST(RandomTraining, AccumulateAddsUp) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Sample drawn = sample(seed, 8);
    const Graph plain = through(drawn.module, drawn.module.graphs.front(), "autodiff");
    Named sum, variables = drawn.variables;
    Named last;
    Random random(seed + 7);
    for (const char* role : {"first", "next", "last"}) {
      const Named inputs = random_inputs(plain, random);
      for (const auto& [name, value] : evaluate(plain, inputs, drawn.variables)) {
        const auto [at, fresh] = sum.try_emplace(name, value);
        for (size_t i = 0; !fresh && i < value.data.size(); ++i) at->second.data[i] += value.data[i];
      }
      const Graph part = through(drawn.module, plain, fmt::format("accumulate{{role={}}}", role));
      give_zeros(variables, drawn.module);
      last = evaluate(part, inputs, variables);
      take_over(variables, last);
    }
    for (const auto& [name, value] : sum) {
      ASSERT_TRUE(last.contains(name)) << name;
      ASSERT_LE(distance(value, last.at(name)), 1e-12) << name;
    }
  }
}

// An update is the same however far its program has been taken apart and put together.
TEST(RandomTraining, UpdatesSurviveThePipeline) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Sample drawn = sample(seed, 8);
    drawn.module.optimizer.rule = "adamw(0.01, 0.9, 0.99, 1e-8, 0.1)";
    drawn.module.optimizer.clip = "global_norm(0.5)";
    const Graph update = through(drawn.module, drawn.module.graphs.front(), "autodiff, optimizer");
    ir::Module whole = drawn.module;
    const Graph fused =
        through(whole, update, "decompose, canonicalize, fold, cse, dce, gemm_shape, recompute, cse, dce, prepare, fuse");
    Named variables = drawn.variables;
    give_zeros(variables, drawn.module);
    for (int step = 0; step < 3; ++step) {
      const Named want = evaluate(update, drawn.inputs, variables), have = evaluate(fused, drawn.inputs, variables);
      ASSERT_LE(distance(want, have), 1e-9) << text_of(update) << text_of(fused);
      ASSERT_GT(want.size(), 5u);
      take_over(variables, want);
    }
  }
}

// Token by token with carried states is the whole sequence at once.
TEST(RandomTraining, CarryGoesOnWhereItStopped) {
  constexpr int64_t kPositions = 5;
  int carried = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto block = [&](int64_t time) {
      ir::Module module;
      module.variables = {BlockMaker::vector(), BlockMaker::matrix()};
      Graph graph = BlockMaker(seed, ir::Level::model, time).causal().make(10);
      BlockMaker::add_outputs(graph);
      module.graphs.push_back(std::move(graph));
      return module;
    };
    ir::Module whole = block(kPositions), one = block(1);
    Random random(seed + 3);
    const Named inputs = random_inputs(whole.graphs.front(), random);
    Named variables = random_variables(whole.graphs.front(), random);
    const Named want = evaluate(whole.graphs.front(), inputs, variables);
    const Graph step = through(one, one.graphs.front(), "carry");
    give_zeros(variables, one);
    carried += static_cast<int>(step.updates().size());
    for (int64_t t = 0; t < kPositions; ++t) {
      // Position t of [batch, time, ...].
      const auto at = [&](const ir::Tensor& all) {
        ir::Shape shape = all.type.shape;
        shape[1] = 1;
        ir::Tensor slice(ir::Type{all.type.dtype, shape});
        const int64_t inner = ir::element_count(all.type.shape) / (kBatch * kPositions);
        for (int64_t b = 0; b < kBatch; ++b) {
          for (int64_t i = 0; i < inner; ++i)
            slice.data[static_cast<size_t>(b * inner + i)] = all.data[static_cast<size_t>((b * kPositions + t) * inner + i)];
        }
        return slice;
      };
      Named now;
      for (const auto& [name, value] : inputs) now[name] = at(value);
      const Named have = evaluate(step, now, variables);
      for (const auto& [name, value] : want) ASSERT_LE(distance(at(value), have.at(name)), 1e-12) << name << text_of(step);
      take_over(variables, have);
    }
  }
  EXPECT_GT(carried, 150);
}

}  // namespace
}  // namespace ingot::tests
