// Random graphs as the CPU runs them: kernels of what was fused and of what was not, each result against the interpreter in
// double. That fused means the same as not fused is told by the interpreter (tests/passes/fusion_test.cpp); here the emitters are
// judged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/graph/text.h"
#include "passes/pass.h"
#include "tests/codegen/batched_target.h"
#include "tests/codegen/kernel_bench.h"
#include "tests/common/random_block.h"

namespace ingot::testing {
namespace {

using ir::Graph;

constexpr const char* kTrain = "autodiff, decompose, canonicalize, cse, dce";
constexpr const char* kTrainNarrow =
    "autocast{dtype=bf16}, autodiff, decompose, canonicalize, cse, dce, recompute{narrow=bf16}, dce";

struct Drawn {
  Graph plain, fused;
  bool narrow = false;
};

/// Half of them forward alone; of those with a backward every other one is stored in 16 bits.
Drawn draw(uint64_t seed) {
  const auto through = [](const Graph& graph, ir::Module& module, const std::string& pipeline) {
    return passes::run_pipeline(graph, module, passes::parse_pipeline(pipeline));
  };
  Drawn drawn;
  ir::Module module;
  module.variables = {tests::BlockMaker::vector(), tests::BlockMaker::matrix()};
  if (seed % 2 == 0) {
    drawn.plain = tests::BlockMaker(seed, ir::Level::core).make(10);
    tests::BlockMaker::add_outputs(drawn.plain);
    drawn.fused = through(drawn.plain, module, "fuse");
    return drawn;
  }
  drawn.narrow = seed % 4 == 3;
  drawn.plain = through(tests::BlockMaker(seed, ir::Level::model).make_loss(8), module, drawn.narrow ? kTrainNarrow : kTrain);
  drawn.fused = through(drawn.plain, module, drawn.narrow ? "fuse{narrow=bf16}" : "fuse");
  return drawn;
}

/// One graph alone: its variables are inputs.
std::string standalone(const Graph& graph) {
  std::string text = ir::print(graph, {false});
  for (size_t at = 0; (at = text.find("  param %", at)) != std::string::npos;) text.replace(at, 8, "  input ");
  return text;
}

void run_graphs(uint64_t first, uint64_t end) {
  constexpr uint64_t kBatch = 250;  // one image at a time
  int regions = 0, kernels = 0;
  for (uint64_t begin = first; begin < end; begin += kBatch) {
    KernelBench wide(cpu_machine(batched_cpu_target())), narrow(cpu_machine(batched_cpu_target()));
    // A value on the edge of two roundings may fall to either side, and what is made of it in the same kernel follows.
    narrow.set_tolerance(8e-3);
    for (KernelBench* bench : {&wide, &narrow}) bench->let_sums_cancel();
    for (uint64_t seed = begin; seed < std::min(end, begin + kBatch); ++seed) {
      const Drawn drawn = draw(seed);
      tests::Random random(seed);
      auto inputs = tests::random_inputs(drawn.plain, random);
      inputs.merge(tests::random_variables(drawn.plain, random));
      KernelBench& bench = drawn.narrow ? narrow : wide;
      for (const Graph* graph : {&drawn.plain, &drawn.fused}) bench.add(standalone(*graph), inputs);
      for (const ir::Op& op : drawn.fused.ops()) regions += op.region != nullptr;
    }
    for (KernelBench* bench : {&wide, &narrow}) {
      bench->run();
      kernels += bench->kernels();
    }
  }
  EXPECT_GT(regions, static_cast<int>(end - first));
  ::testing::Test::RecordProperty("regions", regions);
  ::testing::Test::RecordProperty("kernels", kernels);
}

TEST(RandomGraphs, RunOnTheCpu) { run_graphs(0, 250); }

TEST(Slow, TenThousandRandomGraphsRunOnTheCpu) { run_graphs(250, 10000); }

}  // namespace
}  // namespace ingot::testing
