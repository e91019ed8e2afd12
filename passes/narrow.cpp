#include "passes/narrow.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "ir/graph/builder.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

class Writer {
 public:
  Writer(const Graph& graph, const Storage& storage, const std::vector<bool>& narrowed, std::vector<FusionGroup>& groups)
      : graph_(graph),
        storage_(storage),
        narrowed_(narrowed),
        groups_(groups),
        dtype_(*storage.options().narrow),
        out_(like(graph)),
        rw_(graph, out_),
        narrow_(graph.values().size(), kNone) {
    find_cast_names();
  }

  Graph run() {
    holders_.resize(graph_.ops().size());
    for (FusionGroup& group : groups_) {
      for (OpId id : group.ops)
        holders_[id].push_back({&group, std::binary_search(group.copies.begin(), group.copies.end(), id)});
      group.ops.clear();
      group.copies.clear();
    }
    for (OpId id = 0; id < graph_.ops().size(); ++id) visit(id);
    rw_.finish();
    return std::move(out_);
  }

 private:
  // The stored value takes over the name that the cast of it had.
  void find_cast_names() {
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      const Op& op = graph_.op(id);
      if (!storage_.along(id) || op.operands.size() != 1 || !narrowed_[op.operands[0]]) continue;
      if (graph_.type(op.results[0]).dtype == dtype_) cast_names_.try_emplace(op.operands[0], graph_.value(op.results[0]).name);
    }
  }

  void visit(OpId id) {
    const Op& op = graph_.op(id);
    // A cast that storing does anyway.
    if (storage_.along(id) && !op.operands.empty() && graph_.type(op.results[0]).dtype == dtype_ &&
        graph_.type(op.operands[0]).dtype != dtype_) {
      const ValueId shown = narrow(op.operands[0]);
      if (shown != kNone) return rw_.map(op.results[0], shown);
    }
    const bool rounds = op.results.size() == 1 && narrowed_[op.results[0]];
    if (std::holds_alternative<ir::GemmLowering>(op.def->lowering)) return product(id, rounds);
    rw_.copy(op);
    note(id);
    if (rounds) round(id, rw_(op.results[0]));
  }

  // The op just written belongs to every group that the old one did.
  void note(OpId id) {
    const auto made = static_cast<OpId>(out_.ops().size() - 1);
    for (const auto& [group, copy] : holders_[id]) {
      group->ops.push_back(made);
      if (copy) group->copies.push_back(made);
    }
  }

  // A gemm makes its result in the compute dtype itself, and reads what it adds as it is stored.
  void product(OpId id, bool rounds) {
    const Op& op = graph_.op(id);
    std::vector<ValueId> operands;
    for (ValueId operand : op.operands) operands.push_back(rw_(operand));
    const bool makes_narrow = rounds || graph_.type(op.results[0]).dtype == dtype_;
    if (makes_narrow && operands.size() > kGemmAddend && operands[kGemmAddend] != kNone) {
      const ValueId stored = narrow(op.operands[kGemmAddend]);
      if (stored != kNone) operands[kGemmAddend] = stored;
    }
    ir::Attrs attrs = op.attrs;
    if (rounds) attrs.set("dtype", dtype_);
    const ValueId made = rw_.copy_with(op, std::move(operands), std::move(attrs)).results[0];
    note(id);
    if (rounds) widen(op, made);
  }

  void round(OpId id, ValueId made) {
    const Op& op = graph_.op(id);
    rw_.at(op);
    const auto name = cast_names_.find(op.results[0]);
    const std::string suffix = "." + std::string(ir::dtype_name(dtype_));
    rw_.b().set_name(name != cast_names_.end() ? name->second : graph_.value(op.results[0]).name + suffix);
    const ValueId rounded = rw_.b().cast(made, dtype_);
    note(id);
    widen(op, rounded);
  }

  // What readers see from now on.
  void widen(const Op& op, ValueId stored) {
    narrow_[op.results[0]] = stored;
    rw_.at(op);
    rw_.b().set_name(graph_.value(op.results[0]).name + ".f32");
    rw_.map(op.results[0], rw_.b().cast(stored, DType::f32));
  }

  // The value in the compute dtype, when views and casts lead to one that is stored in it; kNone otherwise.
  ValueId narrow(ValueId value) {
    if (graph_.type(value).dtype == dtype_) return rw_(value);
    if (narrow_[value] != kNone) return narrow_[value];
    const Op& op = graph_.maker(value);
    if (!storage_.along(graph_.value(value).op) || op.operands.empty()) return kNone;
    const ValueId behind = narrow(op.operands[0]);
    if (behind == kNone || !std::holds_alternative<ir::ViewLowering>(op.def->lowering)) return narrow_[value] = behind;
    rw_.at(op);
    return narrow_[value] = rw_.b().op(*op.def, {behind}, op.attrs).results[0];
  }

  const Graph& graph_;
  const Storage& storage_;
  const std::vector<bool>& narrowed_;
  std::vector<FusionGroup>& groups_;
  const DType dtype_;
  Graph out_;
  ir::Rewriter rw_;
  std::vector<ValueId> narrow_;  ///< by old value: the new one in the compute dtype
  std::unordered_map<ValueId, std::string> cast_names_;
  struct Holder {
    FusionGroup* group;
    bool copy;
  };
  std::vector<std::vector<Holder>> holders_;  ///< per old op
};

}  // namespace

std::vector<bool> narrowed_values(const Graph& graph, const Storage& storage, const std::vector<bool>& crossing) {
  std::vector<bool> twins(graph.values().size(), false), narrowed(graph.values().size(), false);
  const auto round = [&](ValueId value) {
    if (storage.narrows(value)) twins[storage.twins(value)] = true;
  };
  for (ValueId value = 0; value < crossing.size(); ++value) {
    const Op& maker = graph.maker(value);
    const bool product = std::holds_alternative<ir::GemmLowering>(maker.def->lowering);
    if (crossing[value] || product) round(value);
    const bool cast = storage.along(graph.value(value).op) && !maker.operands.empty() &&
                      dtype_bytes(graph.type(value).dtype) < dtype_bytes(graph.type(maker.operands[0]).dtype);
    if (cast) round(storage.base(value));
  }
  for (ValueId value = 0; value < narrowed.size(); ++value)
    narrowed[value] = storage.narrows(value) && twins[storage.twins(value)];
  return narrowed;
}

Graph write_narrowed(const Graph& graph, const Storage& storage, const std::vector<bool>& narrowed,
                     std::vector<FusionGroup>& groups) {
  return Writer(graph, storage, narrowed, groups).run();
}

}  // namespace ingot::passes
