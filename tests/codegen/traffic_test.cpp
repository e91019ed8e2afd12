// What a large model moves and keeps, counted from its fused graph: golden figures. Nothing is compiled or run.
#include "passes/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "codegen/compile.h"
#include "ir/graph/op_def.h"
#include "models/loader.h"
#include "tests/common/places.h"

namespace ingot::codegen {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

ir::Graph update_step(const std::string& layers, const CompileOptions& options, const Overrides& more = {}) {
  models::LoadOptions load;
  load.overrides = {{"layers", layers}, {"batch", "4"}, {"time", "4096"}};
  load.overrides.insert(load.overrides.end(), more.begin(), more.end());
  models::LoadedModel model = models::load_model(tests::source_file("models/rwkv7_1.5b.yaml"), load);
  return build_program(model.module, "train", options);
}

// As for an H200.
CompileOptions in(const std::string& precision) {
  static const std::unique_ptr<Target> target = make_cuda_target();
  CompileOptions options;
  options.precision = precision;
  options.gemm_costs = target->gemm_costs();
  return options;
}

passes::Traffic traffic(const std::string& layers, const CompileOptions& options, const Overrides& more) {
  return passes::count_traffic(update_step(layers, options, more));
}

// One middle layer is what one layer more adds. In passes: one 16-bit read or write of [tokens, width].
struct Layer {
  double forward, backward, saved;
};
Layer middle_layer(const CompileOptions& options, const Overrides& overrides = {}) {
  const passes::Traffic less = traffic("4", options, overrides), more = traffic("5", options, overrides);
  const double pass = 2.0 * 4 * 4096 * 2048;
  return {(more.forward - less.forward) / pass, (more.backward - less.backward) / pass, (more.saved - less.saved) / pass};
}

TEST(Traffic, AMiddleLayerOfRwkv7) {
  const Layer layer = middle_layer(in("bf16"));
  EXPECT_LE(layer.forward, 33.5);
  EXPECT_LE(layer.backward, 73.8);
  // Nothing of the count may be lost: a layer reads and writes at least its gemms' operands and results.
  EXPECT_GE(layer.forward, 25);
  EXPECT_GE(layer.backward, 50);
  // 4 of them are the states that wkv7 keeps every 32 positions.
  EXPECT_LE(layer.saved, 18.4);
  EXPECT_GE(layer.saved, 15);
}

// The mix of six with its norm reads the residual and writes what six gemms read; its two statistics weigh nothing.
TEST(Traffic, ANormAndSixMixesAreOneReadAndSixWrites) {
  const ir::Graph graph = update_step("4", in("bf16"));
  const double pass = 2.0 * 4 * 4096 * 2048;
  int found = 0;
  for (ir::OpId id = 0; id < graph.ops().size(); ++id) {
    const ir::Op& op = graph.op(id);
    if (!op.region || op.phase != ir::Phase::forward) continue;
    const auto full = [&](ir::ValueId result) { return graph.type(result).shape == ir::Shape{4, 4096, 2048}; };
    if (std::count_if(op.results.begin(), op.results.end(), full) != 6) continue;
    EXPECT_NEAR(passes::op_traffic(graph, id) / pass, 7, 0.01);
    ++found;
  }
  EXPECT_EQ(found, 3);  // of four layers; the first norms the embedded tokens in the same kernel
}

// With ranks of 32 the mixes of three products are not stored: x is read for all of them, forward and backward.
TEST(Traffic, NarrowProductsOfMixedRowsReadTheRows) {
  const Overrides narrow = {{"rank_w", "32"}, {"rank_a", "32"}, {"rank_g", "32"}};
  CompileOptions options = in("bf16");
  const Layer taken = middle_layer(options, narrow);
  options.pipeline.disable = {"lerp"};
  const Layer left = middle_layer(options, narrow);
  EXPECT_LE(taken.forward, left.forward - 1);
  EXPECT_LE(taken.backward, left.backward - 3);
  // No rows more are kept, but the mixed weights of four products are: 2 * (3 * 32 + 64) columns of 2048.
  EXPECT_LE(taken.saved, left.saved + 0.02);
}

TEST(Traffic, F32MovesTwiceTheBytes) {
  const Layer narrow = middle_layer(in("bf16")), wide = middle_layer(in("f32"));
  EXPECT_NEAR(wide.forward / narrow.forward, 2, 0.1);
  EXPECT_NEAR(wide.backward / narrow.backward, 2, 0.15);
}

}  // namespace
}  // namespace ingot::codegen
