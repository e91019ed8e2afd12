// schedule: the order of a finished graph, so that values live as short as their readers allow.
//
//   recompute %s.2 = sigmoid(%a)                        backward %d = matmul(%g, %v)
//   backward %d = matmul(%g, %v)                        ... (hundreds of ops)
//   ... (hundreds of ops)                        =>     recompute %s.2 = sigmoid(%a)
//   backward %e = mul(%d, %s.2)                         backward %e = mul(%d, %s.2)
//
// The order is found from its end backwards, where "alive" is what the ops placed so far read. Of the ops all of whose readers
// are placed, one that makes more bytes than it needs alive anew comes next, the latest of them as the graph stood; when there
// is none, the latest of all. So a weight gradient stands where its operands are alive anyway, and what is made again stands
// before its reader. Views that cost nothing go where they are read. A variable's readers stay before the op that writes it.
#include <algorithm>
#include <map>
#include <set>

#include "passes/algebra.h"
#include "passes/fusion_groups.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

class Schedule {
 public:
  explicit Schedule(const Graph& graph) : graph_(graph), out_(like(graph)), rw_(graph, out_) {}

  Graph run() {
    find_storage();
    find_edges();
    const std::vector<OpId> order = find_order();
    for (const Op& op : graph_.ops()) {
      if (source(op)) rw_.copy(op);
    }
    for (size_t i = order.size(); i-- > 0;) copy(graph_.op(order[i]));
    for (const ir::Output& output : graph_.outputs()) need(output.value);
    for (const ir::Update& update : graph_.updates()) need(update.value);
    rw_.finish();
    return std::move(out_);
  }

 private:
  static bool source(const Op& op) { return ir::lowering_as<ir::SourceLowering>(op) != nullptr; }

  // Costs nothing wherever it stands: constants, and views that are a run of their operand.
  bool travels(const Op& op) const {
    if (const auto* view = ir::lowering_as<ir::ViewLowering>(op)) {
      return view->map(graph_.type(op.operands[0]), graph_.type(op.results[0]), op.attrs).contiguous();
    }
    return ir::lowering_as<ir::GenerateLowering>(op) && graph_.type(op.results[0]).rank() == 0;
  }

  bool placed_here(OpId id) const { return !source(graph_.op(id)) && !travels(graph_.op(id)); }

  // ---------------------------------------------------------------- what takes bytes, and who must come before whom

  void find_storage() {
    const size_t count = graph_.values().size();
    storage_.resize(count);
    bytes_.assign(count, 0);
    for (ValueId v = 0; v < count; ++v) {
      const Op& op = graph_.maker(v);
      const bool view = ir::lowering_as<ir::ViewLowering>(op) && travels(op);
      storage_[v] = view ? storage_[op.operands[0]] : v;
      if (placed_here(graph_.value(v).op)) bytes_[v] = graph_.type(v).bytes();
    }
    // Kept after the program, in bytes of their own.
    for (const ir::Output& output : graph_.outputs()) bytes_[storage_[output.value]] = 0;
    for (const ir::Update& update : graph_.updates()) bytes_[storage_[update.value]] = 0;
  }

  void find_edges() {
    before_.resize(graph_.ops().size());
    waiting_.assign(graph_.ops().size(), 0);
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      if (!placed_here(id)) continue;
      for (const ValueId operand : graph_.op(id).operands) {
        if (operand != kNone) edge(graph_.value(storage_[operand]).op, id);
      }
    }
    const auto readers = variable_readers();
    for (const ir::Update& update : graph_.updates()) {
      const OpId writer = graph_.value(storage_[update.value]).op;
      const auto at = readers.find(update.variable);
      if (at == readers.end()) continue;
      for (const OpId id : at->second) {
        if (id < writer) edge(id, writer);
      }
    }
  }

  std::map<std::string, std::vector<OpId>> variable_readers() const {
    std::map<std::string, std::vector<OpId>> readers;
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      if (!placed_here(id)) continue;
      for (const ValueId operand : graph_.op(id).operands) {
        if (operand == kNone || !source(graph_.maker(storage_[operand]))) continue;
        const std::string variable = read_variable(graph_.maker(storage_[operand]));
        if (!variable.empty()) readers[variable].push_back(id);
      }
    }
    return readers;
  }

  void edge(OpId first, OpId second) {
    if (!placed_here(first) || !placed_here(second)) return;
    std::vector<OpId>& list = before_[second];
    if (std::find(list.begin(), list.end(), first) != list.end()) return;
    list.push_back(first);
    ++waiting_[first];
  }

  // ---------------------------------------------------------------- the order, last op first

  std::vector<OpId> find_order() {
    std::vector<OpId> order;
    alive_.assign(graph_.values().size(), false);
    std::set<OpId, std::greater<>> ready;
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      if (placed_here(id) && waiting_[id] == 0) ready.insert(id);
    }
    while (!ready.empty()) {
      const auto frees = std::find_if(ready.begin(), ready.end(), [&](OpId id) { return growth(graph_.op(id)) <= 0; });
      const OpId next = frees == ready.end() ? *ready.begin() : *frees;
      ready.erase(next);
      order.push_back(next);
      for (const ValueId result : graph_.op(next).results) alive_[result] = false;
      for (const ValueId operand : graph_.op(next).operands) {
        if (operand != kNone) alive_[storage_[operand]] = true;
      }
      for (const OpId id : before_[next]) {
        if (--waiting_[id] == 0) ready.insert(id);
      }
    }
    return order;
  }

  // Bytes alive before the op, less those alive after it.
  int64_t growth(const Op& op) const {
    int64_t bytes = 0;
    for (const ValueId result : op.results) bytes -= alive_[result] ? bytes_[result] : 0;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId stored = op.operands[i] == kNone ? kNone : storage_[op.operands[i]];
      if (stored == kNone || alive_[stored]) continue;
      const bool counted = std::any_of(op.operands.begin(), op.operands.begin() + static_cast<std::ptrdiff_t>(i),
                                       [&](ValueId other) { return other != kNone && storage_[other] == stored; });
      bytes += counted ? 0 : bytes_[stored];
    }
    return bytes;
  }

  // ---------------------------------------------------------------- writing it down

  void need(ValueId value) {
    if (value != kNone && !rw_.mapped(value)) copy(graph_.maker(value));
  }

  void copy(const Op& op) {
    for (const ValueId operand : op.operands) need(operand);
    rw_.copy(op);
  }

  const Graph& graph_;
  Graph out_;
  ir::Rewriter rw_;
  std::vector<ValueId> storage_;           ///< per value: the value it is a part of
  std::vector<int64_t> bytes_;             ///< per value: what its storage takes while it is alive
  std::vector<std::vector<OpId>> before_;  ///< per op: those that must stand before it
  std::vector<int> waiting_;               ///< per op: how many of those it stands before are not placed yet
  std::vector<bool> alive_;
};

}  // namespace

PassInfo schedule_pass() {
  return {"schedule",
          "Orders ops so that values live as short as their readers allow.",
          {},
          false,
          [](const Graph& graph, PassContext&) { return Schedule(graph).run(); }};
}

}  // namespace ingot::passes
