// What a large model moves and keeps, counted from its fused graph: golden figures. Nothing is compiled or run.
#include "passes/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/compile.h"
#include "ir/graph/op_def.h"
#include "models/loader.h"

namespace ingot::codegen {
namespace {

ir::Graph update_step(const std::string& layers, const std::string& precision) {
  models::LoadOptions load;
  load.overrides = {{"layers", layers}, {"batch", "4"}, {"time", "4096"}};
  models::LoadedModel model = models::load_model(INGOT_SOURCE_DIR "/models/rwkv7_1.5b.yaml", load);
  CompileOptions options;
  options.precision = precision;
  return build_program(model.module, "train", options);
}

passes::Traffic traffic(const std::string& layers, const std::string& precision) {
  return passes::count_traffic(update_step(layers, precision));
}

// One middle layer is what one layer more adds. In passes: one 16-bit read or write of [tokens, width].
struct Layer {
  double forward, backward, saved;
};
Layer middle_layer(const std::string& precision) {
  const passes::Traffic less = traffic("4", precision), more = traffic("5", precision);
  const double pass = 2.0 * 4 * 4096 * 2048;
  return {(more.forward - less.forward) / pass, (more.backward - less.backward) / pass, (more.saved - less.saved) / pass};
}

TEST(Traffic, AMiddleLayerOfRwkv7) {
  const Layer layer = middle_layer("bf16");
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
  const ir::Graph graph = update_step("4", "bf16");
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

TEST(Traffic, F32MovesTwiceTheBytes) {
  const Layer narrow = middle_layer("bf16"), wide = middle_layer("f32");
  EXPECT_NEAR(wide.forward / narrow.forward, 2, 0.1);
  EXPECT_NEAR(wide.backward / narrow.backward, 2, 0.15);
}

}  // namespace
}  // namespace ingot::codegen
