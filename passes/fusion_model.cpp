#include "passes/fusion_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <unordered_map>

#include "ir/graph/builder.h"
#include "passes/util.h"

namespace ingot::passes {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

namespace {

class BodyBuilder {
 public:
  BodyBuilder(const Graph& graph, const Storage& storage, const std::vector<OpId>& ops)
      : graph_(graph), storage_(storage), ops_(ops), body_("region", graph.level()), builder_(body_) {}

  Graph run(std::vector<ValueId>& operands, std::vector<ValueId>& results, const std::function<bool(ValueId)>& stored) {
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
        if (!stored(result)) continue;
        body_.add_output({std::to_string(results.size()), map_.at(result), graph_.op(id).loc});
        results.push_back(result);
      }
    }
    return std::move(body_);
  }

 private:
  void find_inputs(ValueId value, std::vector<ValueId>& operands) {
    if (storage_.along(graph_.value(value).op)) {
      for (ValueId operand : graph_.maker(value).operands) find_inputs(operand, operands);
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
  const Storage& storage_;
  const std::vector<OpId>& ops_;
  Graph body_;
  ir::Builder builder_;
  std::set<OpId> members_;
  std::unordered_map<ValueId, ValueId> map_;
  int next_name_ = 0;
};

/// An estimate of the registers a thread needs that does four columns of every row: what is alive of a row while its loops run in
/// order (a value read at another row as often as rows of it are kept), sums for the whole walk, elements of every tensor on
/// their way, two to a register, and what addresses and counters take.
int registers(const Graph& body, const RegionPlan& plan, int tensors) {
  constexpr int kColumns = 4, kStream = kColumns / 2, kOverhead = 24;
  std::vector<size_t> order(plan.steps.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto loop = [&](size_t s) { return std::pair(plan.steps[s].sweep, plan.steps[s].lead); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return loop(a) < loop(b); });
  std::vector<int> last(body.values().size(), -1);
  for (size_t k = 0; k < order.size(); ++k) {
    for (const RowAccess& read : plan.steps[order[k]].reads) {
      if (read.base != kNone) last[read.base] = static_cast<int>(k);
    }
  }
  int alive = 0, most = 0;
  std::vector<int> ends(order.size() + 1, 0);
  for (size_t k = 0; k < order.size(); ++k) {
    const RegionStep& step = plan.steps[order[k]];
    for (ValueId result : body.op(step.op).results) {
      if (step.kind == StepKind::column_sum) {
        ++alive;
      } else if (step.result == RowClass::full && last[result] > static_cast<int>(k)) {
        alive += step.depth;
        // Rows kept for a neighbour stay from one row to the next.
        if (step.depth == 1) ++ends[static_cast<size_t>(last[result])];
      }
    }
    most = std::max(most, alive);
    alive -= ends[k];
  }
  return kColumns * most + kStream * tensors + kOverhead;
}

int index_of(const std::vector<ValueId>& values, ValueId value) {
  const auto at = std::find(values.begin(), values.end(), value);
  return at == values.end() ? -1 : static_cast<int>(at - values.begin());
}

/// Which input of a region a value shows whole; -1: none.
int input_index(const Graph& body, ValueId value) {
  while (ir::lowering_as<ir::ViewLowering>(body.maker(value))) value = body.maker(value).operands[0];
  int index = 0;
  for (const Op& op : body.ops()) {
    if (!ir::lowering_as<ir::SourceLowering>(op)) continue;
    if (op.results[0] == value) return index;
    ++index;
  }
  return -1;
}

}  // namespace

FusionOptions fusion_options(const Storage& storage, const PassContext& context) {
  FusionOptions options;
  options.rows = storage.options().rows;
  options.launch_bytes = std::stod(context.option("launch", "10e6"));
  return options;
}

FusionModel::FusionModel(const Graph& graph, const Storage& storage, const FusionOptions& options)
    : graph_(graph),
      storage_(storage),
      options_(options),
      keys_(graph, storage),
      member_(graph.ops().size(), 0),
      read_turn_(graph.values().size(), 0),
      read_bytes_(graph.values().size(), 0) {
  find_users();
  find_reads();
}

// Ops that read a value, directly or through views; and whether anything outside the ops keeps it.
void FusionModel::find_users() {
  users_.resize(graph_.values().size());
  kept_.assign(graph_.values().size(), false);
  for (OpId id = 0; id < graph_.ops().size(); ++id) {
    if (storage_.along(id)) continue;
    for (ValueId operand : graph_.op(id).operands) {
      if (operand == kNone) continue;
      std::vector<OpId>& list = users_[storage_.base(operand)];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  for (const ir::Output& output : graph_.outputs()) kept_[storage_.base(output.value)] = true;
  in_place_.assign(graph_.ops().size(), false);
  for (const ir::Update& update : graph_.updates()) {
    kept_[storage_.base(update.value)] = true;
    const OpId maker = graph_.value(storage_.base(update.value)).op;
    if (graph_.op(maker).def->aliases.empty()) in_place_[maker] = in_place_[maker] || replaces(maker, update.variable);
  }
}

void FusionModel::find_reads() {
  reads_.resize(graph_.ops().size());
  for (OpId id = 0; id < graph_.ops().size(); ++id) {
    if (storage_.along(id)) continue;
    for (ValueId operand : graph_.op(id).operands) {
      if (operand == kNone) continue;
      const ValueId base = storage_.base(operand);
      if (!storage_.along(graph_.value(base).op)) reads_[id].push_back({base, bytes_shown(operand, base)});
    }
  }
}

void FusionModel::mark(const std::vector<OpId>& ops) const {
  ++turn_;
  for (OpId id : ops) member_[id] = turn_;
}

// Is what the op makes of the variable, a tensor, of its type?
bool FusionModel::replaces(OpId id, const std::string& variable) const {
  const Op& op = graph_.op(id);
  const ir::Type& type = graph_.type(op.results[0]);
  return type.elements() > 1 && std::any_of(op.operands.begin(), op.operands.end(), [&](ValueId operand) {
           return operand != kNone && graph_.type(operand) == type &&
                  read_variable(graph_.maker(storage_.base(operand))) == variable;
         });
}

bool FusionModel::row_op(OpId id) const {
  const Op& op = graph_.op(id);
  // An accumulator that takes what a kernel makes stays apart from that kernel.
  if (in_place_[id]) return false;
  return std::holds_alternative<ir::ScalarLowering>(op.def->lowering) ||
         std::holds_alternative<ir::ReduceLowering>(op.def->lowering);
}

// Is this set of ops a row region? Tries the preferred rows, then the region's own.
bool FusionModel::plan(const std::vector<OpId>& ops, int64_t& rows, std::string& why) const {
  mark(ops);
  return plan(
      ops, [&](ValueId value) { return kept_[value] || read_outside(value); }, rows, why);
}

bool FusionModel::plan(const std::vector<OpId>& ops, const std::function<bool(ValueId)>& stored, int64_t& rows,
                       std::string& why) const {
  const bool settled = options_.rows != 0 && rows == options_.rows;
  const auto [at, fresh] = answers_[settled].try_emplace(keys_.key(ops, stored));
  Answer& answer = at->second;
  if (fresh) {
    std::vector<ValueId> operands, results;
    const Graph body = BodyBuilder(graph_, storage_, ops).run(operands, results, stored);
    answer.legal = plan_body(body, settled, answer.rows, answer.why);
  }
  if (answer.legal) {
    rows = answer.rows;
  } else {
    why = answer.why;
  }
  return answer.legal;
}

bool FusionModel::plan_body(const Graph& body, bool only_preferred, int64_t& rows, std::string& why) const {
  for (const int64_t wanted : {options_.rows, int64_t{0}}) {
    if (wanted == 0 && only_preferred) break;
    const auto plan = plan_region(body, wanted, &why);
    if (!plan) continue;
    if (!fits(body, *plan, why) || !stands(body, *plan, why)) return false;
    rows = plan->rows;
    return true;
  }
  return false;
}

// Limits of one kernel: tensors it streams, sums it keeps, values alive per element.
bool FusionModel::fits(const Graph& body, const RegionPlan& plan, std::string& why) const {
  if (plan.columns() > options_.most_columns) {
    why = fmt::format("rows of {} elements, at most {}", plan.columns(), options_.most_columns);
    return false;
  }
  int tensors = 0, sums = 0;
  std::set<ValueId> seen;
  for (const RegionStep& step : plan.steps) {
    sums += step.kind == StepKind::column_sum;
    for (const RowAccess& read : step.reads) {
      if (read.base == kNone) continue;
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
  const int needed = registers(body, plan, tensors);
  if (needed > options_.most_registers) {
    why = fmt::format("about {} registers, at most {}", needed, options_.most_registers);
    return false;
  }
  return true;
}

// What an op writes over its operand by itself, the region must be able to: else both would need bytes.
bool FusionModel::stands(const Graph& body, const RegionPlan& plan, std::string& why) const {
  std::vector<ir::Alias> allowed;
  bool asked = false;
  for (const Op& op : body.ops()) {
    for (const ir::Alias& alias : op.def->aliases) {
      const int output = index_of(plan.outputs, op.results[alias.result]), input = input_index(body, op.operands[alias.operand]);
      if (output < 0 || input < 0) continue;
      if (!asked) allowed = in_place(body, plan);
      asked = true;
      const bool may = std::any_of(allowed.begin(), allowed.end(),
                                   [&](const ir::Alias& pair) { return pair.result == output && pair.operand == input; });
      if (may) continue;
      why = fmt::format("%{} could not be written over %{} any more", body.value(op.results[alias.result]).name,
                        body.value(op.operands[alias.operand]).name);
      return false;
    }
  }
  return true;
}

// Outside the set of ops at hand.
bool FusionModel::read_outside(ValueId value) const {
  return std::any_of(users_[value].begin(), users_[value].end(), [&](OpId user) { return !marked(user); });
}

double FusionModel::bytes_shown(ValueId operand, ValueId base) const {
  const double share = static_cast<double>(graph_.type(operand).elements()) / static_cast<double>(graph_.type(base).elements());
  return bytes(base) * std::min(share, 1.0);
}

// Distinct inputs and outputs used outside, in bytes, and one launch. A slice is charged for what it shows.
double FusionModel::cost(const std::vector<OpId>& ops) const {
  mark(ops);
  double total = options_.launch_bytes;
  for (OpId id : ops) {
    for (const Read& read : reads_[id]) {
      if (marked(graph_.value(read.base).op)) continue;
      double& seen = read_bytes_[read.base];
      if (read_turn_[read.base] != turn_) seen = 0;
      read_turn_[read.base] = turn_;
      total += std::max(read.bytes - seen, 0.0);
      seen = std::max(read.bytes, seen);
    }
    for (ValueId result : graph_.op(id).results) total += read_outside(result) ? bytes(result) : 0;
  }
  return total;
}

Graph region_body(const Graph& graph, const Storage& storage, const std::vector<OpId>& ops,
                  const std::function<bool(ValueId)>& stored, std::vector<ValueId>& operands, std::vector<ValueId>& results) {
  return BodyBuilder(graph, storage, ops).run(operands, results, stored);
}

}  // namespace ingot::passes
