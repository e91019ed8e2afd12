// The official model loads: names, shapes, initial values, groups, graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "ir/graph/op_def.h"
#include "ir/graph/verify.h"
#include "models/loader.h"
#include "tests/common/places.h"

namespace ingot::models {
namespace {

using ::testing::ElementsAre;
using Overrides = std::vector<std::pair<std::string, std::string>>;

const Overrides kSmall = {{"layers", "2"},  {"width", "64"},  {"head", "32"},   {"vocab", "101"},
                          {"batch", "2"},   {"time", "37"},   {"ffn", "256"},   {"rank_w", "32"},
                          {"rank_a", "32"}, {"rank_v", "32"}, {"rank_g", "64"}, {"l2wrap", "0"}};

LoadedModel load(const std::string& name, const Overrides& overrides = {}) {
  LoadOptions options;
  options.overrides = overrides;
  return load_model(tests::source_file("models/" + name), options);
}

std::string init(const LoadedModel& model, const std::string& name) { return model.module.find_variable(name)->init; }

TEST(Rwkv7, NamesAndShapesAreThePublicCheckpoints) {
  const LoadedModel model = load("rwkv7.yaml", kSmall);
  ir::verify(model.module);
  std::set<std::string> params, wanted;
  for (const ir::Variable& v : model.module.variables) {
    if (v.role == ir::VariableRole::param) params.insert(v.name + " " + ir::shape_text(v.type.shape));
  }
  std::ifstream file(tests::source_file("tests/models/rwkv7_params.txt"));
  for (std::string line; std::getline(file, line);) wanted.insert(line);
  EXPECT_EQ(params, wanted);
}

TEST(Rwkv7, InitialValuesAreTheOfficialOnes) {
  const LoadedModel model = load("rwkv7.yaml", kSmall);
  EXPECT_EQ(init(model, "emb.weight"), "uniform(-0.0001, 0.0001)");
  EXPECT_EQ(init(model, "head.weight"), "orthogonal(0.6281172263200556)");  // 0.5 * sqrt(101 / 64)
  EXPECT_EQ(init(model, "blocks.0.att.x_r"), "1 - pow(i / 64, 0.2)");
  EXPECT_EQ(init(model, "blocks.1.att.x_w"), "1 - pow(i / 64, 0.45)");
  EXPECT_EQ(init(model, "blocks.1.att.w0"),
            "-5.5 + 6 * pow(i / 63, 2) + 2.5 * ((i % 32 - 15.5) / 15.5 * abs((i % 32 - 15.5) / 15.5))");
  EXPECT_EQ(init(model, "blocks.1.att.v0"), "0.73 - 0.4 * (i / 63 - 0.5)");
  EXPECT_EQ(init(model, "blocks.0.att.w1"), "0");
  EXPECT_EQ(init(model, "blocks.0.att.k_a"), "1.02");
  EXPECT_EQ(init(model, "blocks.0.att.ln_x.weight"), "0.6155722066724582");  // pow(1 / 2, 0.7)
  EXPECT_EQ(init(model, "blocks.1.att.ln_x.weight"), "1");
  EXPECT_EQ(init(model, "lr"), "0.0006");
  EXPECT_EQ(init(model, "adam_eps"), "1e-18");
}

TEST(Rwkv7, OptimizerGroups) {
  const LoadedModel model = load("rwkv7.yaml", kSmall);
  const auto factors = [&](const std::string& name) {
    const ir::Variable* v = model.module.find_variable(name);
    return std::pair(v->lr_factor, v->decay_factor);
  };
  EXPECT_EQ(factors("blocks.0.att.w0"), std::pair(2.0, 0.0));
  EXPECT_EQ(factors("blocks.0.att.key.weight"), std::pair(1.0, 1.0));
  EXPECT_EQ(factors("emb.weight"), std::pair(1.0, 1.0));
  EXPECT_EQ(factors("blocks.0.ln1.weight"), std::pair(1.0, 0.0));  // one axis longer than 1
  EXPECT_EQ(factors("blocks.1.att.w1"), std::pair(1.0, 0.0));
  EXPECT_EQ(model.module.optimizer.rule, "adamw(lr, beta1, beta2, adam_eps, decay)");
  EXPECT_EQ(model.module.optimizer.schedule, "cosine(lr, lr_final, warmup)");
  EXPECT_EQ(model.module.optimizer.clip, "global_norm(clip)");
  EXPECT_EQ(model.module.optimizer.clip_loc.line, model.module.optimizer.rule_loc.line + 2);
}

TEST(Rwkv7, GraphsHaveTheirPorts) {
  const LoadedModel model = load("rwkv7.yaml", kSmall);
  const ir::Graph& loss = model.module.graph("loss");
  const ir::Graph& decode = model.module.graph("decode");
  const auto inputs = [](const ir::Graph& graph) {
    std::vector<std::string> out;
    for (const ir::Op& op : graph.ops()) {
      if (op.name() == "input") out.push_back(graph.value(op.results[0]).name + " " + graph.type(op.results[0]).text());
    }
    return out;
  };
  const auto outputs = [](const ir::Graph& graph) {
    std::vector<std::string> out;
    for (const ir::Output& o : graph.outputs()) out.push_back(o.name + " " + graph.type(o.value).text());
    return out;
  };
  EXPECT_THAT(inputs(loss), ElementsAre("tokens i32[2, 37]", "targets i32[2, 37]"));
  EXPECT_THAT(outputs(loss), ElementsAre("loss f32[]", "count f32[]", "logits f32[2, 37, 101]"));
  EXPECT_THAT(inputs(decode), ElementsAre("tokens i32[1, 1]"));
  EXPECT_THAT(outputs(decode), ElementsAre("logits f32[1, 1, 101]"));
  ASSERT_EQ(model.module.ranges.size(), 2u);
  EXPECT_EQ(model.module.ranges[1].hi, 100);
  EXPECT_THAT(model.module.ranges[1].also, ElementsAre(-100));
}

TEST(Rwkv7, ValuesKeepTheirNamesAndPlaces) {
  const LoadedModel model = load("rwkv7.yaml", kSmall);
  const ir::Graph& graph = model.module.graph("loss");
  for (const std::string name :
       {"e", "x0", "logits", "blocks.0.att.xr", "blocks.1.att.vm", "blocks.1.ffn.k", "blocks.1.y", "blocks.0.att.x_r"}) {
    EXPECT_NE(graph.find(name), ir::kNone) << name;
  }
  EXPECT_EQ(graph.find("blocks.0.att.v0"), ir::kNone);  // when nth > 0
  // Every op points into the file at the word or sign that makes it.
  const std::string& text = model.sources.begin()->second;
  std::vector<std::string> lines(1);
  for (char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  const auto at = [&](const std::string& name) {
    const ir::Loc loc = graph.maker(graph.find(name)).loc;
    return lines.at(static_cast<size_t>(loc.line) - 1).substr(static_cast<size_t>(loc.col) - 1);
  };
  EXPECT_EQ(at("blocks.1.att.xr"), "+ dx * x_r");
  EXPECT_EQ(at("blocks.1.att.xr.mul"), "* x_r");
  EXPECT_EQ(at("blocks.1.att.w.tanh").substr(0, 13), "tanh(xw @ w1)");
  EXPECT_EQ(at("blocks.1.att.w.matmul").substr(0, 5), "@ w1)");
  EXPECT_EQ(at("loss").substr(0, 30), "cross_entropy(logits, targets,");
  EXPECT_EQ(at("blocks.1.att.x_r").substr(0, 7), "x_r: f3");
}

TEST(Rwkv7, TheSmallFilesExtendIt) {
  const std::tuple<std::string, double, double> cases[] = {
      {"rwkv7_0.1b.yaml", 12, 768}, {"rwkv7_0.4b.yaml", 24, 1024}, {"rwkv7_1.5b.yaml", 24, 2048}};
  for (const auto& [name, layers, width] : cases) {
    const LoadedModel model = load(name);
    EXPECT_EQ(model.config.at("layers").number(), layers);
    EXPECT_EQ(model.config.at("width").number(), width);
    EXPECT_EQ(model.sources.size(), 2u);
  }
  const LoadedModel demo = load("rwkv7_demo.yaml");
  EXPECT_EQ(demo.config.at("vocab").number(), 256);
  ir::verify(demo.module);
}

TEST(Rwkv7, RanksFollowTheOfficialTable) {
  for (const auto& [width, w, v, g] :
       {std::tuple(512, 64, 32, 128), {768, 64, 32, 128}, {1024, 64, 64, 160}, {2048, 128, 64, 224}}) {
    const LoadedModel model = load("rwkv7.yaml", {{"width", std::to_string(width)}, {"layers", "1"}});
    EXPECT_EQ(model.config.at("rank_w").number(), w) << width;
    EXPECT_EQ(model.config.at("rank_v").number(), v) << width;
    EXPECT_EQ(model.config.at("rank_g").number(), g) << width;
  }
}

TEST(Rwkv7, TheLargestShippedModelHasItsParameters) {
  const LoadedModel model = load("rwkv7_1.5b.yaml");
  int64_t count = 0;
  for (const ir::Variable& v : model.module.variables) {
    if (v.role == ir::VariableRole::param) count += v.type.elements();
  }
  EXPECT_NEAR(static_cast<double>(count), 1.531e9, 5e6);
}

}  // namespace
}  // namespace ingot::models
