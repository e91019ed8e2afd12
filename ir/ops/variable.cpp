#include "ir/graph/op_def.h"

namespace ingot::ir {

void define_variable(OpTable& table);
void define_variable(OpTable& table) {
  OpDef& op = table.add("variable");
  op.summary =
      "Reads a variable of the module (a parameter, state, hyper scalar or compute copy): what it held before the program "
      "ran, whatever `update` lines the graph has.";
  op.attr("name", AttrKind::text, "the variable's name");
  op.attr("role", AttrKind::text, "param, state, hyper or compute");
  op.result("value", "what the variable held before the program");
  op.levels = kEverywhere;
  op.lowering = SourceLowering{};
  op.flops = [](const Graph&, const Op&) { return 0.0; };
  op.examples = {{"param %w: f32[2, 3]\n%y = neg(%w): f32[2, 3]"}};
}

}  // namespace ingot::ir
