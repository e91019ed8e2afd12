#include "passes/traffic.h"

#include <algorithm>
#include <map>

#include "ir/graph/op_def.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::Phase;
using ir::ValueId;

template <class L>
bool is(const Op& op) {
  return std::holds_alternative<L>(op.def->lowering);
}

bool contiguous_view(const Graph& graph, const Op& op) {
  const auto* view = std::get_if<ir::ViewLowering>(&op.def->lowering);
  return view && view->map(graph.type(op.operands[0]), graph.type(op.results[0]), op.attrs).contiguous();
}

/// The value whose bytes a contiguous view shows.
ValueId shown(const Graph& graph, ValueId value) {
  while (contiguous_view(graph, graph.maker(value))) value = graph.maker(value).operands[0];
  return value;
}

bool moves_nothing(const Graph& graph, const Op& op) {
  return is<ir::SourceLowering>(op) || is<ir::GenerateLowering>(op) || contiguous_view(graph, op);
}

// The part of the traffic that grouping decides. Gemms, tuned kernels and gathers move what they move.
bool fusion_decides(const Op& op) {
  return is<ir::RegionLowering>(op) || is<ir::ScalarLowering>(op) || is<ir::ReduceLowering>(op) || is<ir::ViewLowering>(op);
}

/// Per value: does anything that is no view need its bytes?
std::vector<bool> needed_values(const Graph& graph) {
  std::vector<bool> needed(graph.values().size(), false);
  const auto need = [&](ValueId value) { needed[shown(graph, value)] = needed[value] = true; };
  for (const Op& op : graph.ops()) {
    for (ValueId operand : op.operands) {
      if (operand != kNone) need(operand);
    }
  }
  for (const ir::Output& output : graph.outputs()) need(output.value);
  for (const ir::Update& update : graph.updates()) need(update.value);
  return needed;
}

double traffic(const Graph& graph, const Op& op, const std::vector<bool>& needed) {
  std::map<ValueId, int64_t> reads;
  for (ValueId operand : op.operands) {
    if (operand == kNone) continue;
    const ValueId base = shown(graph, operand);
    if (is<ir::GenerateLowering>(graph.maker(base))) continue;
    const int64_t part = graph.type(operand).elements() * ir::dtype_bytes(graph.type(base).dtype);
    int64_t& read = reads[base];
    read = std::max(read, std::min(part, graph.type(base).bytes()));
  }
  double total = 0;
  for (const auto& [base, bytes] : reads) total += static_cast<double>(bytes);
  for (ValueId result : op.results) total += needed[result] ? static_cast<double>(graph.type(result).bytes()) : 0;
  return total;
}

}  // namespace

double op_traffic(const Graph& graph, OpId id) { return traffic(graph, graph.op(id), needed_values(graph)); }

std::vector<ValueId> saved_values(const Graph& graph) {
  std::vector<bool> saved(graph.values().size(), false);
  for (const Op& op : graph.ops()) {
    if ((op.phase != Phase::backward && op.phase != Phase::recompute) || contiguous_view(graph, op)) continue;
    for (ValueId operand : op.operands) {
      if (operand == kNone) continue;
      const ValueId base = shown(graph, operand);
      const Op& maker = graph.maker(base);
      if (maker.phase == Phase::forward && !is<ir::SourceLowering>(maker) && !is<ir::GenerateLowering>(maker)) saved[base] = true;
    }
  }
  std::vector<ValueId> list;
  for (ValueId value = 0; value < saved.size(); ++value) {
    if (saved[value]) list.push_back(value);
  }
  return list;
}

Traffic count_traffic(const Graph& graph) {
  Traffic total;
  const std::vector<bool> needed = needed_values(graph);
  for (const Op& op : graph.ops()) {
    if (op.phase == Phase::optimizer || moves_nothing(graph, op) || !fusion_decides(op)) continue;
    const bool forward = op.phase == Phase::forward;
    (forward ? total.forward : total.backward) += traffic(graph, op, needed);
    ++(forward ? total.forward_launches : total.backward_launches);
  }
  for (ValueId value : saved_values(graph)) total.saved += static_cast<double>(graph.type(value).bytes());
  return total;
}

}  // namespace ingot::passes
