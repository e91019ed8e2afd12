// Random graphs of products and biases through `bias`: the interpreter's answer stays, twice is once, and every bias taken saves
// calls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/graph/builder.h"
#include "passes/algebra.h"
#include "passes/pass.h"
#include "tests/common/random_graph.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

using ir::DType;
using ir::ValueId;

/// Products over rows [24, 6] and what is added to their columns; between them row ops, reshapes and 16-bit casts.
class Biased {
 public:
  explicit Biased(uint64_t seed) : random_(seed), graph_("main", ir::Level::core), b_(graph_) {}

  ir::Module make() {
    ir::Module module;
    module.name = "m";
    for (const char* name : {"x", "y"}) rows_.push_back(b_.input(name, {DType::f32, {24, 6}}));
    for (const char* name : {"v", "w"}) square_.push_back(b_.input(name, {DType::f32, {6, 6}}));
    biases_ = {b_.input("b", {DType::f32, {6}}), b_.input("c", {DType::f32, {1, 6}}), b_.input("d", {DType::f32, {3, 2}})};
    for (int64_t n = 4 + random_.below(8); n > 0; --n) step();
    graph_.add_output({"last", rows_.back(), {}});
    graph_.add_output({"any", any(), {}});
    module.set_graph(graph_);
    return module;
  }

 private:
  ValueId any() { return random_.pick_recent(rows_, 0.8); }

  ValueId product() {
    const DType dtype = random_.chance(0.3) ? DType::bf16 : DType::f32;
    return b_.matmul(b_.cast(any(), dtype), b_.cast(random_.pick(square_), dtype), false, random_.chance(0.5));
  }

  // In the bias's axes, and back.
  ValueId biased() {
    const ValueId bias = random_.pick(biases_), p = b_.cast(product(), DType::f32);
    const bool split = b_.shape(bias) == ir::Shape{3, 2};
    const ir::Shape shape = split ? ir::Shape{24, 3, 2} : random_.chance(0.5) ? ir::Shape{2, 12, 6} : ir::Shape{24, 6};
    const ValueId shaped = b_.reshape(p, shape);
    return b_.reshape(random_.chance(0.5) ? b_.add(shaped, bias) : b_.add(bias, shaped), {24, 6});
  }

  void step() {
    b_.set_phase(random_.chance(0.9) ? ir::Phase::backward : ir::Phase::forward);
    switch (random_.below(4)) {
      case 0:
        return rows_.push_back(b_.make("tanh", {any()}));
      case 1:
        return rows_.push_back(b_.cast(product(), DType::f32));
      default:
        return rows_.push_back(biased());
    }
  }

  Random random_;
  ir::Graph graph_;
  ir::Builder b_;
  std::vector<ValueId> rows_, square_, biases_;
};

int biases_of(const ir::Graph& graph) {
  int count = 0;
  for (const ir::Op& op : graph.ops()) count += passes::is_gemm(op) && passes::adds_bias(graph, op);
  return count;
}

/// What is launched: all but inputs, views and constants.
int calls_of(const ir::Graph& graph) {
  int count = 0;
  for (const ir::Op& op : graph.ops()) {
    count += !ir::lowering_as<ir::SourceLowering>(op) && !ir::lowering_as<ir::ViewLowering>(op) &&
             !ir::lowering_as<ir::GenerateLowering>(op);
  }
  return count;
}

TEST(Bias, SumsKeepTheirAnswerAndSaveCalls) {
  int taken = 0, graphs = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    ir::Module module = Biased(seed).make();
    const ir::Graph before = module.graphs.front();
    const auto run = [&](const ir::Graph& graph, const char* passes) {
      return passes::run_pipeline(graph, module, passes::parse_pipeline(passes));
    };
    const ir::Graph clean = run(before, "cse, dce"), after = run(clean, "bias");
    Random random(seed + 1);
    const Named inputs = random_inputs(before, random);
    const Named want = evaluate(before, inputs, {}, {false, false}), have = evaluate(after, inputs, {}, {false, false});
    ASSERT_LE(distance(want, have), 1e-9) << text_of(before) << "became\n" << text_of(after);
    ASSERT_EQ(text_of(run(after, "bias")), text_of(after));
    if (biases_of(after) == 0) continue;
    ++graphs;
    taken += biases_of(after);
    ASSERT_LT(calls_of(run(after, "fuse")), calls_of(run(clean, "fuse"))) << text_of(clean) << "became\n" << text_of(after);
  }
  EXPECT_GT(taken, 500) << "the graphs must have biases to take";
  EXPECT_GT(graphs, 300);
  fmt::print("{} biases in {} graphs\n", taken, graphs);
}

}  // namespace
}  // namespace ingot::tests
