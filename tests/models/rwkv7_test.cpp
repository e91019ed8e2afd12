// The official model loads: names, shapes, initial values, graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/graph/verify.h"
#include "models/loader.h"

namespace ingot::models {
namespace {

const std::vector<std::pair<std::string, std::string>> kGolden = {
    {"layers", "2"}, {"width", "64"},  {"head", "32"},   {"vocab", "101"}, {"batch", "2"},   {"time", "37"},
    {"ffn", "256"},  {"rank_w", "32"}, {"rank_a", "32"}, {"rank_v", "32"}, {"rank_g", "64"}, {"l2wrap", "0"}};

std::string model_path(const std::string& name) { return std::string(INGOT_SOURCE_DIR) + "/models/" + name; }

TEST(Rwkv7, Loads) {
  LoadOptions options;
  options.overrides = kGolden;
  const LoadedModel model = load_model(model_path("rwkv7.yaml"), options);
  ir::verify(model.module);
  EXPECT_EQ(model.module.variables.size(), 74u);  // 66 parameters, 8 hypers
  EXPECT_EQ(model.no_decode, "");
}
}  // namespace
}  // namespace ingot::models
