#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

void infer(InferContext& c) {
  c.need_integer(0);
  c.need_float(1);
  const int64_t rows = c.attrs().integer("rows");
  if (rows < 1) c.fail("rows must be at least 1, but it is " + std::to_string(rows));
  const Shape& shape = c.type(1).shape;
  if (shape.empty() || Shape(shape.begin(), shape.end() - 1) != c.type(0).shape) {
    c.fail("there must be one row an id, but " + c.show(0) + " and " + c.show(1));
  }
  c.result({DType::f32, {rows, shape.back()}});
}

void reference(ReferenceContext& c) {
  const Tensor& rows = c.operand(1);
  const int64_t width = rows.type.shape.back();
  size_t at = 0;
  for (const double id : c.operand(0).data) {
    const int64_t row = static_cast<int64_t>(id);
    if (row < 0 || row >= c.attrs.integer("rows")) {
      throw UserError(c.op.loc, "embedding_grad: id " + std::to_string(row) + " is outside 0.." +
                                    std::to_string(c.attrs.integer("rows") - 1));
    }
    for (int64_t i = 0; i < width; ++i) c.result(0).data[static_cast<size_t>(row * width + i)] += rows.data[at++];
  }
}

}  // namespace

void define_embedding_grad(OpTable& table);
void define_embedding_grad(OpTable& table) {
  OpDef& op = table.add("embedding_grad");
  op.summary =
      "The gradient of embedding's table: y[v, :] = the sum of grads[...] over all positions where ids[...] = v, added in the "
      "order "
      "of the positions, without atomics; zero for rows nobody names.";
  op.operand("ids", "integers from 0 to rows - 1");
  op.operand("grads", "the gradient of embedding's result: the shape of ids and one axis more");
  op.attr("rows", AttrKind::integer, "rows of the table");
  op.result("y", "f32 [rows, width]");
  op.levels = kTrainUp;
  op.infer = infer;
  op.reference = reference;
  op.lowering = PutLowering{};
  op.flops = [](const Graph& graph, const Op& made) { return static_cast<double>(graph.type(made.operands[1]).elements()); };
  op.examples = {{"range i 0..5\ninput %i: i32[2, 4]\ninput %g: f32[2, 4, 3]\n%y = embedding_grad(%i, %g) {rows: 6}: f32[6, 3]",
                  -1, 1, false},
                 {"input %i: i64[5]\ninput %g: bf16[5, 2]\n%y = embedding_grad(%i, %g) {rows: 4}: f32[4, 2]", -1, 1, false},
                 {"input %i: i32[]\ninput %g: f32[2]\n%y = embedding_grad(%i, %g) {rows: 4}: f32[4, 2]", -1, 1, false}};
  op.rejects = {
      {"input %i: i32[2]\ninput %g: f32[3, 4]\n%y = embedding_grad(%i, %g) {rows: 4}: f32[4, 4]",
       "there must be one row an id, but %i is i32[2] and %g is f32[3, 4]"},
      {"input %i: i32[2]\ninput %g: f32[2, 4]\n%y = embedding_grad(%i, %g) {rows: 0}: f32[1, 4]", "rows must be at least 1"},
      {"input %i: f32[2]\ninput %g: f32[2, 4]\n%y = embedding_grad(%i, %g) {rows: 3}: f32[3, 4]", "ids must hold integers"}};
}

}  // namespace ingot::ir
