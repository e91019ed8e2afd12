#include "passes/fusion_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>

#include "passes/fusion_model.h"
#include "passes/fusion_refine.h"

namespace ingot::passes {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

// ---------------------------------------------------------------- the body of a group

namespace {

class Grouper {
 public:
  Grouper(const Graph& graph, const Storage& storage, const FusionModel& model)
      : graph_(graph), storage_(storage), model_(model) {
    make_singletons();
  }

  /// Of pairs that save the same, `feeding_first`: those of which one feeds the other before those that only read the same.
  /// Returns what the groups cost in the end.
  double run(bool feeding_first) {
    feeding_first_ = feeding_first;
    for (size_t g = 0; g < groups_.size(); ++g) push_pairs(static_cast<int>(g), true);
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      if (!groups_[static_cast<size_t>(best.a)].alive || !groups_[static_cast<size_t>(best.b)].alive) continue;
      std::string why;
      if (merge(best.a, best.b, why)) push_pairs(static_cast<int>(groups_.size()) - 1, false);
    }
    for (int g : order_) {
      if (g < 0) continue;
      const Group& group = groups_[static_cast<size_t>(g)];
      found_.push_back({group.ops, {}, group.fusible, group.rows});
    }
    return refine_groups(graph_, storage_, model_, found_);
  }

  std::vector<FusionGroup> take() { return std::move(found_); }

  // Why edges stay: every one along which a kernel still reads what another made.
  void explain(std::vector<std::string>& remarks) {
    std::map<std::pair<int, int>, std::string> reasons;
    std::vector<std::vector<const FusionGroup*>> holders(graph_.ops().size());
    for (const FusionGroup& group : found_) {
      for (OpId id : group.ops) holders[id].push_back(&group);
    }
    const auto read_from_memory = [&](OpId maker, OpId user) {
      return std::any_of(holders[user].begin(), holders[user].end(), [&](const FusionGroup* group) {
        return !std::binary_search(group->ops.begin(), group->ops.end(), maker);
      });
    };
    for (ValueId value = 0; value < graph_.values().size(); ++value) {
      if (storage_.along(graph_.value(value).op)) continue;
      const int from = group_of_[graph_.value(value).op];
      if (std::holds_alternative<ir::SourceLowering>(graph_.maker(value).def->lowering)) continue;
      for (OpId user : model_.users(value)) {
        const int to = group_of_[user];
        if (from == to || !read_from_memory(graph_.value(value).op, user)) continue;
        const auto [at, fresh] = reasons.try_emplace({from, to});
        if (fresh) at->second = reason(from, to);
        remarks.push_back(
            fmt::format("not fused: {} -> {}: {}", place_text(value), place_text(graph_.op(user).results[0]), at->second));
      }
    }
  }

 private:
  struct Group {
    std::vector<OpId> ops;
    bool alive = true, fusible = false;
    ir::Phase phase = ir::Phase::forward;
    bool again = false;   // every op is made again for the backward
    bool scalar = false;  // elementwise, and every value has rank 0
    int64_t rows = 0;
    size_t position = 0;
    double cost = 0;
  };
  struct Candidate {
    double gain;
    bool preferred;      // ties: these, then
    OpId first, second;  // the earlier ops
    int a, b;
    bool operator<(const Candidate& other) const {
      if (gain != other.gain) return gain < other.gain;
      if (preferred != other.preferred) return other.preferred;
      return std::pair(first, second) > std::pair(other.first, other.second);
    }
  };

  void make_singletons() {
    group_of_.assign(graph_.ops().size(), -1);
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      const Op& op = graph_.op(id);
      if (storage_.along(id)) continue;
      Group group;
      group.ops = {id};
      group.phase = side(op.phase);
      group.again = op.phase == ir::Phase::recompute;
      group.position = order_.size();
      group_of_[id] = static_cast<int>(groups_.size());
      order_.push_back(group_of_[id]);
      groups_.push_back(std::move(group));
      Group& placed = groups_.back();
      std::string why;
      placed.scalar = rank_0(op);
      placed.fusible = model_.row_op(id) && model_.plan(placed.ops, placed.rows, why);
      placed.cost = model_.cost(placed.ops);
    }
  }

  bool rank_0(const Op& op) const {
    const auto flat = [&](ValueId value) { return value == kNone || graph_.type(value).rank() == 0; };
    return std::holds_alternative<ir::ScalarLowering>(op.def->lowering) &&
           std::all_of(op.operands.begin(), op.operands.end(), flat) && std::all_of(op.results.begin(), op.results.end(), flat);
  }

  // What is made again for the backward is made where the backward needs it: best inside its kernels.
  static ir::Phase side(ir::Phase phase) { return phase == ir::Phase::recompute ? ir::Phase::backward : phase; }

  // What can be told without planning: phases and row spaces that never meet. A group of one row may be columns of another, and
  // an op of fewer rows may be about the first rows of a larger group.
  static bool may_meet(const Group& a, const Group& b) {
    const bool part = (a.rows < b.rows ? a : b).ops.size() == 1;
    return a.phase == b.phase && (a.rows == b.rows || a.rows == 1 || b.rows == 1 || part);
  }

  // ------------------------------------------------ candidates

  static std::vector<OpId> joined(const Group& a, const Group& b) {
    std::vector<OpId> ops(a.ops.size() + b.ops.size());
    std::merge(a.ops.begin(), a.ops.end(), b.ops.begin(), b.ops.end(), ops.begin());
    return ops;
  }

  // Groups that feed this one, read it, or read what it reads. What is made again could stand anywhere in the backward: it goes
  // to those who need it, not to whoever reads the same, perhaps layers away, where it would have to be stored.
  std::map<int, bool> neighbours(const Group& group) const {
    std::map<int, bool> found;  // group -> does one feed the other?
    const auto note = [&](OpId op, bool edge) {
      const int g = group_of_[op];
      if (groups_[static_cast<size_t>(g)].fusible) found[g] |= edge;
    };
    const auto note_sharing = [&](OpId op) {
      if (!groups_[static_cast<size_t>(group_of_[op])].again) note(op, false);
    };
    for (OpId id : group.ops) {
      const Op& op = graph_.op(id);
      for (ValueId operand : op.operands) {
        if (operand == kNone) continue;
        const ValueId base = storage_.base(operand);
        if (storage_.along(graph_.value(base).op)) continue;
        note(graph_.value(base).op, true);
        if (graph_.type(base).rank() == 0 || group.again) continue;  // a shared scalar is no reason to meet
        for (OpId user : model_.users(base)) note_sharing(user);
      }
      for (ValueId result : op.results) {
        for (OpId user : model_.users(result)) note(user, true);
      }
    }
    return found;
  }

  void push_pairs(int g, bool later_only) {
    const Group& group = groups_[static_cast<size_t>(g)];
    if (!group.fusible) return;
    for (const auto& [other, edge] : neighbours(group)) {
      if (other == g || (later_only && other < g)) continue;
      const Group& partner = groups_[static_cast<size_t>(other)];
      if (!may_meet(group, partner)) continue;
      const double gain = group.cost + partner.cost - model_.cost(joined(group, partner));
      if (gain <= 0 || strangers(gain, group, partner)) continue;
      const bool earlier = group.ops.front() < partner.ops.front();
      const int a = earlier ? g : other, b = earlier ? other : g;
      queue_.push({gain, edge == feeding_first_, groups_[static_cast<size_t>(a)].ops.front(),
                   groups_[static_cast<size_t>(b)].ops.front(), a, b});
    }
  }

  // Large kernels that share next to nothing: a launch saved is not worth keeping each one's values alive for the other (the
  // parts of a value that is made a part at a time share the targets).
  bool strangers(double gain, const Group& a, const Group& b) const {
    const double smaller = std::min(a.cost, b.cost), launch = model_.options().launch_bytes;
    return smaller > 8 * launch && gain - launch < smaller / 100;
  }

  // ------------------------------------------------ merging

  template <class F>
  void for_each_successor(const Group& group, F visit) const {
    for (OpId id : group.ops) {
      for (ValueId result : graph_.op(id).results) {
        for (OpId user : model_.users(result)) visit(group_of_[user]);
      }
    }
  }

  // Groups strictly between the two in the order that the earlier one leads to. Empty optional: one of them leads to the later
  // one, so that merging would close a circle.
  std::optional<std::set<int>> reached_between(int early, int late) const {
    const size_t end = groups_[static_cast<size_t>(late)].position;
    std::set<int> reached;
    std::vector<int> todo;
    bool circle = false;
    const auto visit_from = [&](int from) {
      for_each_successor(groups_[static_cast<size_t>(from)], [&](int to) {
        if (to == late) circle = circle || from != early;
        if (to == early || to == from || groups_[static_cast<size_t>(to)].position >= end) return;
        if (reached.insert(to).second) todo.push_back(to);
      });
    };
    visit_from(early);
    while (!todo.empty() && !circle) {
      const int next = todo.back();
      todo.pop_back();
      visit_from(next);
    }
    if (circle) return std::nullopt;
    return reached;
  }

  bool merge(int a, int b, std::string& why) {
    const bool a_first = groups_[static_cast<size_t>(a)].position < groups_[static_cast<size_t>(b)].position;
    const int early = a_first ? a : b, late = a_first ? b : a;
    const auto reached = reached_between(early, late);
    if (!reached) {
      why = "an op between them needs one and feeds the other";
      return false;
    }
    Group made;
    made.ops = joined(groups_[static_cast<size_t>(a)], groups_[static_cast<size_t>(b)]);
    // Numbers of the step always fit together; all of them may well end in one kernel of a thousand ops.
    const bool numbers = groups_[static_cast<size_t>(a)].scalar && groups_[static_cast<size_t>(b)].scalar;
    made.rows = numbers ? groups_[static_cast<size_t>(a)].rows : 0;
    if (!numbers && !model_.plan(made.ops, made.rows, why)) return false;
    made.fusible = true;
    made.phase = groups_[static_cast<size_t>(a)].phase;
    made.again = groups_[static_cast<size_t>(a)].again && groups_[static_cast<size_t>(b)].again;
    made.scalar = numbers;
    made.cost = model_.cost(made.ops);
    place(std::move(made), early, late, *reached);
    return true;
  }

  // In the order, between the two: what the early one does not lead to, then the new group, then what it leads to.
  void place(Group made, int early, int late, const std::set<int>& reached) {
    const size_t from = groups_[static_cast<size_t>(early)].position, to = groups_[static_cast<size_t>(late)].position;
    const int id = static_cast<int>(groups_.size());
    std::vector<int> before, after;
    for (size_t p = from + 1; p < to; ++p) {
      if (order_[p] >= 0) (reached.contains(order_[p]) ? after : before).push_back(order_[p]);
    }
    groups_.push_back(std::move(made));
    before.push_back(id);
    before.insert(before.end(), after.begin(), after.end());
    for (size_t p = from; p <= to; ++p) {
      order_[p] = p - from < before.size() ? before[p - from] : -1;
      if (order_[p] >= 0) groups_[static_cast<size_t>(order_[p])].position = p;
    }
    for (OpId op : groups_.back().ops) group_of_[op] = id;
    groups_[static_cast<size_t>(early)].alive = groups_[static_cast<size_t>(late)].alive = false;
  }

  // ------------------------------------------------ --explain

  std::string place_text(ValueId value) const {
    return fmt::format("%{} ({})", graph_.value(value).name, graph_.maker(value).loc.text());
  }

  std::string reason(int a, int b) {
    const Group &x = groups_[static_cast<size_t>(a)], &y = groups_[static_cast<size_t>(b)];
    if (!x.fusible || !y.fusible) return fmt::format("'{}' is no row op", graph_.op((x.fusible ? y : x).ops.front()).def->name);
    if (x.phase != y.phase) return fmt::format("phases {} and {}", ir::phase_name(x.phase), ir::phase_name(y.phase));
    if (!may_meet(x, y)) return fmt::format("{} rows and {} rows", x.rows, y.rows);
    const int early = x.position < y.position ? a : b, late = early == a ? b : a;
    if (!reached_between(early, late)) return "an op between them needs one and feeds the other";
    int64_t rows = 0;
    std::string why;
    if (!model_.plan(joined(x, y), rows, why)) return why;
    return "together they would move no fewer bytes";
  }

  const Graph& graph_;
  const Storage& storage_;
  const FusionModel& model_;
  bool feeding_first_ = true;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::vector<int> order_;  // groups by position; -1 = a hole a merge left
  std::priority_queue<Candidate> queue_;
  std::vector<FusionGroup> found_;
};

}  // namespace

std::vector<FusionGroup> find_fusion_groups(const Graph& graph, const Storage& storage, const FusionOptions& options,
                                            std::vector<std::string>* remarks) {
  const FusionModel model(graph, storage, options);
  // Greedy may go astray at a tie: both ways are tried, the cheaper one taken.
  Grouper feeding(graph, storage, model);
  Grouper sharing = feeding;
  const double one = feeding.run(true), other = sharing.run(false);
  Grouper& best = one <= other ? feeding : sharing;
  if (remarks) best.explain(*remarks);
  return best.take();
}

std::vector<bool> crossing_values(const Graph& graph, const Storage& storage, const std::vector<FusionGroup>& groups) {
  std::vector<bool> crosses(graph.values().size(), false);
  for (const FusionGroup& group : groups) {
    for (OpId id : group.ops) {
      for (ValueId operand : graph.op(id).operands) {
        if (operand == kNone) continue;
        const ValueId base = storage.base(operand);
        if (!std::binary_search(group.ops.begin(), group.ops.end(), graph.value(base).op)) crosses[base] = true;
      }
    }
  }
  return crosses;
}

}  // namespace ingot::passes
