// configure: ops with hand-tuned kernels get the attributes the target wants for their types and shapes. It stands before
// autodiff, so that a gradient agrees with what its forward op saved.
//
//   %y, %s, %c = wkv7(..) {chunk: 32}: .., f32[4, 32, 128, 64, 64]
//        =>
//   %y, %s, %c = wkv7(..) {chunk: 64, saved_dtype: bf16}: .., bf16[4, 32, 64, 64, 64]        (what one GPU target answers)
//
// Without a target (`ingot opt`) everything stays as it is written.
#include "ir/graph/builder.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;

Graph run(const Graph& graph, PassContext& context) {
  if (context.kernel_attrs == nullptr || !*context.kernel_attrs) return graph;
  Graph out = like(graph);
  ir::Rewriter rw(graph, out);
  for (const ir::Op& op : graph.ops()) {
    if (!ir::lowering_as<ir::KernelLowering>(op)) {
      rw.copy(op);
      continue;
    }
    std::vector<ir::ValueId> operands;
    for (const ir::ValueId operand : op.operands) operands.push_back(rw(operand));
    rw.copy_with(op, std::move(operands), (*context.kernel_attrs)(graph, op));
  }
  rw.finish();
  return out;
}

}  // namespace

PassInfo configure_pass() {
  return {"configure", "Gives ops with hand-tuned kernels the attributes the target wants.", {}, false, run};
}

}  // namespace ingot::passes
