// recompute: which forward values the backward keeps, and which it makes again.
//
//   %a = matmul(%x, %w)                             %a = matmul(%x, %w)
//   %s = sigmoid(%a)                                %s = sigmoid(%a)
//   ...                                     =>      ...
//   backward %g = mul(%d, %s)                       recompute %s.2 = sigmoid(%a)
//                                                   backward %g = mul(%d, %s.2)
//   (saved: %a and %s)                              (saved: %a)
//
// mode=cheap: every forward value that costs no gemm and no tuned kernel may be made again where the backward needs it. What
// is kept is a minimum cut over bytes (and writes that only the backward asks for) between what cannot be made again (results of
// gemms, kernels, gathers, ...) and what the backward reads; of several such cuts the one nearest the backward, which makes least
// again. Parameters, inputs and constants are there anyway. Made-again ops carry the phase `recompute`, so that cse does not undo
// this. narrow=bf16: what is kept costs what it will be stored as (storage.h). mode=none: everything the backward reads is kept.
#include <algorithm>

#include "ir/graph/builder.h"
#include "passes/min_cut.h"
#include "passes/passes.h"
#include "passes/storage.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::Phase;
using ir::ValueId;

bool source(const Op& op) { return std::holds_alternative<ir::SourceLowering>(op.def->lowering); }

class Recompute {
 public:
  Recompute(const Graph& graph, const Storage& storage)
      : graph_(graph), storage_(storage), out_(like(graph)), rw_(graph, out_), again_(graph.values().size(), kNone) {
    find_wanted();
    find_stored();
    find_saved();
  }

  Graph run() {
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::backward) {
        backward(op);
      } else {
        rw_.copy(op);
      }
    }
    rw_.finish();
    return std::move(out_);
  }

 private:
  bool along(const Op& op) const { return storage_.along(graph_.value(op.results[0]).op); }
  bool cheap(const Op& op) const {
    return along(op) || std::holds_alternative<ir::ScalarLowering>(op.def->lowering) ||
           std::holds_alternative<ir::ReduceLowering>(op.def->lowering);
  }
  bool forward(ValueId value) const { return graph_.maker(value).phase == Phase::forward; }

  // Forward values that backward ops read.
  void find_wanted() {
    wanted_.assign(graph_.values().size(), false);
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::backward) continue;
      for (ValueId operand : op.operands) {
        if (operand != kNone && forward(operand)) wanted_[operand] = true;
      }
    }
  }

  // What the forward writes to memory anyway: results of gemms and kernels, what such read, and what is read again behind one (by
  // an op that waits for more of them than the value itself did).
  void find_stored() {
    stored_.assign(graph_.values().size(), false);
    std::vector<int> waits(graph_.values().size(), 0);
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::forward) continue;
      int most = 0;
      for (ValueId operand : op.operands) most = std::max(most, operand == kNone ? 0 : waits[operand]);
      const bool barrier = !source(op) && !cheap(op);
      for (ValueId operand : op.operands) {
        if (operand != kNone && (barrier || waits[operand] < most)) stored_[storage_.base(operand)] = true;
      }
      for (ValueId result : op.results) {
        waits[result] = most + barrier;
        stored_[result] = barrier;
      }
    }
  }

  // What keeping a value costs: its bytes, and a quarter more when it is written for the backward alone.
  int64_t price(ValueId value) const { return storage_.bytes(value) * (stored_[value] ? 4 : 5) + 1; }

  // Two nodes a value, in and out; the edge between them costs what keeping the value costs.
  void find_saved() {
    const int count = static_cast<int>(graph_.values().size()), from = 2 * count, to = from + 1;
    MinCut cut(2 * count + 2);
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::forward || source(op)) continue;
      for (ValueId result : op.results) {
        const int in = 2 * static_cast<int>(result), out = in + 1;
        // A view is no value of its own: what it shows is kept or nothing.
        cut.edge(in, out, along(op) ? MinCut::kInfinite : price(result));
        if (!cheap(op)) cut.edge(from, in, MinCut::kInfinite);
        for (ValueId operand : op.operands) {
          if (cheap(op) && operand != kNone && !source(graph_.maker(operand)))
            cut.edge(2 * static_cast<int>(operand) + 1, in, MinCut::kInfinite);
        }
        if (wanted_[result]) cut.edge(out, to, MinCut::kInfinite);
      }
    }
    cut.run(from, to);
    const std::vector<bool> late = cut.sink_side(to);
    saved_.assign(graph_.values().size(), false);
    for (size_t value = 0; value < saved_.size(); ++value) saved_[value] = !late[2 * value] && late[2 * value + 1];
  }

  void backward(const Op& op) {
    std::vector<ValueId> operands;
    for (ValueId operand : op.operands)
      operands.push_back(operand != kNone && forward(operand) ? made_again(operand) : rw_(operand));
    rw_.copy_on(op, std::move(operands));
  }

  // The value as the backward may read it: kept, free, or made again (once) from such.
  ValueId made_again(ValueId value) {
    const Op& op = graph_.maker(value);
    if (saved_[value] || source(op) || !cheap(op)) return rw_(value);
    if (again_[value] != kNone) return again_[value];
    std::vector<ValueId> operands;
    bool changed = false;
    for (ValueId operand : op.operands) {
      operands.push_back(operand == kNone ? kNone : made_again(operand));
      changed = changed || operands.back() != rw_(operand);
    }
    // A view of something kept is the view that is there.
    if (along(op) && !changed) return again_[value] = rw_(value);
    rw_.at(op);
    rw_.b().set_phase(Phase::recompute);
    const Op& made = rw_.b().op(*op.def, std::move(operands), op.attrs, names_of(op));
    for (size_t i = 0; i < op.results.size(); ++i) again_[op.results[i]] = made.results[i];
    return again_[value];
  }

  std::vector<std::string> names_of(const Op& op) const {
    std::vector<std::string> names;
    for (ValueId result : op.results) names.push_back(graph_.value(result).name);
    return names;
  }

  const Graph& graph_;
  const Storage& storage_;
  Graph out_;
  ir::Rewriter rw_;
  std::vector<bool> wanted_, stored_, saved_;
  std::vector<ValueId> again_;
};

}  // namespace

PassInfo recompute_pass() {
  PassInfo info;
  info.name = "recompute";
  info.summary = "Keeps of the forward what costs least bytes and makes the rest again in the backward.";
  info.options = {"mode", "narrow"};
  info.run = [](const Graph& graph, PassContext& ctx) {
    const std::string mode = ctx.option("mode", "cheap");
    if (mode == "none") return graph;
    if (mode != "cheap") throw ir::UserError({}, "recompute: mode is none or cheap, not '" + mode + "'");
    return Recompute(graph, Storage(graph, storage_options(graph, ctx))).run();
  };
  return info;
}

}  // namespace ingot::passes
