// Random graphs of products and sums through gemm_shape: the interpreter's answer stays, twice is once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/graph/builder.h"
#include "ir/graph/verify.h"
#include "passes/algebra.h"
#include "passes/pass.h"
#include "tests/common/random_graph.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

using ir::DType;
using ir::ValueId;

/// Products over rows [24, n], reshapes of them, and sums: often of things nobody else reads, sometimes of shared ones.
class SumsOfProducts {
 public:
  explicit SumsOfProducts(uint64_t seed) : random_(seed), graph_("main", ir::Level::core), b_(graph_) {}

  ir::Module make() {
    ir::Module module;
    module.name = "m";
    ir::Variable acc;
    acc.name = "acc";
    acc.role = ir::VariableRole::state;
    acc.type = {DType::f32, {24, 4}};
    acc.init = "0";
    module.variables = {acc};
    for (const char* name : {"x", "y"}) rows_.push_back(b_.input(name, {DType::f32, {24, 4}}));
    for (const char* name : {"v", "w"}) square_.push_back(b_.input(name, {DType::f32, {4, 4}}));
    for (int64_t n = 4 + random_.below(10); n > 0; --n) step();
    if (random_.chance(0.7)) graph_.add_update({"acc", b_.add(b_.variable(acc), wide(any())), {}});
    graph_.add_output({"last", rows_.back(), {}});
    graph_.add_output({"any", any(), {}});
    module.set_graph(graph_);
    return module;
  }

 private:
  ValueId any() { return random_.pick_recent(rows_, 0.7); }
  ValueId wide(ValueId value) { return b_.cast(value, DType::f32); }

  ValueId product() {
    ValueId left = any(), right = random_.pick(square_);
    const bool narrow = random_.chance(0.3);
    if (narrow) left = b_.cast(left, DType::bf16), right = b_.cast(right, DType::bf16);
    left = wide(left) == left ? left : b_.cast(left, b_.type(right).dtype);
    ValueId made = b_.matmul(left, b_.cast(right, b_.type(left).dtype), false, random_.chance(0.5));
    if (random_.chance(0.3)) made = b_.reshape(b_.reshape(made, {2, 12, 4}), {24, 4});
    return random_.chance(0.7) ? wide(made) : made;
  }

  void step() {
    b_.set_phase(random_.chance(0.9) ? ir::Phase::backward : ir::Phase::forward);
    switch (random_.below(4)) {
      case 0:
        return rows_.push_back(b_.make("tanh", {any()}));
      case 1:
        return rows_.push_back(product());
      default: {
        const ValueId p = product(), other = random_.chance(0.5) ? product() : any();
        rows_.push_back(random_.chance(0.5) ? b_.add(p, other) : b_.add(other, p));
      }
    }
  }

  Random random_;
  ir::Graph graph_;
  ir::Builder b_;
  std::vector<ValueId> rows_, square_;
};

int count_adding(const ir::Graph& graph) {
  int count = 0;
  for (const ir::Op& op : graph.ops()) count += passes::is_gemm(op) && passes::gemm_addend(op) != ir::kNone;
  return count;
}

TEST(GemmShape, SumsOfProductsKeepTheirAnswer) {
  int folded = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    ir::Module module = SumsOfProducts(seed).make();
    const ir::Graph before = module.graphs.front();
    Random random(seed + 1);
    const Named inputs = random_inputs(before, random), variables = random_variables(before, random);
    const ir::Graph after = passes::run_pipeline(before, module, passes::parse_pipeline("gemm_shape"));
    // Without rounding to 16 bits a sum that gemms took over differs by its order alone.
    const Named want = evaluate(before, inputs, variables, {false, false}),
                have = evaluate(after, inputs, variables, {false, false});
    ASSERT_LE(distance(want, have), 1e-9) << text_of(before) << "became\n" << text_of(after);
    ASSERT_EQ(text_of(passes::run_pipeline(after, module, passes::parse_pipeline("gemm_shape"))), text_of(after));
    folded += count_adding(after);
  }
  EXPECT_GT(folded, 2000) << "the graphs must have sums to take over";
}

}  // namespace
}  // namespace ingot::tests
