// and, or, not of bools.
#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  for (int i = 0; i < c.operand_count(); ++i) need_bool(c, i);
  c.result({DType::boolean, c.broadcast_all()});
}

OpDef& define(OpTable& table, const char* name, const char* summary, const char* body) {
  OpDef& op = table.add(name);
  op.summary = summary;
  op.operand("a", "bools");
  op.result("y", "bool, the broadcast shape");
  op.infer = infer;
  op.gradient_is_zero = true;
  op.lowering = ScalarLowering{{body}};
  return op;
}

void add_binary_texts(OpDef& op) {
  op.operand("b", "bools of a shape that broadcasts with a's");
  op.examples = {{"input %a: bool[2, 3]\ninput %b: bool[2, 3]\n%y = " + op.name + "(%a, %b): bool[2, 3]"},
                 {"input %a: bool[2, 3]\ninput %b: bool[3]\n%y = " + op.name + "(%a, %b): bool[2, 3]"}};
  op.rejects = {{"input %a: bool[2]\ninput %b: f32[2]\n%y = " + op.name + "(%a, %b): bool[2]", "needs a bool, but %b is f32[2]"},
                {"input %a: bool[2]\ninput %b: bool[3]\n%y = " + op.name + "(%a, %b): bool[3]", "%b is bool[3]"}};
}

}  // namespace

void define_logical(OpTable& table);
void define_logical(OpTable& table) {
  OpDef& both = define(table, "logical_and", "Elementwise, broadcasting from the right: are a and b both true?", "a0 && a1");
  add_binary_texts(both);
  both.reference = [](ReferenceContext& c) {
    elementwise_reference(c, [](const double* in, double* out) { out[0] = in[0] != 0 && in[1] != 0; });
  };

  OpDef& either = define(table, "logical_or", "Elementwise, broadcasting from the right: is a or b true, or both?", "a0 || a1");
  add_binary_texts(either);
  either.reference = [](ReferenceContext& c) {
    elementwise_reference(c, [](const double* in, double* out) { out[0] = in[0] != 0 || in[1] != 0; });
  };

  OpDef& no = define(table, "logical_not", "Elementwise: is a false?", "!a0");
  no.reference = [](ReferenceContext& c) {
    elementwise_reference(c, [](const double* in, double* out) { out[0] = in[0] == 0; });
  };
  no.examples = {{"input %a: bool[2, 3]\n%y = logical_not(%a): bool[2, 3]"}};
  no.rejects = {{"input %a: f32[2]\n%y = logical_not(%a): bool[2]", "needs a bool, but %a is f32[2]"}};
}

}  // namespace ingot::ir
