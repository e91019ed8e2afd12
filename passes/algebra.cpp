#include "passes/algebra.h"

#include "ir/graph/op_def.h"

namespace ingot::passes {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::ValueId;

namespace {

bool has_body(const Op& op, std::string_view body) {
  const auto* scalar = ir::lowering_as<ir::ScalarLowering>(op);
  return scalar && scalar->bodies.size() == 1 && scalar->bodies[0] == body;
}

}  // namespace

bool is_sum(const Op& op) { return has_body(op, "a0 + a1"); }
bool is_difference(const Op& op) { return has_body(op, "a0 - a1"); }
bool is_product(const Op& op) { return has_body(op, "a0 * a1"); }
bool is_negation(const Op& op) { return has_body(op, "-a0"); }

bool is_float_cast(const Graph& graph, const Op& op) {
  return has_body(op, "a0") && ir::is_float(graph.type(op.operands[0]).dtype) && ir::is_float(graph.type(op.results[0]).dtype);
}

bool is_widening(const Graph& graph, const Op& op) {
  if (!is_float_cast(graph, op)) return false;
  const ir::DType from = graph.type(op.operands[0]).dtype, to = graph.type(op.results[0]).dtype;
  return from == to || to == ir::DType::f32;
}

bool is_reshape(const Graph& graph, const Op& op) {
  const auto* view = ir::lowering_as<ir::ViewLowering>(op);
  if (!view) return false;
  const ir::Type &from = graph.type(op.operands[0]), &to = graph.type(op.results[0]);
  return from.elements() == to.elements() && view->map(from, to, op.attrs).contiguous();
}

bool is_gemm(const Op& op) { return ir::lowering_as<ir::GemmLowering>(op) != nullptr; }

ValueId gemm_addend(const Op& op) { return op.operands.size() > 2 ? op.operands[2] : kNone; }

bool adds_bias(const Graph& graph, const Op& gemm) {
  const ValueId addend = gemm_addend(gemm);
  return addend != kNone && graph.type(addend).rank() == 1;
}

std::vector<int> count_operands(const Graph& graph) {
  std::vector<int> readers(graph.values().size(), 0);
  for (const Op& op : graph.ops()) {
    for (const ValueId operand : op.operands) {
      if (operand != kNone) ++readers[operand];
    }
  }
  return readers;
}

ValueId in_shape(ir::Builder& b, ValueId value, const ir::Shape& shape) {
  for (ValueId seen = value;; seen = b.graph().maker(seen).operands[0]) {
    if (b.shape(seen) == shape) return seen;
    if (!is_reshape(b.graph(), b.graph().maker(seen))) return b.reshape(value, shape);
  }
}

}  // namespace ingot::passes
