// cse: computes equal things once. Ops are equal when definition, attributes (to the bit), operands and phase agree; the
// operands of commutative ops in any order. Reads of one variable are one, whatever their phase.
//
//   %a = exp(%x): f32[2]                 %a = exp(%x): f32[2]
//   %b = exp(%x): f32[2]           =>    %c = add(%a, %a): f32[2]
//   %c = add(%a, %b): f32[2]
//
// Only within one phase: a forward op built again for the backward (phase `recompute`) must not be merged with what it
// spares the memory of.
#include <algorithm>

#include "ir/base/text.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::Op;
using ir::ValueId;

class Cse {
 public:
  explicit Cse(const Graph& graph) : graph_(graph), out_(like(graph)), rw_(graph, out_) {}

  Graph run() {
    for (const Op& op : graph_.ops()) visit(op);
    rw_.finish();
    return std::move(out_);
  }

 private:
  std::vector<ValueId> operands(const Op& op) const {
    std::vector<ValueId> mapped;
    for (ValueId operand : op.operands) mapped.push_back(rw_(operand));
    if (commutative(op)) std::sort(mapped.begin(), mapped.end());
    return mapped;
  }

  static bool source(const Op& op) { return std::holds_alternative<ir::SourceLowering>(op.def->lowering); }

  std::string key(const Op& op, const std::vector<ValueId>& mapped) const {
    std::string text = op.def->name;
    text += source(op) ? '*' : static_cast<char>('0' + static_cast<int>(op.phase));
    for (ValueId id : mapped) text += ' ' + std::to_string(id);
    for (const auto& [name, value] : op.attrs) text += ';' + name + '=' + ir::attr_text(value);
    return text;
  }

  // The text of a key may coincide (it writes all NaNs alike); equality decides.
  bool equal(const Op& placed, const Op& op, const std::vector<ValueId>& mapped) const {
    if (placed.def != op.def || placed.attrs != op.attrs) return false;
    std::vector<ValueId> there = placed.operands;
    if (commutative(op)) std::sort(there.begin(), there.end());
    if (there != mapped) return false;
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (out_.type(placed.results[i]) != graph_.type(op.results[i])) return false;
    }
    return true;
  }

  void visit(const Op& op) {
    // Inputs are told apart by name alone and never repeat; regions are units of their own.
    if (op.name() == "input" || op.region) return rw_.copy(op);
    const std::vector<ValueId> mapped = operands(op);
    std::vector<ir::OpId>& alike = seen_[key(op, mapped)];
    for (ir::OpId id : alike) {
      const Op& placed = out_.op(id);
      if (!equal(placed, op, mapped)) continue;
      for (size_t i = 0; i < op.results.size(); ++i) rw_.map(op.results[i], placed.results[i]);
      return;
    }
    rw_.copy(op);
    alike.push_back(static_cast<ir::OpId>(out_.ops().size() - 1));
  }

  const Graph& graph_;
  Graph out_;
  ir::Rewriter rw_;
  std::unordered_map<std::string, std::vector<ir::OpId>> seen_;
};

}  // namespace

PassInfo cse_pass() {
  return {"cse", "Computes equal things once, within one phase.", {}, false, [](const Graph& graph, PassContext&) {
            return Cse(graph).run();
          }};
}

}  // namespace ingot::passes
