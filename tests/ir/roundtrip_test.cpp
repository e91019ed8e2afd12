// 10,000 random modules: print, parse, compare field by field; print again, compare byte by byte.
#include <gtest/gtest.h>

#include <set>

#include "ir/graph/op_def.h"
#include "ir/graph/text.h"
#include "tests/common/random_graph.h"

namespace ingot::ir {
namespace {

using tests::random_module;
using tests::RandomGraphOptions;

constexpr Level kLevels[] = {Level::model, Level::train, Level::core, Level::fused};

RandomGraphOptions options_for(uint64_t seed) {
  RandomGraphOptions options;
  options.seed = seed;
  options.level = kLevels[seed % 4];
  options.ops = 6 + static_cast<int>(seed % 5);
  options.odd = seed % 8 != 7;
  options.regions = true;
  return options;
}

TEST(RoundTrip, TenThousandRandomModules) {
  size_t ops = 0, regions = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    const Module module = random_module(options_for(seed));
    const std::string text = print(module);
    Module again;
    ASSERT_NO_THROW(again = parse_module(text, "random.ir")) << "seed " << seed << "\n" << text;
    ASSERT_TRUE(same(module, again)) << "seed " << seed << "\n" << text << "\n" << print(again);
    ASSERT_EQ(print(again), text) << "seed " << seed;
    for (const Graph& graph : module.graphs) {
      ops += graph.ops().size();
      for (const Op& op : graph.ops()) regions += op.region ? 1 : 0;
      ASSERT_EQ(structural_hash(graph), structural_hash(*again.find_graph(graph.name()))) << "seed " << seed;
    }
  }
  EXPECT_GT(ops, 50000u);
  RecordProperty("ops", static_cast<int>(ops));
  RecordProperty("regions", static_cast<int>(regions));
}

TEST(RoundTrip, WithoutPlacesTheTextIsAFixpoint) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::string text = print(random_module(options_for(seed)), {.locations = false});
    ASSERT_EQ(print(parse_module(text), {.locations = false}), text) << "seed " << seed;
  }
}

/// The generator is only as good as what it reaches: every op that has an example, at a level where it is legal.
TEST(RoundTrip, TheGeneratorReachesEveryOp) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    for (const Graph& graph : random_module(options_for(seed)).graphs) {
      for (const Op& op : graph.ops()) seen.insert(op.def->name);
    }
  }
  for (const OpDef* def : op_table().all()) {
    EXPECT_TRUE(def->examples.empty() || seen.contains(def->name)) << def->name;
  }
}

TEST(RoundTrip, TheGeneratorIsDeterministic) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(print(random_module(options_for(seed))), print(random_module(options_for(seed))));
  }
}

/// A text with any byte changed is accepted or refused with a located message: never a crash, never an internal error.
TEST(RoundTrip, DamagedTextsAreRefusedPolitely) {
  tests::Random random(7);
  int refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = print(random_module(options_for(seed)));
    for (int i = 0; i < 20; ++i) {
      std::string damaged = text;
      const auto at = static_cast<size_t>(random.below(static_cast<int64_t>(text.size())));
      if (random.chance(0.3)) {
        damaged.erase(at, 1 + static_cast<size_t>(random.below(10)));
      } else if (random.chance(0.3)) {
        damaged.insert(at, text.substr(static_cast<size_t>(random.below(static_cast<int64_t>(text.size()))), 5));
      } else {
        damaged[at] = static_cast<char>(random.below(256));
      }
      try {
        parse_module(damaged, "damaged.ir");
      } catch (const UserError& error) {
        ++refused;
        ASSERT_EQ(*error.diagnostics().at(0).loc.file, "damaged.ir") << error.what();
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace ingot::ir
