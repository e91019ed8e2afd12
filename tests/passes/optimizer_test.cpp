// The update against AdamW, clip and schedule written out by hand in double, over many steps.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <ostream>

#include "passes/packed.h"
#include "passes/pass.h"
#include "tests/common/random_graph.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

const std::string kDeclarations = R"ir(
module m
hyper %lr: f32[] = "0"
hyper %lr_final: f32[] = "0"
hyper %warmup: f32[] = "0"
hyper %decay: f32[] = "0"
hyper %clip: f32[] = "0"
hyper %beta1: f32[] = "0"
hyper %beta2: f32[] = "0"
hyper %eps: f32[] = "0"
param %a: f32[2, 3] = "0"
param %b: f32[4] = "0" {lr: 2.0, decay: 0.0}
param %c: f32[] = "0" {lr: 0.5, decay: 3.0}
optimizer rule "adamw(lr, beta1, beta2, eps, decay)"
)ir";
// The gradients of the sum are inputs: whatever a test wants them to be.
const std::string kGraph = R"(
graph @train at train {
  input %loss: f32[]
  input %count: f32[]
  input %ga: f32[2, 3]
  input %gb: f32[4]
  input %gc: f32[]
  output loss = %loss
  output count = %count
  output grad.a = %ga
  output grad.b = %gb
  output grad.c = %gc
}
)";
const std::string kCosine = "optimizer schedule \"cosine(lr, lr_final, warmup)\"\n";
const std::string kClip = "optimizer clip \"global_norm(clip)\"\n";

using Hypers = std::map<std::string, double>;

struct Reference {
  Hypers h;
  Named values;
  bool cosine = true, clips = true;

  double lr(double t) const {
    if (!cosine) return h.at("lr");
    const double span = h.at("steps") - h.at("warmup");
    const double part = std::clamp(span > 0 ? (t - h.at("warmup")) / span : t >= h.at("warmup") ? 1.0 : 0.0, 0.0, 1.0);
    const double value = h.at("lr_final") + (h.at("lr") - h.at("lr_final")) * 0.5 * (1 + std::cos(std::numbers::pi * part));
    return t < h.at("warmup") ? value * (0.01 + 0.99 * t / h.at("warmup")) : value;
  }

  double norm(const Named& inputs) const {
    double total = 0;
    for (const char* p : {"a", "b", "c"}) {
      for (double g : inputs.at(std::string("g") + p).data) total += g * g;
    }
    return std::sqrt(total) / inputs.at("count").data[0];
  }

  void step(const Named& inputs) {
    const double t = values.at("step").data[0], n = norm(inputs), rate = lr(t);
    const double factor = clips && n > h.at("clip") ? h.at("clip") / n : 1;
    const std::map<std::string, std::pair<double, double>> groups{{"a", {1, 1}}, {"b", {2, 0}}, {"c", {0.5, 3}}};
    for (const auto& [p, group] : groups) {
      for (size_t i = 0; i < values.at(p).data.size(); ++i) {
        const double g = inputs.at("g" + p).data[i] / inputs.at("count").data[0] * factor;
        double& m = values.at(p + ".m").data[i];
        double& v = values.at(p + ".v").data[i];
        double& w = values.at(p).data[i];
        m = h.at("beta1") * m + (1 - h.at("beta1")) * g;
        v = h.at("beta2") * v + (1 - h.at("beta2")) * g * g;
        const double mh = m / (1 - std::pow(h.at("beta1"), t + 1)), vh = v / (1 - std::pow(h.at("beta2"), t + 1));
        w -= rate * group.first * (h.at("decay") * group.second * w + mh / (std::sqrt(vh) + h.at("eps")));
      }
    }
    values.at("step").data[0] = t + 1;
  }
};

Hypers usual() {
  return {{"lr", 1e-2},   {"lr_final", 1e-3}, {"warmup", 5},  {"decay", 0.1}, {"clip", 1},
          {"beta1", 0.9}, {"beta2", 0.99},    {"eps", 1e-18}, {"steps", 20}};
}

class Update : public testing::Test {
 protected:
  void build(const std::string& extra, const Hypers& hypers) {
    module_ = read_module(kDeclarations + extra + kGraph);
    run_passes(module_, "optimizer, decompose, canonicalize, fold, cse, dce, check");
    reference_.h = hypers;
    reference_.values = draw_variables(module_, 1, hypers);
    reference_.cosine = extra.find("cosine") != std::string::npos;
    reference_.clips = extra.find("global_norm") != std::string::npos;
    values_ = reference_.values;
  }

  Named inputs(double size, double count) {
    Named all = random_inputs(module_.graphs.front(), random_, -size, size);
    all.at("count").data[0] = count;
    return all;
  }

  std::map<std::string, ir::Tensor> step(const Named& given) {
    ir::InterpretResult result = ir::interpret(module_.graphs.front(), given, values_);
    for (auto& [name, value] : result.updates) values_[name] = value;
    return result.outputs;
  }

  ir::Module module_;
  Reference reference_;
  Named values_;
  Random random_{7};
};

TEST_F(Update, FollowsAdamWCosineAndClip) {
  build(kCosine + kClip, usual());
  for (int t = 0; t < 25; ++t) {
    // Sometimes below the clip, sometimes above, with another count each time.
    const Named given = inputs(t % 3 ? 40 : 2, 3 + t);
    const auto out = step(given);
    EXPECT_NEAR(out.at("lr").data[0], reference_.lr(t), 1e-15);
    EXPECT_NEAR(out.at("grad_norm").data[0], reference_.norm(given), 1e-12);
    EXPECT_EQ(out.at("loss").data[0], given.at("loss").data[0]);
    EXPECT_EQ(out.at("count").data[0], 3 + t);
    reference_.step(given);
    ASSERT_LE(distance(reference_.values, values_), 1e-12) << "step " << t;
  }
  EXPECT_EQ(values_.at("step").data[0], 25);
}

TEST_F(Update, WithoutScheduleAndClip) {
  build("", usual());
  EXPECT_EQ(module_.find_variable("steps"), nullptr);
  for (int t = 0; t < 5; ++t) {
    const Named given = inputs(40, 2);
    EXPECT_EQ(step(given).at("lr").data[0], 1e-2);
    reference_.step(given);
    ASSERT_LE(distance(reference_.values, values_), 1e-12);
  }
}

TEST_F(Update, ConstantScheduleIsTheScalarItself) {
  build("optimizer schedule \"constant(lr)\"\n", usual());
  const Named given = inputs(1, 2);
  EXPECT_EQ(step(given).at("lr").data[0], 1e-2);
}

// f32 arithmetic must not lose the first steps: 1 - beta^1 is small.
TEST_F(Update, KeepsTheBiasCorrectionInF32) {
  Hypers hypers = usual();
  hypers["beta2"] = 0.9990000128746033;  // an f32
  hypers["beta1"] = 0.8999999761581421;
  build(kCosine + kClip, hypers);
  for (int t = 0; t < 5; ++t) {
    const Named given = inputs(40, 4);
    ir::InterpretResult result = ir::interpret(module_.graphs.front(), given, values_, {true, true});
    for (auto& [name, value] : result.updates) values_[name] = value;
    reference_.step(given);
    ASSERT_LE(distance(reference_.values, values_), 2e-6) << "step " << t;
  }
}

class NothingChanges : public Update,
                       public testing::WithParamInterface<std::pair<double, double>> {};  // a gradient's element, the count

TEST_P(NothingChanges, CountersIncluded) {
  build(kCosine + kClip, usual());
  step(inputs(1, 2));
  const Named before = values_;
  Named given = inputs(1, GetParam().second);
  given.at("gb").data[2] = GetParam().first;
  if (GetParam().second == 0) {
    for (const char* name : {"ga", "gb", "gc"}) given.at(name) = ir::Tensor(given.at(name).type);
    given.at("gb").data[2] = GetParam().first;
  }
  const auto out = step(given);
  EXPECT_TRUE(identical(before, values_));
  if (GetParam().second == 0) {
    EXPECT_TRUE(std::isfinite(out.at("grad_norm").data[0]));
  }
  // And the next good step goes on as if it had not been.
  reference_.values = before;
  const Named good = inputs(1, 2);
  step(good);
  reference_.step(good);
  EXPECT_LE(distance(reference_.values, values_), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Optimizer, NothingChanges,
                         testing::Values(std::pair(std::numeric_limits<double>::quiet_NaN(), 2.0),
                                         std::pair(std::numeric_limits<double>::infinity(), 2.0),
                                         std::pair(-std::numeric_limits<double>::infinity(), 2.0), std::pair(0.0, 0.0)));

struct Span {
  double warmup, steps;
  friend void PrintTo(const Span& span, std::ostream* out) { *out << span.warmup << " of " << span.steps; }
};
class Schedule : public Update, public testing::WithParamInterface<Span> {};

// Warm-ups and totals that divide by nothing elsewhere.
TEST_P(Schedule, IsFiniteEverywhere) {
  Hypers hypers = usual();
  hypers["warmup"] = GetParam().warmup;
  hypers["steps"] = GetParam().steps;
  build(kCosine + kClip, hypers);
  for (int t = 0; t < 8; ++t) {
    const double lr = step(inputs(1, 2)).at("lr").data[0];
    ASSERT_TRUE(std::isfinite(lr));
    EXPECT_GT(lr, 0);
    EXPECT_LE(lr, 1e-2 * (1 + 1e-12));
    if (GetParam().steps - GetParam().warmup >= 1) {
      EXPECT_NEAR(lr, reference_.lr(t), 1e-15) << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizer, Schedule,
                         testing::Values(Span{0, 6}, Span{1, 6}, Span{5, 6}, Span{6, 6}, Span{7, 6}, Span{0, 1}, Span{1, 1},
                                         Span{0, 0}));

// Products with parameters of one shape can be one call when these lie side by side.
TEST(Packed, EqualShapesLieSideBySide) {
  ir::Graph graph("main", ir::Level::train);
  ir::Builder b(graph);
  std::vector<passes::Trained> trained;
  const std::vector<std::pair<std::string, ir::Shape>> parameters = {{"w1", {4, 2}}, {"bias", {7}}, {"a1", {4, 2}},
                                                                     {"w2", {2, 4}}, {"more", {7}}, {"w3", {4, 2}}};
  for (const auto& [name, shape] : parameters) {
    ir::Variable variable;
    variable.name = name;
    variable.type = {ir::DType::f32, shape};
    trained.push_back({variable, b.input("grad." + name, variable.type)});
  }
  trained[5].variable.lr_factor = 2;  // of another group
  const std::vector<passes::Packed> packs = passes::pack_trained(graph, trained);
  ASSERT_EQ(packs.size(), 1u);
  std::vector<std::string> order;
  for (const passes::Trained& part : packs[0].parts) order.push_back(part.variable.name);
  EXPECT_EQ(order, (std::vector<std::string>{"w1", "a1", "bias", "more", "w2", "w3"}));
  EXPECT_EQ(packs[0].offsets, (std::vector<int64_t>{0, 128, 256, 384, 512, 4096}));
}

}  // namespace
}  // namespace ingot::tests
