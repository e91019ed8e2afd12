#include "passes/canonical_rules.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Attrs;
using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Shape;
using ir::ValueId;

using Axes = std::vector<int64_t>;

Rewrite same_as(ValueId value) { return {value, std::nullopt}; }
Rewrite become(Candidate op) { return {ir::kNone, std::move(op)}; }

/// The op that makes operand i, when it has that name.
const Op* made_by(const Graph& graph, const Candidate& op, size_t i, std::string_view name) {
  const Op& maker = graph.maker(op.operands[i]);
  return maker.name() == name ? &maker : nullptr;
}

/// The operand itself, when it is what the result would be typed as.
Rewrite operand_if_typed(const Graph& graph, const Candidate& op, size_t i) {
  return graph.type(op.operands[i]) == op.type ? same_as(op.operands[i]) : Rewrite{};
}

bool is_number(const Graph& graph, const Candidate& op, size_t i, double wanted) {
  const auto value = constant_value(graph, op.operands[i]);
  return value && std::bit_cast<uint64_t>(*value) == std::bit_cast<uint64_t>(wanted);
}

bool integers(const Candidate& op) { return op.type.dtype == DType::i32 || op.type.dtype == DType::i64; }

// ---------------------------------------------------------------- arithmetic

// Constants stand on the right of what commutes to the last bit; comparisons turn round. Of two values the order stays: it
// is the author's, and cse sorts for itself.
Rewrite constant_to_the_right(const Graph& graph, const Candidate& op) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kMirrors{{{"add", "add"},
                                                                                           {"mul", "mul"},
                                                                                           {"eq", "eq"},
                                                                                           {"ne", "ne"},
                                                                                           {"logical_and", "logical_and"},
                                                                                           {"logical_or", "logical_or"},
                                                                                           {"lt", "gt"},
                                                                                           {"gt", "lt"},
                                                                                           {"le", "ge"},
                                                                                           {"ge", "le"}}};
  const auto mirror = std::find_if(kMirrors.begin(), kMirrors.end(), [&](const auto& m) { return m.first == op.def->name; });
  if (mirror == kMirrors.end() || !constant_value(graph, op.operands[0]) || constant_value(graph, op.operands[1])) return {};
  Candidate turned = op;
  turned.def = &ir::op_def(mirror->second);
  std::swap(turned.operands[0], turned.operands[1]);
  return become(std::move(turned));
}

// x - 0, x + (-0), x * 1, x / 1; of integers also x + 0, which has only one zero there.
Rewrite neutral_constant(const Graph& graph, const Candidate& op) {
  if (op.operands.size() != 2 || !constant_value(graph, op.operands[1])) return {};
  const bool neutral = (op.is("sub") && is_number(graph, op, 1, 0.0)) || (op.is("add") && is_number(graph, op, 1, -0.0)) ||
                       ((op.is("mul") || op.is("div")) && is_number(graph, op, 1, 1.0)) ||
                       (op.is("add") && integers(op) && is_number(graph, op, 1, 0.0));
  return neutral ? operand_if_typed(graph, op, 0) : Rewrite{};
}

Rewrite double_negation(const Graph& graph, const Candidate& op) {
  if (!op.is("neg") && !op.is("logical_not")) return {};
  const Op* inner = made_by(graph, op, 0, op.def->name);
  return inner && graph.type(inner->operands[0]) == op.type ? same_as(inner->operands[0]) : Rewrite{};
}

// a + (-b) is a - b and a - (-b) is a + b, to the last bit.
Rewrite add_negation(const Graph& graph, const Candidate& op) {
  if (!op.is("add") && !op.is("sub")) return {};
  const Op* inner = made_by(graph, op, 1, "neg");
  if (!inner) return {};
  Candidate made = op;
  made.def = &ir::op_def(op.is("add") ? "sub" : "add");
  made.operands[1] = inner->operands[0];
  return become(std::move(made));
}

// select(c, x, x)
Rewrite select_of_equals(const Graph& graph, const Candidate& op) {
  if (!op.is("select") || op.operands[1] != op.operands[2]) return {};
  return operand_if_typed(graph, op, 1);
}

// Elementwise ops broadcast by themselves.
Rewrite broadcast_operand(const Graph& graph, const Candidate& op) {
  if (!std::holds_alternative<ir::ScalarLowering>(op.def->lowering) || op.operands.size() < 2) return {};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == ir::kNone) continue;
    const Op* inner = made_by(graph, op, i, "broadcast");
    if (!inner) continue;
    Candidate made = op;
    made.operands[i] = inner->operands[0];
    const auto types = try_infer(graph, *op.def, made.operands, made.attrs);
    if (types && types->size() == 1 && types->front() == op.type) return become(std::move(made));
  }
  return {};
}

// ---------------------------------------------------------------- casts

/// Does every value of `from` survive in `to`?
bool widens(DType from, DType to) {
  if (from == to || from == DType::boolean) return true;
  if (from == DType::bf16 || from == DType::f16) return to == DType::f32;
  return from == DType::i32 && to == DType::i64;
}

// A cast to its own dtype; a cast of a cast that lost nothing.
Rewrite plain_cast(const Graph& graph, const Candidate& op) {
  if (!op.is("cast")) return {};
  if (graph.type(op.operands[0]) == op.type) return same_as(op.operands[0]);
  const Op* inner = made_by(graph, op, 0, "cast");
  if (!inner || !widens(graph.type(inner->operands[0]).dtype, graph.type(op.operands[0]).dtype)) return {};
  Candidate made = op;
  made.operands[0] = inner->operands[0];
  return become(std::move(made));
}

// ---------------------------------------------------------------- views

// A view whose result is its operand: the same shape, and every element stays.
Rewrite idle_view(const Graph& graph, const Candidate& op) {
  const bool keeps_order = op.is("reshape") || op.is("broadcast") || op.is("slice") || op.is("repeat") || op.is("concat");
  if (keeps_order && (!op.is("concat") || op.operands.size() == 1)) return operand_if_typed(graph, op, 0);
  if (op.is("transpose")) {
    const Axes& perm = op.attrs.integers("perm");
    return std::is_sorted(perm.begin(), perm.end()) ? operand_if_typed(graph, op, 0) : Rewrite{};
  }
  if (op.is("shift_rows") && op.attrs.integer("by") == 0) return operand_if_typed(graph, op, 0);
  return {};
}

// reshape(reshape(x)); reshape of a transpose that only moves axes of length 1.
Rewrite reshape_of_view(const Graph& graph, const Candidate& op) {
  if (!op.is("reshape")) return {};
  Candidate made = op;
  if (const Op* inner = made_by(graph, op, 0, "reshape")) {
    made.operands[0] = inner->operands[0];
    return become(std::move(made));
  }
  return {};
}

// transpose(transpose(x)); a transpose that only moves axes of length 1 is a reshape.
Rewrite transpose_of_view(const Graph& graph, const Candidate& op) {
  if (!op.is("transpose")) return {};
  const Axes& perm = op.attrs.integers("perm");
  Candidate made = op;
  if (const Op* inner = made_by(graph, op, 0, "transpose")) {
    const Axes& first = inner->attrs.integers("perm");
    Axes joined;
    for (int64_t axis : perm) joined.push_back(first[static_cast<size_t>(axis)]);
    made.operands[0] = inner->operands[0];
    made.attrs.set("perm", joined);
    return become(std::move(made));
  }
  const Shape& shape = graph.type(op.operands[0]).shape;
  Axes moved;
  for (int64_t axis : perm) {
    if (shape[static_cast<size_t>(axis)] != 1) moved.push_back(axis);
  }
  if (!std::is_sorted(moved.begin(), moved.end())) return {};
  made.def = &ir::op_def("reshape");
  made.attrs = Attrs();
  made.attrs.set("shape", op.type.shape);
  return become(std::move(made));
}

Rewrite broadcast_of_broadcast(const Graph& graph, const Candidate& op) {
  const Op* inner = op.is("broadcast") ? made_by(graph, op, 0, "broadcast") : nullptr;
  if (!inner) return {};
  Candidate made = op;
  made.operands[0] = inner->operands[0];
  return become(std::move(made));
}

Rewrite slice_of_slice(const Graph& graph, const Candidate& op) {
  const Op* inner = op.is("slice") ? made_by(graph, op, 0, "slice") : nullptr;
  if (!inner) return {};
  Candidate made = op;
  Axes starts = op.attrs.integers("starts");
  const Axes& first = inner->attrs.integers("starts");
  for (size_t i = 0; i < starts.size(); ++i) starts[i] += first[i];
  made.operands[0] = inner->operands[0];
  made.attrs.set("starts", starts);
  return become(std::move(made));
}

// slice(concat(a, b, ...)) that takes exactly one part.
Rewrite slice_of_concat(const Graph& graph, const Candidate& op) {
  const Op* inner = op.is("slice") ? made_by(graph, op, 0, "concat") : nullptr;
  if (!inner) return {};
  const auto axis = static_cast<size_t>(inner->attrs.integer("axis"));
  const Axes& starts = op.attrs.integers("starts");
  int64_t at = 0;
  for (ValueId part : inner->operands) {
    if (at == starts[axis] && graph.type(part) == op.type) return same_as(part);
    at += graph.type(part).shape[axis];
  }
  return {};
}

// ---------------------------------------------------------------- gemms

// matmul reads an operand whose last two axes were swapped as it was.
Rewrite transpose_into_matmul(const Graph& graph, const Candidate& op) {
  if (!op.is("matmul")) return {};
  for (size_t i = 0; i < 2; ++i) {
    const Op* inner = made_by(graph, op, i, "transpose");
    if (!inner) continue;
    Axes perm = inner->attrs.integers("perm");
    if (perm.size() < 2) continue;
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    if (!std::is_sorted(perm.begin(), perm.end())) continue;
    Candidate made = op;
    const char* flag = i == 0 ? "ta" : "tb";
    made.operands[i] = inner->operands[0];
    made.attrs.set(flag, !op.attrs.boolean(flag));
    return become(std::move(made));
  }
  return {};
}

using Rule = Rewrite (*)(const Graph&, const Candidate&);
constexpr Rule kRules[] = {constant_to_the_right,  neutral_constant, double_negation, add_negation,         select_of_equals,
                           broadcast_operand,      plain_cast,       idle_view,       reshape_of_view,      transpose_of_view,
                           broadcast_of_broadcast, slice_of_slice,   slice_of_concat, transpose_into_matmul};

}  // namespace

Rewrite apply_rules(const Graph& graph, const Candidate& op) {
  for (const Rule rule : kRules) {
    Rewrite rewrite = rule(graph, op);
    if (rewrite.value != ir::kNone || rewrite.op) return rewrite;
  }
  return {};
}

}  // namespace ingot::passes
