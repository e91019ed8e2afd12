// fuse: ops that share an iteration space become one region, one kernel each; what a region keeps to itself is never stored.
//
//   %d = sub(%s, %x): f32[2, 8, 64]                %k = fuse(%x, %m) {kind: "row", rows: 16} (%in0: .., %in1: ..) {
//   %e = mul(%d, %m): f32[2, 8, 64]          =>      %0 = shift_rows(%in0) ..
//   %k = add(%x, %e): f32[2, 8, 64]                  %1 = sub(%0, %in0) ..  %2 = mul(%1, %in1) ..  %3 = add(%in0, %2) ..
//   (%s = shift_rows(%x) {by: 1})                    yield %3 }: f32[2, 8, 64]
//
// Groups are found by the bytes they save (fusion_groups.h), never by patterns or names; what is legal in one group is what
// region.h can plan. With narrow=bf16 what crosses from one kernel to another is stored in bf16 (storage.h). Views travel into
// every region that reads through them. An op that stands alone and reads no view but contiguous ones stays as it is.
#include <algorithm>
#include <string>

#include "ir/graph/builder.h"
#include "passes/fusion_groups.h"
#include "passes/narrow.h"
#include "passes/passes.h"
#include "passes/region.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

class Fuser {
 public:
  Fuser(const Graph& graph, const Storage& storage, const std::vector<FusionGroup>& groups)
      : graph_(graph),
        storage_(storage),
        groups_(groups),
        stored_(crossing_values(graph, storage, groups)),
        out_(like(graph)),
        rw_(graph, out_) {
    out_.set_level(ir::Level::fused);
    for (const ir::Output& output : graph.outputs()) stored_[storage.base(output.value)] = true;
    for (const ir::Update& update : graph.updates()) stored_[storage.base(update.value)] = true;
  }

  Graph run() {
    for (const FusionGroup& group : groups_) {
      const bool alone = group.ops.size() == 1 && !reads_along(graph_.op(group.ops[0]));
      if (!group.fusible || alone) {
        for (OpId id : group.ops) copy(graph_.op(id));
      } else {
        region(group);
      }
    }
    for (const ir::Output& output : graph_.outputs()) need(output.value);
    for (const ir::Update& update : graph_.updates()) need(update.value);
    rw_.finish();
    return std::move(out_);
  }

 private:
  // What costs a launch unless a region reads through it: casts, and all views but contiguous ones.
  bool reads_along(const Op& op) const {
    for (ValueId operand : op.operands) {
      if (operand != kNone && costs_a_launch(graph_.maker(operand))) return true;
    }
    return false;
  }

  bool costs_a_launch(const Op& view) const {
    if (widens(graph_, view)) return true;
    const auto* lowering = ir::lowering_as<ir::ViewLowering>(view);
    if (!lowering) return false;
    const ValueId from = view.operands[0];
    return !lowering->map(graph_.type(from), graph_.type(view.results[0]), view.attrs).contiguous() ||
           costs_a_launch(graph_.maker(from));
  }

  // Views and constants are made where the first op outside the regions reads them.
  void need(ValueId value) {
    if (value == kNone || rw_.mapped(value)) return;
    copy(graph_.maker(value));
  }

  void copy(const Op& op) {
    for (ValueId operand : op.operands) need(operand);
    rw_.copy(op);
  }

  void region(const FusionGroup& group) {
    std::vector<ValueId> operands, results;
    const auto stored = [&](ValueId value) {
      return stored_[value] && !std::binary_search(group.copies.begin(), group.copies.end(), graph_.value(value).op);
    };
    Graph body = region_body(graph_, storage_, group.ops, stored, operands, results);
    body.set_level(ir::Level::fused);
    std::vector<ValueId> mapped;
    for (ValueId operand : operands) {
      need(operand);
      mapped.push_back(rw_(operand));
    }
    std::vector<std::string> names;
    for (ValueId result : results) names.push_back(graph_.value(result).name);
    rw_.at(graph_.op(group.ops.back()));
    const Op& placed = rw_.b().fuse(std::move(mapped), std::move(body), "row", std::move(names), group.rows);
    for (size_t i = 0; i < results.size(); ++i) rw_.map(results[i], placed.results[i]);
  }

  const Graph& graph_;
  const Storage& storage_;
  const std::vector<FusionGroup>& groups_;
  std::vector<bool> stored_;
  Graph out_;
  ir::Rewriter rw_;
};

Graph run(const Graph& graph, PassContext& ctx) {
  const Storage storage(graph, storage_options(graph, ctx));
  std::vector<FusionGroup> groups = find_fusion_groups(graph, storage, fusion_options(storage, ctx),
                                                       ctx.option("explain", "false") == "true" ? ctx.remarks : nullptr);
  if (!storage.options().narrow) return Fuser(graph, storage, groups).run();
  const Graph narrowed =
      write_narrowed(graph, storage, narrowed_values(graph, storage, crossing_values(graph, storage, groups)), groups);
  return Fuser(narrowed, Storage(narrowed, {}), groups).run();
}

}  // namespace

PassInfo fuse_pass() {
  PassInfo info;
  info.name = "fuse";
  info.summary = "Merges ops over one iteration space into regions, by the bytes that saves.";
  info.options = {"launch", "rows", "narrow", "explain"};
  info.run = run;
  return info;
}

}  // namespace ingot::passes
