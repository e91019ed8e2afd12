#include "ir/graph/op_def.h"

namespace ingot::ir {

void define_fuse(OpTable& table);
void define_fuse(OpTable& table) {
  OpDef& op = table.add("fuse");
  op.summary =
      "A region of ops that becomes one list of launches: its inputs are this op's operands, its outputs the results. Inside it "
      "nothing is stored, so arithmetic is f32 whatever the types say; only a cast rounds.";
  op.variadic_operand("inputs", "what the region reads");
  op.attr("kind", AttrKind::text, "which family of kernels it becomes");
  op.optional_attr("rows", AttrKind::integer, "rows of the iteration space (kind \"row\"); absent = the region's own");
  op.levels = kCoreUp;
  op.lowering = RegionLowering{};
  op.flops = [](const Graph&, const Op& made) {
    double total = 0;
    if (!made.region) return total;
    for (const Op& inner : made.region->ops()) {
      total += inner.def->flops ? inner.def->flops(*made.region, inner)
                                : static_cast<double>(made.region->type(inner.results[0]).elements());
    }
    return total;
  };
  op.examples = {
      {"graph @main at fused {\n"
       "input %x: bf16[2, 4]\n"
       "input %w: f32[4]\n"
       "%y = fuse(%x, %w) {kind: \"row\"} (%a: bf16[2, 4], %b: f32[4]) {\n"
       "  %0 = silu(%a): bf16[2, 4]\n"
       "  %1 = mul(%0, %b): f32[2, 4]\n"
       "  yield %1\n"
       "}: f32[2, 4]\n"
       "}",
       -1, 1, false}};
  op.rejects = {
      {"graph @main at fused {\n"
       "input %x: f32[2, 4]\n"
       "%y = fuse(%x) {kind: \"row\"} (%a: f32[2, 3]) {\n"
       "  %0 = silu(%a): f32[2, 3]\n"
       "  yield %0\n"
       "}: f32[2, 3]\n"
       "}",
       "[2, 3]"}};
}

}  // namespace ingot::ir
