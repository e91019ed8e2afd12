// What ops mean to passes that rewrite sums and products: told from lowerings and scalar bodies, never from names.
#pragma once
#include <vector>

#include "ir/graph/builder.h"
#include "ir/graph/graph.h"

namespace ingot::passes {

/// Elementwise, of one scalar body: a0 + a1, a0 - a1, a0 * a1.
bool is_sum(const ir::Op& op);
bool is_difference(const ir::Op& op);
bool is_product(const ir::Op& op);
/// Elementwise -a0.
bool is_negation(const ir::Op& op);
/// From one float dtype to another.
bool is_float_cast(const ir::Graph& graph, const ir::Op& op);
/// A float cast that loses nothing.
bool is_widening(const ir::Graph& graph, const ir::Op& op);
/// A view that keeps every element where it is: the shape alone changes.
bool is_reshape(const ir::Graph& graph, const ir::Op& op);
bool is_gemm(const ir::Op& op);
/// The operand a gemm adds to its product, or kNone.
ir::ValueId gemm_addend(const ir::Op& op);
/// Is what a gemm adds a bias: one row, added to every row?
bool adds_bias(const ir::Graph& graph, const ir::Op& gemm);

/// Per value: how many operands name it.
std::vector<int> count_operands(const ir::Graph& graph);

/// `value` in this shape: a value it is a reshape of when that fits, else a new reshape.
ir::ValueId in_shape(ir::Builder& b, ir::ValueId value, const ir::Shape& shape);

}  // namespace ingot::passes
