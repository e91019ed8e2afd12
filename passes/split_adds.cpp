// split_adds: a gemm adds only what has the dtype of its result, where the target's library knows no other.
//
//   %y = matmul(%a, %b, %c): bf16[8, 64]            %y = matmul(%a, %b, %c) {dtype: f32}: f32[8, 64]
//   (%c: f32[8, 64])                          =>    %y.2 = cast(%y) {dtype: bf16}: bf16[8, 64]
//
// The sum is rounded once, as before. Stands after fuse, which decides what is stored in 16 bits.
#include "ir/graph/builder.h"
#include "passes/algebra.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::ValueId;

bool adds_another_dtype(const Graph& graph, const ir::Op& op) {
  return ir::lowering_as<ir::GemmLowering>(op) && gemm_addend(op) != kNone &&
         graph.type(gemm_addend(op)).dtype != graph.type(op.results[0]).dtype;
}

Graph run(const Graph& graph, PassContext&) {
  Graph out = like(graph);
  ir::Rewriter rw(graph, out);
  for (const ir::Op& op : graph.ops()) {
    if (!adds_another_dtype(graph, op)) {
      rw.copy(op);
      continue;
    }
    std::vector<ValueId> operands;
    for (const ValueId operand : op.operands) operands.push_back(operand == kNone ? kNone : rw(operand));
    ir::Attrs attrs = op.attrs;
    attrs.set("dtype", graph.type(gemm_addend(op)).dtype);
    const ir::DType dtype = graph.type(op.results[0]).dtype;
    rw.copy_with(op, std::move(operands), std::move(attrs));
    const ValueId wide = rw(op.results[0]);
    rw.at(op);
    rw.b().set_name(graph.value(op.results[0]).name);
    rw.map(op.results[0], rw.b().cast(wide, dtype));
  }
  rw.finish();
  return out;
}

}  // namespace

PassInfo split_adds_pass() {
  return {"split_adds", "Rounds a gemm's sum apart where what it adds has another dtype than its result.", {}, true, run};
}

}  // namespace ingot::passes
