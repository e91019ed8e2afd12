// Chains of views, casts and neutral constants, drawn so that canonicalize's rules meet each other: random graphs over all ops
// rarely put two views in a row.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ir/graph/builder.h"
#include "passes/pass.h"
#include "tests/common/random_graph.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

using Axes = std::vector<int64_t>;

class Chain {
 public:
  explicit Chain(uint64_t seed) : random_(seed), b_(graph_) {}

  ir::Graph draw() {
    values_ = {input({2, 1, 6}), input({3, 4}), input({6, 2})};
    for (int n = 0; n < 14; ++n) {
      // The newest value most often, so that chains grow.
      const ir::ValueId x = random_.chance(0.6) ? values_.back() : random_.pick(values_);
      values_.push_back(step(x));
    }
    for (size_t i = values_.size() - 5; i < values_.size(); ++i) graph_.add_output({fmt::format("y{}", i), values_[i], {}});
    return std::move(graph_);
  }

 private:
  ir::ValueId input(ir::Shape shape) {
    return b_.input(fmt::format("x{}", values_.size() + names_++), {ir::DType::f32, std::move(shape)});
  }

  ir::ValueId step(ir::ValueId x) {
    const ir::Shape shape = b_.shape(x);
    switch (random_.below(9)) {
      case 0:
        return b_.make("reshape", {x}, with("shape", regrouped(shape)));
      case 1:
        return b_.transpose(x, shuffled(shape.size()));
      case 2:
        return slice(x, shape);
      case 3:
        return concat(x, shape);
      case 4:
        return b_.cast(x, random_.pick(std::vector{ir::DType::f32, ir::DType::bf16, ir::DType::f16}));
      case 5:
        return neutral(x);
      case 6:
        return broadcast(x, shape);
      case 7:
        return product(x, shape);
      default:
        return b_.make(random_.pick(std::vector<std::string>{"neg", "neg", "exp"}), {x});
    }
  }

  static ir::Attrs with(const char* name, ir::Attr value) {
    ir::Attrs attrs;
    attrs.set(name, std::move(value));
    return attrs;
  }

  Axes regrouped(ir::Shape shape) {
    if (random_.chance(0.3)) return {ir::element_count(shape)};
    if (random_.chance(0.4)) shape.insert(shape.begin() + random_.below(static_cast<int64_t>(shape.size()) + 1), 1);
    std::reverse(shape.begin(), shape.end());
    return shape;
  }

  Axes shuffled(size_t rank) {
    Axes perm(rank);
    std::iota(perm.begin(), perm.end(), 0);
    // The last two swapped is what matmul takes.
    if (rank >= 2 && random_.chance(0.5)) {
      std::swap(perm[rank - 1], perm[rank - 2]);
    } else {
      for (size_t i = rank; i-- > 1;) std::swap(perm[i], perm[static_cast<size_t>(random_.below(static_cast<int64_t>(i) + 1))]);
    }
    return perm;
  }

  ir::ValueId slice(ir::ValueId x, const ir::Shape& shape) {
    Axes starts, sizes;
    for (int64_t size : shape) {
      starts.push_back(random_.chance(0.5) ? 0 : random_.below(size));
      sizes.push_back(random_.chance(0.5) ? size - starts.back() : 1 + random_.below(size - starts.back()));
    }
    return b_.slice(x, starts, sizes);
  }

  // And, half of the time, one of its parts again.
  ir::ValueId concat(ir::ValueId x, const ir::Shape& shape) {
    const int64_t axis = random_.below(static_cast<int64_t>(shape.size()));
    const ir::ValueId both = b_.concat(random_.chance(0.2) ? std::vector{x} : std::vector{x, b_.neg(x)}, axis);
    if (ir::element_count(b_.shape(both)) > 200 || random_.chance(0.5)) {
      Axes starts(shape.size(), 0);
      const int64_t length = b_.shape(both)[static_cast<size_t>(axis)], part = shape[static_cast<size_t>(axis)];
      starts[static_cast<size_t>(axis)] = random_.below(length - part + 1);
      return b_.slice(both, starts, shape);
    }
    return both;
  }

  ir::ValueId neutral(ir::ValueId x) {
    const std::string op = random_.pick(std::vector<std::string>{"add", "sub", "mul", "div"});
    const ir::ValueId c = b_.constant(random_.pick(op == "div" ? std::vector{1.0, 2.0} : std::vector{0.0, -0.0, 1.0, 2.0}));
    return op != "div" && random_.chance(0.3) ? b_.make(op, {c, x}) : b_.make(op, {x, c});
  }

  ir::ValueId broadcast(ir::ValueId x, ir::Shape shape) {
    if (ir::element_count(shape) < 60) shape.insert(shape.begin(), 1 + random_.below(3));
    const ir::ValueId wide = b_.make("broadcast", {x}, with("shape", shape));
    return random_.chance(0.5)
               ? wide
               : b_.make(random_.pick(std::vector<std::string>{"add", "sub", "mul"}), {wide, random_.chance(0.5) ? x : wide});
  }

  ir::ValueId product(ir::ValueId x, const ir::Shape& shape) {
    if (shape.size() < 2) return b_.neg(x);
    Axes swap(shape.size());
    std::iota(swap.begin(), swap.end(), 0);
    std::swap(swap[swap.size() - 1], swap[swap.size() - 2]);
    const ir::ValueId turned = b_.transpose(x, swap);
    return random_.chance(0.5) ? b_.matmul(x, turned) : b_.matmul(turned, turned, true, false);
  }

  Random random_;
  ir::Graph graph_{"main"};
  ir::Builder b_;
  std::vector<ir::ValueId> values_;
  size_t names_ = 0;
};

TEST(Views, ChainsKeepEveryBit) {
  size_t before_ops = 0, after_ops = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const ir::Graph before = Chain(seed).draw();
    ir::Module module;
    const auto through = [&](const ir::Graph& graph, const char* pipeline) {
      return passes::run_pipeline(graph, module, passes::parse_pipeline(pipeline));
    };
    const ir::Graph after = through(before, "canonicalize, dce");
    Random random(seed);
    const Named inputs = random_inputs(before, random);
    for (const ir::InterpretOptions options : {ir::InterpretOptions{}, ir::InterpretOptions{true, true}}) {
      ASSERT_TRUE(identical(evaluate(before, inputs, {}, options), evaluate(after, inputs, {}, options)))
          << text_of(before) << "became\n"
          << text_of(after);
    }
    ASSERT_EQ(text_of(through(after, "canonicalize, dce")), text_of(after)) << text_of(before);
    before_ops += through(before, "dce").ops().size();
    after_ops += after.ops().size();
  }
  EXPECT_LT(after_ops, before_ops * 9 / 10);
}

}  // namespace
}  // namespace ingot::tests
