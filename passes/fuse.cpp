// fuse: ops that share an iteration space become one region, one kernel each; what a region keeps to itself is never stored.
//
//   %d = sub(%s, %x): f32[2, 8, 64]                %k = fuse(%x, %m) {kind: "row", rows: 16} (%in0: .., %in1: ..) {
//   %e = mul(%d, %m): f32[2, 8, 64]          =>      %0 = shift_rows(%in0) ..
//   %k = add(%x, %e): f32[2, 8, 64]                  %1 = sub(%0, %in0) ..  %2 = mul(%1, %in1) ..  %3 = add(%in0, %2) ..
//   (%s = shift_rows(%x) {by: 1})                    yield %3 }: f32[2, 8, 64]
//
// Groups are found by the bytes they save (fusion_groups.h), never by patterns or names; what is legal in one group is what
// region.h can plan. Views travel into every region that reads through them. An op that stands alone and reads no view but
// contiguous ones stays as it is.
#include <string>
#include <unordered_map>

#include "ir/graph/builder.h"
#include "passes/fusion_groups.h"
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

// Batch times time: the elements of the first two-axis integer input, when there is one.
int64_t preferred_rows(const Graph& graph) {
  for (const Op& op : graph.ops()) {
    if (op.name() != "input") continue;
    const ir::Type& type = graph.type(op.results[0]);
    if (!is_float(type.dtype) && type.rank() == 2) return type.elements();
  }
  return 0;
}

class Fuser {
 public:
  Fuser(const Graph& graph, const std::vector<FusionGroup>& groups)
      : graph_(graph), groups_(groups), out_(like(graph)), rw_(graph, out_) {
    out_.set_level(ir::Level::fused);
  }

  Graph run() {
    for (const FusionGroup& group : groups_) {
      const bool alone = group.ops.size() == 1 && !reads_views(graph_.op(group.ops[0]));
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
  // Views that cost a launch unless a region reads through them: all but contiguous ones.
  bool reads_views(const Op& op) const {
    for (ValueId operand : op.operands) {
      if (operand != kNone && costs_a_launch(graph_.maker(operand))) return true;
    }
    return false;
  }

  bool costs_a_launch(const Op& view) const {
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
    Graph body = region_body(graph_, group.ops, operands, results);
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
  const std::vector<FusionGroup>& groups_;
  Graph out_;
  ir::Rewriter rw_;
};

}  // namespace

PassInfo fuse_pass() {
  PassInfo info;
  info.name = "fuse";
  info.summary = "Merges ops over one iteration space into regions, by the bytes that saves.";
  info.options = {"launch", "rows", "explain"};
  info.run = [](const Graph& graph, PassContext& ctx) {
    FusionOptions options;
    options.rows = std::stoll(ctx.option("rows", std::to_string(preferred_rows(graph))));
    options.launch_bytes = std::stod(ctx.option("launch", "10e6"));
    return Fuser(graph, find_fusion_groups(graph, options, ctx.option("explain", "false") == "true" ? ctx.remarks : nullptr))
        .run();
  };
  return info;
}

}  // namespace ingot::passes
