// Random blocks: what models are made of (values with rows, statistics, parameters, products), small enough to try everything.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph/builder.h"
#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"
#include "tests/common/random_graph.h"

namespace ingot::tests {

inline constexpr int64_t kBatch = 2, kTime = 4, kWidth = 8;
inline const ir::Type kFull{ir::DType::f32, {kBatch, kTime, kWidth}};

/// A graph of about `ops` ops that count (views and constants do not), over tokens, two values with rows, a vector and a matrix.
class BlockMaker {
 public:
  BlockMaker(uint64_t seed, ir::Level level, int64_t time = kTime)
      : random_(seed), time_(time), graph_("loss", level), b_(graph_) {}
  /// Only what a token and those before it decide: a block that can run token by token.
  BlockMaker& causal() {
    causal_ = true;
    return *this;
  }

  ir::Graph make(int ops) {
    const ir::Type full{ir::DType::f32, {kBatch, time_, kWidth}};
    b_.input("tokens", {ir::DType::i32, {kBatch, time_}});
    full_ = {b_.input("x", full), b_.input("y", full)};
    column_ = b_.variable(vector());
    matrix_ = b_.variable(matrix());
    for (int i = 0; i < ops; ++i) step();
    return graph_;
  }
  /// The same with outputs `loss` and `count`, for autodiff.
  ir::Graph make_loss(int ops) {
    make(ops);
    ir::ValueId total = b_.sum(mul(full_.back(), full_.back()), {0, 1, 2});
    // Every parameter must have a gradient.
    total = b_.add(total, b_.sum(mul(b_.matmul(full_[0], matrix_), column_), {0, 1, 2}));
    graph_.add_output({"loss", total, {}});
    graph_.add_output({"count", b_.constant(8), {}});
    return graph_;
  }
  /// Everything nobody reads is an output.
  static void add_outputs(ir::Graph& graph) {
    std::vector<bool> read(graph.values().size(), false);
    for (const ir::Op& op : graph.ops()) {
      for (ir::ValueId operand : op.operands) {
        if (operand != ir::kNone) read[operand] = true;
      }
    }
    for (const ir::Op& op : graph.ops()) {
      if (std::holds_alternative<ir::SourceLowering>(op.def->lowering) || read[op.results[0]]) continue;
      graph.add_output({graph.value(op.results[0]).name, op.results[0], {}});
    }
  }

  static ir::Variable vector() { return parameter("m", {kWidth}); }
  static ir::Variable matrix() { return parameter("w", {kWidth, kWidth}); }

 private:
  static ir::Variable parameter(const std::string& name, ir::Shape shape) {
    ir::Variable variable;
    variable.name = name;
    variable.role = ir::VariableRole::param;
    variable.type = {ir::DType::f32, std::move(shape)};
    return variable;
  }

  ir::ValueId any() { return random_.chance(0.5) ? full_.back() : random_.pick(full_); }
  ir::ValueId mul(ir::ValueId a, ir::ValueId b) { return b_.mul(a, b); }

  void step() {
    switch (random_.below(9)) {
      case 0:
        return full_.push_back(b_.make("sigmoid", {any()}));
      case 1:
        return full_.push_back(b_.make("tanh", {any()}));
      case 2:
        return full_.push_back(b_.add(any(), any()));
      case 3:
        return full_.push_back(mul(any(), any()));
      case 4:
        return full_.push_back(mul(any(), column_));
      case 5:
        return statistics_.push_back(b_.sum(any(), {2}, true));
      case 6:
        if (statistics_.empty()) return full_.push_back(b_.make("tanh", {any()}));
        return full_.push_back(mul(any(), b_.make("tanh", {random_.pick(statistics_)})));
      case 7: {
        const ir::ValueId value = any();
        if (causal_) return full_.push_back(b_.sub(b_.op("shift", {value}).results[0], value));
        ir::Attrs attrs;
        attrs.set("by", int64_t{random_.chance(0.5) ? 1 : -1});
        return full_.push_back(b_.sub(b_.op("shift_rows", {value}, attrs).results[0], value));
      }
      default:
        return full_.push_back(b_.matmul(any(), matrix_));
    }
  }

  Random random_;
  const int64_t time_;
  bool causal_ = false;
  ir::Graph graph_;
  ir::Builder b_;
  std::vector<ir::ValueId> full_, statistics_;
  ir::ValueId column_ = ir::kNone, matrix_ = ir::kNone;
};

}  // namespace ingot::tests
