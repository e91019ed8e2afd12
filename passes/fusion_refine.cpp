#include "passes/fusion_refine.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "passes/min_cut.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

bool holds(const std::vector<OpId>& ops, OpId id) { return std::binary_search(ops.begin(), ops.end(), id); }

void insert(std::vector<OpId>& ops, OpId id) {
  const auto at = std::lower_bound(ops.begin(), ops.end(), id);
  if (at == ops.end() || *at != id) ops.insert(at, id);
}

void remove(std::vector<OpId>& ops, OpId id) {
  const auto at = std::lower_bound(ops.begin(), ops.end(), id);
  if (at != ops.end() && *at == id) ops.erase(at);
}

class Refiner {
 public:
  Refiner(const Graph& graph, const Storage& storage, const FusionModel& model, std::vector<FusionGroup>& groups)
      : graph_(graph), storage_(storage), model_(model), groups_(groups), holders_(graph.ops().size()) {
    owner_.assign(graph.ops().size(), -1);
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (OpId id : groups_[g].ops) holders_[id] = {static_cast<int>(g)}, owner_[id] = static_cast<int>(g);
    }
  }

  double run() {
    constexpr int kRounds = 4;  // each reaches one group further back
    for (int round = 0; round < kRounds; ++round) {
      bool changed = false;
      for (size_t g = 0; g < groups_.size(); ++g) {
        if (!groups_[g].fusible) continue;
        for (int from : sources(group(static_cast<int>(g)))) changed = rebuild(static_cast<int>(g), from) || changed;
      }
      if (!changed) break;
    }
    double total = 0;
    for (size_t g = 0; g < groups_.size(); ++g) total += cost(static_cast<int>(g));
    std::erase_if(groups_, [](const FusionGroup& group) { return group.ops.empty(); });
    return total;
  }

 private:
  FusionGroup& group(int g) { return groups_[static_cast<size_t>(g)]; }
  const FusionGroup& group(int g) const { return groups_[static_cast<size_t>(g)]; }
  OpId maker(ValueId value) const { return graph_.value(value).op; }
  static bool backward(ir::Phase phase) { return phase == ir::Phase::backward || phase == ir::Phase::recompute; }
  bool one_side(OpId a, OpId b) const {
    const ir::Phase x = graph_.op(a).phase, y = graph_.op(b).phase;
    return x == y || (backward(x) && backward(y));
  }

  template <class F>
  void for_each_read(OpId id, F visit) const {
    for (ValueId operand : graph_.op(id).operands) {
      if (operand == kNone) continue;
      const ValueId base = storage_.base(operand);
      if (!storage_.along(maker(base))) visit(operand, base);
    }
  }

  // Fusible groups of the same side that this one reads from.
  std::set<int> sources(const FusionGroup& group) const {
    std::set<int> found;
    for (OpId id : group.ops) {
      for_each_read(id, [&](ValueId, ValueId base) {
        const int from = owner_[maker(base)];
        if (from < 0 || holds(group.ops, maker(base)) || graph_.type(base).rank() == 0) return;
        if (this->group(from).fusible && one_side(maker(base), id)) found.insert(from);
      });
    }
    return found;
  }

  // ------------------------------------------------ what is stored, and the cost

  /// Groups that read a value from memory.
  std::set<int> readers(ValueId value) const {
    std::set<int> found;
    for (OpId user : model_.users(value)) {
      for (int holder : holders_[user]) {
        if (!holds(group(holder).ops, maker(value))) found.insert(holder);
      }
    }
    return found;
  }
  bool crosses(ValueId value) const {
    for (OpId user : model_.users(value)) {
      for (int holder : holders_[user]) {
        if (!holds(group(holder).ops, maker(value))) return true;
      }
    }
    return false;
  }
  bool stored(int g, ValueId value) const {
    return !holds(group(g).copies, maker(value)) && (model_.kept(value) || crosses(value));
  }

  double cost(int g) const {
    std::map<ValueId, double> reads;
    double total = group(g).ops.empty() ? 0 : model_.options().launch_bytes;
    for (OpId id : group(g).ops) {
      for_each_read(id, [&](ValueId operand, ValueId base) {
        if (holds(group(g).ops, maker(base))) return;
        double& seen = reads[base];
        seen = std::max(seen, model_.bytes_shown(operand, base));
      });
      for (ValueId result : graph_.op(id).results) total += stored(g, result) ? model_.bytes(result) : 0;
    }
    for (const auto& [base, read] : reads) total += read;
    return total;
  }

  // ------------------------------------------------ computing again

  /// Ops of `from` that `g` should do for itself: a minimum cut, over the bytes to read, between what `from` reads and what g
  /// reads from it.
  std::vector<OpId> worth_copying(int g, int from) const {
    std::set<ValueId> wanted, own_reads;
    for (OpId id : group(g).ops) {
      for_each_read(id, [&](ValueId, ValueId base) {
        if (holds(group(g).ops, maker(base))) return;
        (holds(group(from).ops, maker(base)) ? wanted : own_reads).insert(base);
      });
    }
    std::unordered_map<ValueId, int> node;
    std::vector<ValueId> todo(wanted.begin(), wanted.end()), values;
    while (!todo.empty()) {
      const ValueId value = todo.back();
      todo.pop_back();
      if (!node.emplace(value, static_cast<int>(values.size())).second) continue;
      values.push_back(value);
      if (!holds(group(from).ops, maker(value))) continue;
      for_each_read(maker(value), [&](ValueId, ValueId base) { todo.push_back(base); });
    }
    const int count = static_cast<int>(values.size()), source = 2 * count, sink = source + 1;
    MinCut cut(2 * count + 2);
    for (const auto& [value, n] : node) {
      const bool inside = holds(group(from).ops, maker(value));
      cut.edge(2 * n, 2 * n + 1, price(g, value, inside, own_reads.contains(value)));
      if (wanted.contains(value)) cut.edge(2 * n + 1, sink, MinCut::kInfinite);
      if (!inside) cut.edge(source, 2 * n, MinCut::kInfinite);
    }
    // In a fixed order: which of several equal cuts is found must not depend on a hash.
    for (ValueId value : values) {
      if (!holds(group(from).ops, maker(value))) continue;
      bool reads = false;
      for_each_read(maker(value), [&](ValueId, ValueId base) {
        cut.edge(2 * node.at(base) + 1, 2 * node.at(value), MinCut::kInfinite);
        reads = true;
      });
      if (!reads) cut.edge(source, 2 * node.at(value), MinCut::kInfinite);
    }
    cut.run(source, sink);
    const std::vector<bool> late = cut.sink_side(sink);
    std::vector<OpId> ops;
    for (ValueId value : values) {
      if (late[2 * static_cast<size_t>(node.at(value))] && holds(group(from).ops, maker(value))) insert(ops, maker(value));
    }
    return ops;
  }

  /// What it costs that g reads a value: its bytes, and the writing of them when nobody else asks for that.
  int64_t price(int g, ValueId value, bool inside, bool read_anyway) const {
    if (read_anyway) return 1;
    const int64_t bytes = storage_.bytes(value) + 1;
    if (!inside || model_.kept(value)) return bytes;
    std::set<int> others = readers(value);
    others.erase(g);
    return others.empty() ? 2 * bytes : bytes;
  }

  bool rebuild(int g, int from) {
    const std::vector<OpId> copies = worth_copying(g, from);
    if (copies.empty()) return false;
    const FusionGroup old_g = group(g), old_from = group(from);
    const double before = cost(g) + cost(from);
    for (OpId id : copies) {
      insert(group(g).ops, id);
      insert(group(g).copies, id);
      holders_[id].push_back(g);
    }
    drop_unneeded(from);
    if (cost(g) + cost(from) < before && fits(g) && fits(from)) {
      for (int source : sources(old_from)) drop_unneeded(source);
      return true;
    }
    for (OpId id : copies) std::erase(holders_[id], g);
    for (OpId id : old_from.ops) {
      if (!holds(group(from).ops, id)) holders_[id].push_back(from);
    }
    group(g) = old_g;
    group(from) = old_from;
    return false;
  }

  bool fits(int g) {
    std::string why;
    return group(g).ops.empty() || model_.plan(
                                       group(g).ops, [&](ValueId value) { return stored(g, value); }, group(g).rows, why);
  }

  // Ops of a group that neither it nor anyone else reads any more.
  void drop_unneeded(int g) {
    const std::vector<OpId> ops = group(g).ops;
    for (size_t i = ops.size(); i-- > 0;) {
      if (group(g).fusible && !needed(g, ops[i])) {
        remove(group(g).ops, ops[i]);
        remove(group(g).copies, ops[i]);
        std::erase(holders_[ops[i]], g);
      }
    }
  }

  bool needed(int g, OpId id) const {
    for (ValueId result : graph_.op(id).results) {
      if (stored(g, result)) return true;
      for (OpId user : model_.users(result)) {
        if (holds(group(g).ops, user)) return true;
      }
    }
    return false;
  }

  const Graph& graph_;
  const Storage& storage_;
  const FusionModel& model_;
  std::vector<FusionGroup>& groups_;
  std::vector<std::vector<int>> holders_;  ///< per op: the groups that do it
  std::vector<int> owner_;                 ///< per op: the group that stores its results
};

}  // namespace

double refine_groups(const Graph& graph, const Storage& storage, const FusionModel& model, std::vector<FusionGroup>& groups) {
  return Refiner(graph, storage, model, groups).run();
}

}  // namespace ingot::passes
