#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  c.need_integer(0);
  c.need_float(1);
  c.need_rank(1, 2);
  Shape shape = c.type(0).shape;
  shape.push_back(c.type(1).shape[1]);
  c.result({c.type(1).dtype, shape});
}

void reference(ReferenceContext& c) {
  const Tensor& table = c.operand(1);
  const int64_t rows = table.type.shape[0];
  const int64_t width = table.type.shape[1];
  size_t at = 0;
  for (const double id : c.operand(0).data) {
    const int64_t row = static_cast<int64_t>(id);
    if (row < 0 || row >= rows) {
      throw UserError(c.op.loc, "embedding: id " + std::to_string(row) + " is outside 0.." + std::to_string(rows - 1));
    }
    for (int64_t i = 0; i < width; ++i) c.result(0).data[at++] = table.data[static_cast<size_t>(row * width + i)];
  }
}

void gradient(GradientContext& c) {
  if (!c.wants(1)) return;
  Attrs attrs;
  attrs.set("rows", c.b().shape(c.operand(1))[0]);
  c.set(1, c.b().make("embedding_grad", {c.operand(0), c.grad(0)}, std::move(attrs)));
}

}  // namespace

void define_embedding(OpTable& table);
void define_embedding(OpTable& table) {
  OpDef& op = table.add("embedding");
  op.summary =
      "Rows of a table: y[..., :] = table[ids[...], :]. Ids are checked against the range of their input when data arrives.";
  op.operand("ids", "integers from 0 to the number of rows - 1");
  op.operand("table", "[rows, width]");
  op.result("y", "the shape of ids and one axis more, of width");
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = GatherLowering{};
  op.flops = no_flops;
  op.examples = {{"range i 0..4\ninput %i: i32[2, 3]\ninput %t: f32[5, 4]\n%y = embedding(%i, %t): f32[2, 3, 4]"},
                 {"range i 0..3\ninput %i: i64[6]\ninput %t: bf16[4, 3]\n%y = embedding(%i, %t): bf16[6, 3]"},
                 {"input %i: i32[]\ninput %t: f32[4, 2]\n%y = embedding(%i, %t): f32[2]"}};
  op.rejects = {
      {"input %i: f32[2]\ninput %t: f32[5, 4]\n%y = embedding(%i, %t): f32[2, 4]", "ids must hold integers, but %i is f32[2]"},
      {"input %i: i32[2]\ninput %t: f32[5]\n%y = embedding(%i, %t): f32[2]", "table must have 2 axes, but %t is f32[5]"},
      {"input %i: i32[2]\ninput %t: i32[5, 4]\n%y = embedding(%i, %t): i32[2, 4]", "table must hold floats"}};
}

}  // namespace ingot::ir
