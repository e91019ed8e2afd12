#include "ir/graph/op_def.h"

namespace ingot::ir {

void define_input(OpTable& table);
void define_input(OpTable& table) {
  OpDef& op = table.add("input");
  op.summary =
      "A value given to the program from outside each time it runs (tokens, targets), or an operand of a region. Its name "
      "is how the outside knows it.";
  op.result("value", "what was given");
  op.levels = kEverywhere;
  op.lowering = SourceLowering{};
  op.flops = [](const Graph&, const Op&) { return 0.0; };
  op.examples = {{"input %x: f32[2, 3]\n%y = neg(%x): f32[2, 3]"}};
}

}  // namespace ingot::ir
