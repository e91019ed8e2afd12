// Comparisons, a row each.
#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

struct Row {
  const char* name;
  const char* sign;
  bool (*reference)(double, double);
  bool bools_too = false;
};

const Row kRows[] = {
    {"lt", "<", [](double a, double b) { return a < b; }},         {"le", "<=", [](double a, double b) { return a <= b; }},
    {"gt", ">", [](double a, double b) { return a > b; }},         {"ge", ">=", [](double a, double b) { return a >= b; }},
    {"eq", "==", [](double a, double b) { return a == b; }, true}, {"ne", "!=", [](double a, double b) { return a != b; }, true},
};

void infer(InferContext& c, bool bools_too) {
  const bool a = c.type(0).dtype == DType::boolean;
  const bool b = c.type(1).dtype == DType::boolean;
  if (!bools_too || a != b) {
    need_number(c, 0);
    need_number(c, 1);
  }
  c.result({DType::boolean, c.broadcast_all()});
}

void define_row(OpTable& table, const Row& row) {
  OpDef& op = table.add(row.name);
  op.summary = std::string("Elementwise, broadcasting from the right: is a ") + row.sign + " b? Its gradient is 0.";
  op.operand("a", row.bools_too ? "numbers, or bools" : "numbers");
  op.operand("b", "the same, of a shape that broadcasts with a's");
  op.result("y", "bool, the broadcast shape");
  op.infer = [bools_too = row.bools_too](InferContext& c) { infer(c, bools_too); };
  op.reference = [f = row.reference](ReferenceContext& c) {
    elementwise_reference(c, [f](const double* in, double* out) { out[0] = f(in[0], in[1]); });
  };
  op.gradient_is_zero = true;
  op.lowering = ScalarLowering{{std::string("a0 ") + row.sign + " a1"}};
  const auto call = [&](const std::string& a, const std::string& b, const std::string& y) {
    return "input %a: " + a + "\ninput %b: " + b + "\n%y = " + row.name + "(%a, %b): bool" + y;
  };
  op.examples = {{call("f32[2, 3]", "f32[3]", "[2, 3]")},
                 {"range a -2..2\nrange b -2..2\n" + call("i32[2, 3]", "i32[2, 1]", "[2, 3]")},
                 {call("bf16[4]", "f32[]", "[4]")},
                 {call("i32[4]", "f32[]", "[4]")}};
  if (row.bools_too) op.examples.push_back({call("bool[4]", "bool[4]", "[4]")});
  op.rejects = {{call("f32[2, 3]", "f32[2]", "[2, 3]"), "%b is f32[2]"},
                {call("bool[2]", "f32[2]", "[2]"), "needs numbers, but %a is bool[2]"}};
}

}  // namespace

void define_compare(OpTable& table);
void define_compare(OpTable& table) {
  for (const Row& row : kRows) define_row(table, row);
}

}  // namespace ingot::ir
