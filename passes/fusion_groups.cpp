#include "passes/fusion_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>

#include "ir/graph/builder.h"
#include "passes/region.h"

namespace ingot::passes {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

bool travels_along(const Op& op) {
  return std::holds_alternative<ir::ViewLowering>(op.def->lowering) ||
         std::holds_alternative<ir::GenerateLowering>(op.def->lowering);
}

ValueId view_base(const Graph& graph, ValueId value) {
  while (std::holds_alternative<ir::ViewLowering>(graph.maker(value).def->lowering)) value = graph.maker(value).operands[0];
  return value;
}

// ---------------------------------------------------------------- the body of a group

namespace {

class BodyBuilder {
 public:
  BodyBuilder(const Graph& graph, const std::vector<OpId>& ops)
      : graph_(graph), ops_(ops), body_("region", graph.level()), builder_(body_) {}

  Graph run(std::vector<ValueId>& operands, std::vector<ValueId>& results, const std::vector<bool>& stored) {
    // Inputs first, in the order of first use: the body is the same for every layer.
    for (OpId id : ops_) members_.insert(id);
    for (OpId id : ops_) {
      for (ValueId operand : graph_.op(id).operands) {
        if (operand != kNone) find_inputs(operand, operands);
      }
    }
    for (OpId id : ops_) copy(graph_.op(id));
    for (OpId id : ops_) {
      for (ValueId result : graph_.op(id).results) {
        if (!stored[result]) continue;
        body_.add_output({std::to_string(results.size()), map_.at(result), graph_.op(id).loc});
        results.push_back(result);
      }
    }
    return std::move(body_);
  }

 private:
  void find_inputs(ValueId value, std::vector<ValueId>& operands) {
    const Op& maker = graph_.maker(value);
    if (travels_along(maker)) {
      for (ValueId operand : maker.operands) find_inputs(operand, operands);
      return;
    }
    if (members_.contains(graph_.value(value).op) || map_.contains(value)) return;
    map_[value] = builder_.input(body_.unique_name("in" + std::to_string(operands.size())), graph_.type(value));
    operands.push_back(value);
  }

  ValueId mapped(ValueId value) {
    if (value == kNone) return kNone;
    const auto at = map_.find(value);
    if (at != map_.end()) return at->second;
    copy(graph_.maker(value));
    return map_.at(value);
  }

  void copy(const Op& op) {
    Op made;
    made.def = op.def;
    for (ValueId operand : op.operands) made.operands.push_back(mapped(operand));
    made.attrs = op.attrs;
    made.phase = op.phase;
    made.loc = op.loc;
    std::vector<std::string> names;
    std::vector<ir::Type> types;
    for (ValueId result : op.results) {
      names.push_back(std::to_string(next_name_++));
      types.push_back(graph_.type(result));
    }
    const Op& placed = body_.op(body_.append(std::move(made), std::move(names), std::move(types)));
    for (size_t i = 0; i < op.results.size(); ++i) map_[op.results[i]] = placed.results[i];
  }

  const Graph& graph_;
  const std::vector<OpId>& ops_;
  Graph body_;
  ir::Builder builder_;
  std::set<OpId> members_;
  std::unordered_map<ValueId, ValueId> map_;
  int next_name_ = 0;
};

// ---------------------------------------------------------------- grouping

class Grouper {
 public:
  Grouper(const Graph& graph, const FusionOptions& options) : graph_(graph), options_(options) {
    find_users();
    make_singletons();
  }

  std::vector<FusionGroup> run(std::vector<std::string>* remarks) {
    for (size_t g = 0; g < groups_.size(); ++g) push_pairs(static_cast<int>(g));
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      if (!groups_[static_cast<size_t>(best.a)].alive || !groups_[static_cast<size_t>(best.b)].alive) continue;
      std::string why;
      if (merge(best.a, best.b, why)) push_pairs(static_cast<int>(groups_.size()) - 1);
    }
    if (remarks) explain(*remarks);
    std::vector<FusionGroup> out;
    for (int g : order_) {
      if (g >= 0)
        out.push_back(
            {groups_[static_cast<size_t>(g)].ops, groups_[static_cast<size_t>(g)].fusible, groups_[static_cast<size_t>(g)].rows});
    }
    return out;
  }

 private:
  struct Group {
    std::vector<OpId> ops;
    bool alive = true, fusible = false;
    ir::Phase phase = ir::Phase::forward;
    bool scalar = false;  // every value has rank 0
    int64_t rows = 0;
    size_t position = 0;
    double cost = 0;
  };
  struct Candidate {
    double gain;
    OpId first, second;  // ties: the earlier ops
    int a, b;
    bool operator<(const Candidate& other) const {
      if (gain != other.gain) return gain < other.gain;
      return std::pair(first, second) > std::pair(other.first, other.second);
    }
  };

  // ------------------------------------------------ the graph seen through views

  // Ops that read a value, directly or through views; and whether anything outside the ops keeps it.
  void find_users() {
    users_.resize(graph_.values().size());
    kept_.assign(graph_.values().size(), false);
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      if (travels_along(graph_.op(id))) continue;
      for (ValueId operand : graph_.op(id).operands) {
        if (operand == kNone) continue;
        std::vector<OpId>& list = users_[view_base(graph_, operand)];
        if (list.empty() || list.back() != id) list.push_back(id);
      }
    }
    for (const ir::Output& output : graph_.outputs()) kept_[view_base(graph_, output.value)] = true;
    for (const ir::Update& update : graph_.updates()) kept_[view_base(graph_, update.value)] = true;
  }

  static bool row_op(const Op& op) {
    // What may work in place keeps buffers of its own: as one of several results of a region it would need a copy.
    if (!op.def->aliases.empty()) return false;
    return std::holds_alternative<ir::ScalarLowering>(op.def->lowering) ||
           std::holds_alternative<ir::ReduceLowering>(op.def->lowering);
  }

  void make_singletons() {
    group_of_.assign(graph_.ops().size(), -1);
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      const Op& op = graph_.op(id);
      if (travels_along(op)) continue;
      Group group;
      group.ops = {id};
      group.phase = side(op.phase);
      group.position = order_.size();
      group_of_[id] = static_cast<int>(groups_.size());
      order_.push_back(group_of_[id]);
      groups_.push_back(std::move(group));
      Group& placed = groups_.back();
      std::string why;
      placed.scalar = rank_0(op);
      placed.fusible = row_op(op) && plan(placed.ops, placed.rows, why);
      placed.cost = cost(placed.ops);
    }
  }

  bool rank_0(const Op& op) const {
    const auto flat = [&](ValueId value) { return value == kNone || graph_.type(value).rank() == 0; };
    return std::all_of(op.operands.begin(), op.operands.end(), flat) && std::all_of(op.results.begin(), op.results.end(), flat);
  }

  // What is made again for the backward is made where the backward needs it: best inside its kernels.
  static ir::Phase side(ir::Phase phase) { return phase == ir::Phase::recompute ? ir::Phase::backward : phase; }

  // What can be told without planning: phases and row spaces that never meet. A group of one row may be columns of another.
  static bool may_meet(const Group& a, const Group& b) {
    return a.phase == b.phase && a.scalar == b.scalar && (a.rows == b.rows || a.rows == 1 || b.rows == 1);
  }

  // Is this set of ops a row region? Tries the preferred rows, then the region's own.
  bool plan(const std::vector<OpId>& ops, int64_t& rows, std::string& why) const {
    std::vector<ValueId> operands, results;
    const Graph body = BodyBuilder(graph_, ops).run(operands, results, stored(ops));
    for (const int64_t wanted : {options_.rows, int64_t{0}}) {
      if (wanted == 0 && options_.rows != 0 && rows == options_.rows) break;  // already settled on the preferred rows
      const auto plan = plan_region(body, wanted, &why);
      if (!plan) continue;
      if (!fits(body, *plan, why)) return false;
      rows = plan->rows;
      return true;
    }
    return false;
  }

  // Limits of one kernel: tensors it streams, sums it keeps, values alive per element.
  bool fits(const Graph& body, const RegionPlan& plan, std::string& why) const {
    int tensors = 0, sums = 0;
    std::set<ValueId> seen;
    std::vector<int> last(body.values().size(), -1);
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      const RegionStep& step = plan.steps[s];
      sums += step.kind == StepKind::column_sum;
      for (const RowAccess& read : step.reads) {
        if (read.base == kNone) continue;
        last[read.base] = static_cast<int>(s);
        if (plan.step_of[read.base] < 0 && read.row != 0 && (read.unit != 0 || plan.n == 1) && seen.insert(read.base).second)
          ++tensors;
      }
    }
    for (ValueId output : plan.outputs) tensors += plan.classes[output] == RowClass::full;
    if (tensors > options_.most_tensors) {
      why = fmt::format("{} tensors in one kernel, at most {}", tensors, options_.most_tensors);
      return false;
    }
    if (sums > options_.most_sums) {
      why = fmt::format("{} column sums in one kernel, at most {}", sums, options_.most_sums);
      return false;
    }
    const int live = most_alive(body, plan, last);
    if (live > options_.most_live) {
      why = fmt::format("{} values alive at once, at most {}", live, options_.most_live);
      return false;
    }
    return true;
  }

  static int most_alive(const Graph& body, const RegionPlan& plan, const std::vector<int>& last) {
    int alive = 0, most = 0;
    std::vector<int> ends(plan.steps.size() + 1, 0);
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      const RegionStep& step = plan.steps[s];
      for (ValueId result : body.op(step.op).results) {
        if (step.kind == StepKind::column_sum) {
          ++alive;  // an accumulator for the whole walk
        } else if (step.result == RowClass::full && last[result] > static_cast<int>(s)) {
          ++alive;
          ++ends[static_cast<size_t>(last[result])];
        }
      }
      most = std::max(most, alive);
      alive -= ends[s];
    }
    return most;
  }

  // Results that something outside these ops needs.
  std::vector<bool> stored(const std::vector<OpId>& ops) const {
    std::vector<bool> flags(graph_.values().size(), false);
    for (OpId id : ops) {
      for (ValueId result : graph_.op(id).results) flags[result] = used_outside(result, ops);
    }
    return flags;
  }

  bool used_outside(ValueId value, const std::vector<OpId>& ops) const {
    if (kept_[value]) return true;
    for (OpId user : users_[value]) {
      if (!std::binary_search(ops.begin(), ops.end(), user)) return true;
    }
    return false;
  }

  // ------------------------------------------------ cost

  double bytes(ValueId value) const { return static_cast<double>(graph_.type(value).bytes()); }

  // Distinct inputs and outputs used outside, in bytes, and one launch. A slice is charged for what it shows.
  double cost(const std::vector<OpId>& ops) const {
    std::map<ValueId, double> reads;
    double total = options_.launch_bytes;
    for (OpId id : ops) {
      const Op& op = graph_.op(id);
      for (ValueId operand : op.operands) {
        if (operand == kNone) continue;
        const ValueId base = view_base(graph_, operand);
        if (travels_along(graph_.maker(base))) continue;
        if (std::binary_search(ops.begin(), ops.end(), graph_.value(base).op)) continue;
        double& seen = reads[base];
        seen = std::min(bytes(base),
                        std::max(seen, bytes(operand) / static_cast<double>(ir::dtype_bytes(graph_.type(operand).dtype)) *
                                           static_cast<double>(ir::dtype_bytes(graph_.type(base).dtype))));
      }
      for (ValueId result : op.results) total += used_outside(result, ops) ? bytes(result) : 0;
    }
    for (const auto& [base, read] : reads) total += read;
    return total;
  }

  // ------------------------------------------------ candidates

  static std::vector<OpId> joined(const Group& a, const Group& b) {
    std::vector<OpId> ops(a.ops.size() + b.ops.size());
    std::merge(a.ops.begin(), a.ops.end(), b.ops.begin(), b.ops.end(), ops.begin());
    return ops;
  }

  std::set<int> neighbours(const Group& group) const {
    std::set<int> found;
    const auto note = [&](OpId op) {
      const int g = group_of_[op];
      if (groups_[static_cast<size_t>(g)].fusible) found.insert(g);
    };
    for (OpId id : group.ops) {
      const Op& op = graph_.op(id);
      for (ValueId operand : op.operands) {
        if (operand == kNone) continue;
        const ValueId base = view_base(graph_, operand);
        const Op& maker = graph_.maker(base);
        if (travels_along(maker)) continue;
        note(graph_.value(base).op);
        if (graph_.type(base).rank() == 0) continue;  // a shared scalar is no reason to meet
        for (OpId user : users_[base]) note(user);
      }
      for (ValueId result : op.results) {
        for (OpId user : users_[result]) note(user);
      }
    }
    return found;
  }

  void push_pairs(int g) {
    const Group& group = groups_[static_cast<size_t>(g)];
    if (!group.fusible) return;
    for (int other : neighbours(group)) {
      if (other == g) continue;
      const Group& partner = groups_[static_cast<size_t>(other)];
      if (!may_meet(group, partner)) continue;
      const double gain = group.cost + partner.cost - cost(joined(group, partner));
      if (gain <= 0) continue;
      const bool earlier = group.ops.front() < partner.ops.front();
      const int a = earlier ? g : other, b = earlier ? other : g;
      queue_.push({gain, groups_[static_cast<size_t>(a)].ops.front(), groups_[static_cast<size_t>(b)].ops.front(), a, b});
    }
  }

  // ------------------------------------------------ merging

  template <class F>
  void for_each_successor(const Group& group, F visit) const {
    for (OpId id : group.ops) {
      for (ValueId result : graph_.op(id).results) {
        for (OpId user : users_[result]) visit(group_of_[user]);
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
    if (!plan(made.ops, made.rows, why)) return false;
    made.fusible = true;
    made.phase = groups_[static_cast<size_t>(a)].phase;
    made.scalar = groups_[static_cast<size_t>(a)].scalar;
    made.cost = cost(made.ops);
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
    if (!may_meet(x, y))
      return x.scalar != y.scalar ? "scalars of the step and rows" : fmt::format("{} rows and {} rows", x.rows, y.rows);
    const int early = x.position < y.position ? a : b, late = early == a ? b : a;
    if (!reached_between(early, late)) return "an op between them needs one and feeds the other";
    int64_t rows = 0;
    std::string why;
    if (!plan(joined(x, y), rows, why)) return why;
    return "together they would move no fewer bytes";
  }

  void explain(std::vector<std::string>& remarks) {
    std::map<std::pair<int, int>, std::string> reasons;
    for (ValueId value = 0; value < users_.size(); ++value) {
      if (travels_along(graph_.maker(value))) continue;
      const int from = group_of_[graph_.value(value).op];
      if (std::holds_alternative<ir::SourceLowering>(graph_.maker(value).def->lowering)) continue;
      for (OpId user : users_[value]) {
        const int to = group_of_[user];
        if (from == to) continue;
        const auto [at, fresh] = reasons.try_emplace({from, to});
        if (fresh) at->second = reason(from, to);
        remarks.push_back(
            fmt::format("not fused: {} -> {}: {}", place_text(value), place_text(graph_.op(user).results[0]), at->second));
      }
    }
  }

  const Graph& graph_;
  const FusionOptions& options_;
  std::vector<std::vector<OpId>> users_;
  std::vector<bool> kept_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::vector<int> order_;  // groups by position; -1 = a hole a merge left
  std::priority_queue<Candidate> queue_;
};

}  // namespace

std::vector<FusionGroup> find_fusion_groups(const Graph& graph, const FusionOptions& options, std::vector<std::string>* remarks) {
  return Grouper(graph, options).run(remarks);
}

Graph region_body(const Graph& graph, const std::vector<OpId>& ops, std::vector<ValueId>& operands,
                  std::vector<ValueId>& results) {
  std::vector<bool> stored(graph.values().size(), false);
  std::set<OpId> members(ops.begin(), ops.end());
  const auto keep = [&](ValueId value) { stored[view_base(graph, value)] = true; };
  for (OpId id = 0; id < graph.ops().size(); ++id) {
    if (members.contains(id) || travels_along(graph.op(id))) continue;
    for (ValueId operand : graph.op(id).operands) {
      if (operand != kNone) keep(operand);
    }
  }
  for (const ir::Output& output : graph.outputs()) keep(output.value);
  for (const ir::Update& update : graph.updates()) keep(update.value);
  return BodyBuilder(graph, ops).run(operands, results, stored);
}

}  // namespace ingot::passes
