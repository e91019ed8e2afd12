// canonicalize: one way to write each thing, so that cse, fold and fusion see equal things as equal. Every rewrite keeps the
// value of every element, NaN and signed zeros included: `x + 0` stays (it turns -0 into 0), `x - 0` goes.
//
//   %t = transpose(%w) {perm: [1, 0]}            (dead)
//   %y = matmul(%x, %t)                    =>    %y = matmul(%x, %w) {tb: true}
//   %z = mul(%c, %y)      %c constant            %z = mul(%y, %c)
//   %u = reshape(%z) {shape: %z's}               (uses of %u use %z)
//
// A rule looks at one op and what makes its operands. It gives another value, or another op to look at again; one sweep from
// the first op to the last is enough, because operands are in normal form before their users are looked at.
#include <algorithm>

#include "passes/canonical_rules.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::Op;
using ir::ValueId;

class Canonicalize {
 public:
  explicit Canonicalize(const Graph& graph) : graph_(graph), out_(like(graph)), rw_(graph, out_) {}

  Graph run() {
    for (const Op& op : graph_.ops()) visit(op);
    rw_.finish();
    return std::move(out_);
  }

 private:
  void visit(const Op& op) {
    if (op.results.size() != 1 || op.region || std::holds_alternative<ir::SourceLowering>(op.def->lowering)) return rw_.copy(op);
    Candidate now{op.def, {}, op.attrs, graph_.type(op.results[0])};
    for (ValueId operand : op.operands) now.operands.push_back(rw_(operand));
    bool changed = false;
    // Rules only ever remove or shorten, so this ends; the bound is there to say so.
    for (int round = 0; round < 100; ++round) {
      const Rewrite rewrite = apply_rules(out_, now);
      if (rewrite.value != ir::kNone) return rw_.map(op.results[0], rewrite.value);
      if (!rewrite.op) break;
      now = *rewrite.op;
      changed = true;
      ir::check(round < 99, "canonicalize: the rules go in circles at '" + std::string(op.name()) + "'");
    }
    if (!changed) return rw_.copy(op);
    rw_.at(op);
    const Op& placed = rw_.b().op(*now.def, now.operands, now.attrs, {graph_.value(op.results[0]).name});
    const ValueId result = placed.results[0];
    ir::check(out_.type(result) == now.type,
              "canonicalize: '" + now.def->name + "' became " + out_.type(result).text() + ", was " + now.type.text());
    rw_.map(op.results[0], result);
  }

  const Graph& graph_;
  Graph out_;
  ir::Rewriter rw_;
};

}  // namespace

PassInfo canonicalize_pass() {
  return {"canonicalize",
          "Brings every op to its normal form, keeping every value.",
          {},
          false,
          [](const Graph& graph, PassContext&) { return Canonicalize(graph).run(); }};
}

}  // namespace ingot::passes
