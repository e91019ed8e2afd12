// Grouping against an exhaustive search on small random blocks, and the limits of one kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "ir/graph/builder.h"
#include "passes/fusion_groups.h"
#include "passes/pass.h"
#include "passes/traffic.h"
#include "tests/common/random_block.h"
#include "tests/common/random_graph.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

// ---------------------------------------------------------------- greedy against exhaustive

/// Bytes and launches of groups as they stand, as FusionModel::cost counts them; of inputs and variables none.
double cost_of(const Graph& graph, const passes::Storage& storage, const passes::FusionModel& model,
               const std::vector<passes::FusionGroup>& groups) {
  const std::vector<bool> crosses = passes::crossing_values(graph, storage, groups);
  const auto in = [](const std::vector<OpId>& ops, OpId id) { return std::binary_search(ops.begin(), ops.end(), id); };
  double total = 0;
  for (const passes::FusionGroup& group : groups) {
    if (std::holds_alternative<ir::SourceLowering>(graph.op(group.ops[0]).def->lowering)) continue;
    std::map<ValueId, double> reads;
    total += model.options().launch_bytes;
    for (OpId id : group.ops) {
      for (ValueId operand : graph.op(id).operands) {
        if (operand == kNone) continue;
        const ValueId base = storage.base(operand);
        const OpId maker = graph.value(base).op;
        if (storage.along(maker) || in(group.ops, maker)) continue;
        reads[base] = std::max(reads[base], model.bytes_shown(operand, base));
      }
      for (ValueId result : graph.op(id).results) {
        if (crosses[result] && !in(group.copies, id)) total += model.bytes(result);
      }
    }
    for (const auto& [base, bytes] : reads) total += bytes;
  }
  return total;
}

// The cheapest way to run the ops group by group, over all of them: after each group what is done is closed under what it needs.
class Exhaustive {
 public:
  Exhaustive(const Graph& graph, const passes::Storage& storage, const passes::FusionModel& model)
      : graph_(graph), storage_(storage), model_(model) {
    for (OpId id = 0; id < graph.ops().size(); ++id) {
      if (storage.along(id)) continue;
      if (std::holds_alternative<ir::SourceLowering>(graph.op(id).def->lowering)) continue;
      number_[id] = static_cast<int>(ops_.size());
      ops_.push_back(id);
    }
    needs_.assign(ops_.size(), 0);
    for (size_t i = 0; i < ops_.size(); ++i) {
      for (ValueId operand : graph.op(ops_[i]).operands) {
        const auto at = operand == kNone ? number_.end() : number_.find(graph.value(storage.base(operand)).op);
        if (at != number_.end()) needs_[i] |= 1u << at->second;
      }
    }
  }

  size_t ops() const { return ops_.size(); }

  double best() {
    const uint32_t all = (1u << ops_.size()) - 1;
    std::vector<double> done(all + 1, std::numeric_limits<double>::infinity());
    std::map<uint32_t, double> costs;
    done[0] = 0;
    for (uint32_t now = 0; now < all; ++now) {
      if (done[now] == std::numeric_limits<double>::infinity()) continue;
      const uint32_t left = all & ~now;
      for (uint32_t group = left; group != 0; group = (group - 1) & left) {
        if (!closed(now | group)) continue;
        const auto [at, fresh] = costs.try_emplace(group, 0);
        if (fresh) at->second = cost(group);
        done[now | group] = std::min(done[now | group], done[now] + at->second);
      }
    }
    return done[all];
  }

 private:
  bool closed(uint32_t set) const {
    for (size_t i = 0; i < ops_.size(); ++i) {
      if ((set >> i & 1) && (needs_[i] & ~set)) return false;
    }
    return true;
  }

  double cost(uint32_t set) const {
    std::vector<OpId> ops;
    bool fusible = true;
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (!(set >> i & 1)) continue;
      ops.push_back(ops_[i]);
      fusible = fusible && model_.row_op(ops_[i]);
    }
    int64_t rows = 0;
    std::string why;
    if (ops.size() > 1 && (!fusible || !connected(ops) || !model_.plan(ops, rows, why)))
      return std::numeric_limits<double>::infinity();
    return model_.cost(ops);
  }

  // Ops that neither feed each other nor read the same are never one kernel: a launch saved that way is no byte saved.
  bool connected(const std::vector<OpId>& ops) const {
    std::vector<std::set<ValueId>> touched;
    for (OpId id : ops) {
      std::set<ValueId> values(graph_.op(id).results.begin(), graph_.op(id).results.end());
      for (ValueId operand : graph_.op(id).operands) {
        if (operand != kNone && !storage_.along(graph_.value(storage_.base(operand)).op)) values.insert(storage_.base(operand));
      }
      touched.push_back(std::move(values));
    }
    const auto meet = [](const std::set<ValueId>& a, const std::set<ValueId>& b) {
      return std::any_of(a.begin(), a.end(), [&](ValueId value) { return b.contains(value); });
    };
    // Joins until nothing meets.
    for (size_t i = 0; i < touched.size(); ++i) {
      for (size_t k = i + 1; k < touched.size(); ++k) {
        if (!meet(touched[i], touched[k])) continue;
        touched[k].insert(touched[i].begin(), touched[i].end());
        touched.erase(touched.begin() + static_cast<std::ptrdiff_t>(i));
        i = static_cast<size_t>(-1);
        break;
      }
    }
    return touched.size() == 1;
  }

  const Graph& graph_;
  const passes::Storage& storage_;
  const passes::FusionModel& model_;
  std::vector<OpId> ops_;
  std::map<OpId, int> number_;
  std::vector<uint32_t> needs_;  ///< per op: those of ops_ that it reads
};

TEST(Fusion, GreedyIsNearTheBest) {
  int judged = 0;
  for (uint64_t seed = 0; judged < 600; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Graph graph = BlockMaker(seed, ir::Level::core).make(9);
    BlockMaker::add_outputs(graph);
    const passes::Storage storage(graph, {});
    passes::FusionOptions options;
    options.rows = kBatch * kTime;
    options.launch_bytes = static_cast<double>(kFull.bytes()) / 4;
    const passes::FusionModel model(graph, storage, options);
    Exhaustive exhaustive(graph, storage, model);
    if (exhaustive.ops() > 12) continue;
    ++judged;
    const double best = exhaustive.best();
    const double greedy = cost_of(graph, storage, model, passes::find_fusion_groups(graph, storage, options));
    EXPECT_LE(greedy, 1.05 * best) << text_of(graph);
  }
}

// ---------------------------------------------------------------- limits

struct Held {
  int tensors = 0, sums = 0;
};
/// The most that any region of the fused graph streams and sums.
Held most_held(const Graph& graph) {
  Held most;
  for (const Op& op : graph.ops()) {
    if (!op.region) continue;
    const auto count = [&](const std::vector<ValueId>& values, const ir::Shape& shape) {
      return static_cast<int>(
          std::count_if(values.begin(), values.end(), [&](ValueId value) { return graph.type(value).shape == shape; }));
    };
    most.tensors = std::max(most.tensors, count(op.operands, kFull.shape) + count(op.results, kFull.shape));
    most.sums = std::max(most.sums, count(op.results, {kWidth}));
  }
  return most;
}

Graph fused(const Graph& graph) {
  ir::Module module;
  return passes::run_pipeline(graph, module, passes::parse_pipeline("fuse"));
}

// One value against many: every pair shares it, but one kernel holds no more than so many.
Graph fan(int branches, bool sums) {
  Graph graph("fan", ir::Level::core);
  ir::Builder b(graph);
  b.input("tokens", {ir::DType::i32, {kBatch, kTime}});
  const ValueId x = b.input("x", kFull);
  for (int i = 0; i < branches; ++i) {
    ValueId y = b.mul(x, b.input(fmt::format("y{}", i), kFull));
    if (sums) y = b.sum(y, {0, 1});
    graph.add_output({fmt::format("o{}", i), y, {}});
  }
  return graph;
}

TEST(Fusion, HoldsNoMoreTensorsAndSumsThanFit) {
  const Held products = most_held(fused(fan(40, false))), sums = most_held(fused(fan(40, true)));
  EXPECT_GT(products.tensors, 20);
  EXPECT_LE(products.tensors, 24);
  EXPECT_GT(sums.sums, 10);
  EXPECT_LE(sums.sums, 12);
}

// Everything is needed at the end: too much is alive for one thread.
TEST(Fusion, KeepsWithinRegisters) {
  Graph graph("wide", ir::Level::core);
  ir::Builder b(graph);
  b.input("tokens", {ir::DType::i32, {kBatch, kTime}});
  ValueId norm = b.input("x", kFull);
  std::vector<ValueId> all;
  for (int i = 0; i < 48; ++i) {
    norm = b.make("tanh", {norm});
    all.push_back(norm);
  }
  ValueId total = b.make("exp", {norm});
  for (const ValueId value : all) total = b.mul(total, value);
  graph.add_output({"y", total, {}});
  const passes::Storage storage(graph, {});
  passes::FusionOptions options;
  std::vector<OpId> ops;
  for (OpId id = 0; id < graph.ops().size(); ++id) {
    if (!std::holds_alternative<ir::SourceLowering>(graph.op(id).def->lowering)) ops.push_back(id);
  }
  const auto refusal = [&] {
    int64_t rows = 0;
    std::string why = "fits";
    passes::FusionModel(graph, storage, options).plan(ops, rows, why);
    return why;
  };
  EXPECT_NE(refusal().find("registers, at most 168"), std::string::npos) << refusal();
  options.most_registers = 300;
  EXPECT_EQ(refusal(), "fits");
}

}  // namespace
}  // namespace ingot::tests
