// gemm_shape, add: what is added to a product is added by the gemm before the result is rounded and stored.
//
//   %h = matmul(%a, %w): bf16[64, 8]                    %x.rows = reshape(%x) {shape: [64, 8]}: f32[64, 8]
//   %1 = reshape(%h) {shape: [2, 32, 8]}         =>     %2 = matmul(%a, %w, %x.rows) {dtype: f32}: f32[64, 8]
//   %2 = cast(%1) {dtype: f32}                          %y = reshape(%2) {shape: [2, 32, 8]}: f32[2, 32, 8]
//   %y = add(%x, %2): f32[2, 32, 8]
//
// This is how residuals are added, how the products that make one gradient add up (each starts from the one before), and how
// accumulators are added to (with the update, in place). The product must have no other reader; between it and the sum only
// its shape may change and its dtype widen, so that one rounding, at most, is left out. A sum that gemms have taken over takes
// one more addend at its first product: (p + q) + x = (x + p) + q. Of two products the smaller one takes the other in. A product
// stays where it was when what it adds was there before it, else it moves to the sum.
#include <algorithm>
#include <map>
#include <set>

#include "passes/algebra.h"
#include "passes/gemm_rewrites.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

class AddIntoGemms {
 public:
  explicit AddIntoGemms(const Graph& graph)
      : graph_(graph), readers_(count_operands(graph)), out_(like(graph)), rw_(graph, out_), skip_(graph.ops().size(), false) {}

  Graph run() {
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      if (is_sum(graph_.op(id))) fold(id);
    }
    for (OpId id = 0; id < graph_.ops().size(); ++id) visit(id);
    for (const ir::Output& output : graph_.outputs()) out_.add_output({output.name, unchanged(output.value), output.loc});
    for (const ir::Update& update : graph_.updates()) out_.add_update({update.variable, unchanged(update.value), update.loc});
    return with_names(out_, names_);
  }

  bool made_again() const { return !again_.empty(); }

 private:
  /// What becomes of a gemm.
  struct Made {
    ValueId addend = kNone;
    ValueId result = kNone;  ///< the value it makes now: its own, or the sum it took over
  };
  /// A gemm seen from a value it makes; `between`: reshapes and casts on the way, empty when only the gemm's own.
  struct Source {
    OpId gemm = 0;
    std::vector<OpId> between;
  };

  OpId maker(ValueId value) const { return graph_.value(value).op; }

  // ---------------------------------------------------------------- which gemm takes over which sum

  void fold(OpId sum) {
    const Op& op = graph_.op(sum);
    const int first = takes_in(op);
    for (const int side : {first, 1 - first}) {
      if (!addable(op.operands[1 - side], op)) continue;
      if (take_over(sum, op.operands[side], op.operands[1 - side])) return;
    }
    for (const int side : {first, 1 - first}) {
      if (!addable(op.operands[1 - side], op)) continue;
      if (start_from(sum, op.operands[side], op.operands[1 - side])) return;
    }
  }

  // Which operand's product takes the other one in: of two products the smaller one, so that the larger one, which adds nothing,
  // can be made together with others like it (siblings.cpp); else the later, so that both can stand where they are.
  int takes_in(const Op& sum) const {
    const std::optional<Source> left = source_of(sum.operands[0], sum.phase), right = source_of(sum.operands[1], sum.phase);
    const double a = left ? operations(left->gemm) : 0, b = right ? operations(right->gemm) : 0;
    if (left && right && a != b) return a < b ? 0 : 1;
    return maker(sum.operands[0]) > maker(sum.operands[1]) ? 0 : 1;
  }
  double operations(OpId gemm) const { return graph_.op(gemm).def->flops(graph_, graph_.op(gemm)); }

  // A gemm adds what has its result's shape, in f32 or in its result's dtype.
  bool addable(ValueId addend, const Op& sum) const {
    const ir::Type &type = graph_.type(addend), &result = graph_.type(sum.results[0]);
    return type.shape == result.shape && (type.dtype == result.dtype || type.dtype == DType::f32);
  }

  // The product makes the sum itself.
  bool take_over(OpId sum, ValueId product, ValueId addend) {
    const Op& op = graph_.op(sum);
    const std::optional<Source> source = source_of(product, op.phase);
    if (!source || graph_.type(product).shape != graph_.type(op.results[0]).shape) return false;
    for (const OpId id : source->between) skip_[id] = true;
    skip_[sum] = true;
    made_[source->gemm] = {addend, op.results[0]};
    at_sum_[sum] = source->gemm;
    if (const std::optional<Source> other = source_of(addend, op.phase)) widen(*other, addend);
    return true;
  }

  // What only such a sum reads need not be rounded before it.
  void widen(const Source& source, ValueId result) {
    const ValueId own = graph_.op(source.gemm).results[0];
    if (graph_.type(own).dtype == graph_.type(result).dtype) return;
    for (const OpId id : source.between) skip_[id] = true;
    made_[source.gemm] = {kNone, result};
  }

  // The sum is there already once the first product of it starts from the addend.
  bool start_from(OpId sum, ValueId partial, ValueId addend) {
    const Op& op = graph_.op(sum);
    ValueId value = partial;
    while (readers_[value] == 1 && graph_.type(value) == graph_.type(op.results[0])) {
      const auto at = at_sum_.find(maker(value));
      if (at == at_sum_.end()) break;
      value = made_.at(at->second).addend;
    }
    if (value == partial || graph_.type(value) != graph_.type(op.results[0])) return false;
    const std::optional<Source> source = source_of(value, op.phase);
    if (!source || !before(addend, source->gemm)) return false;
    const ValueId own = graph_.op(source->gemm).results[0];
    if (graph_.type(own).dtype != graph_.type(op.results[0]).dtype && !made_.contains(source->gemm)) return false;
    Made& made = made_[source->gemm];
    made = {addend, made.result == kNone ? own : made.result};
    same_[sum] = partial;
    changed_.insert(own);
    for (const OpId id : source->between) changed_.insert(graph_.op(id).results[0]);
    for (ValueId v = partial;; v = made_.at(at_sum_.at(maker(v))).addend) {
      changed_.insert(v);
      if (v == value) break;
    }
    return true;
  }

  // The gemm of this phase behind a value nobody else reads, if it adds nothing yet.
  std::optional<Source> source_of(ValueId value, ir::Phase phase) const {
    Source source;
    while (readers_[value] == 1) {
      const OpId id = maker(value);
      const Op& op = graph_.op(id);
      if (is_gemm(op)) {
        const auto at = made_.find(id);
        const bool adds = gemm_addend(op) != kNone || (at != made_.end() && at->second.addend != kNone);
        if (adds || op.phase != phase) return std::nullopt;
        source.gemm = id;
        return source;
      }
      if (!is_reshape(graph_, op) && !is_widening(graph_, op)) return std::nullopt;
      source.between.push_back(id);
      value = op.operands[0];
    }
    return std::nullopt;
  }

  // Can this value stand before that op? Inputs and variables can stand anywhere.
  bool before(ValueId value, OpId op) const {
    if (maker(value) < op) return true;
    const Op& made_by = graph_.maker(value);
    if (ir::lowering_as<ir::SourceLowering>(made_by)) return true;
    return is_reshape(graph_, made_by) && before(made_by.operands[0], op);
  }

  // ---------------------------------------------------------------- writing it down

  void visit(OpId id) {
    if (const auto at = same_.find(id); at != same_.end()) {
      const ValueId sum = graph_.op(id).results[0];
      rw_.map(sum, rw_(at->second));
      names_[rw_(sum)] = graph_.value(sum).name;
    } else if (const auto gemm = made_.find(id); gemm != made_.end()) {
      if (available(gemm->second.addend)) make(id, gemm->second);
    } else if (const auto sum = at_sum_.find(id); sum != at_sum_.end()) {
      if (!rw_.mapped(graph_.op(id).results[0])) make(sum->second, made_.at(sum->second));
    } else if (!skip_[id] && !copied(id)) {
      rw_.copy(graph_.op(id));
    }
  }

  bool copied(OpId id) const {
    const auto& results = graph_.op(id).results;
    return !results.empty() && rw_.mapped(results[0]);
  }

  // A value as it was, for an output or update that names it: one that is part of a gemm now, or has another sum in it, is made
  // once more. So a debug output changes nothing else.
  ValueId unchanged(ValueId value) {
    if (rw_.mapped(value) && !changed_.contains(value)) return rw_(value);
    const auto [at, fresh] = again_.try_emplace(value, kNone);
    if (!fresh) return at->second;
    const Op& op = graph_.maker(value);
    std::vector<ValueId> operands;
    for (const ValueId operand : op.operands) operands.push_back(operand == kNone ? kNone : unchanged(operand));
    rw_.at(op);
    return again_[value] = rw_.b().op(*op.def, std::move(operands), op.attrs).results[0];
  }

  // Is the value made, or can it be made now?
  bool available(ValueId value) {
    if (value == kNone || rw_.mapped(value)) return true;
    const Op& op = graph_.maker(value);
    const bool anywhere = ir::lowering_as<ir::SourceLowering>(op) || (is_reshape(graph_, op) && available(op.operands[0]));
    if (anywhere) rw_.copy(op);
    return anywhere;
  }

  void make(OpId id, const Made& made) {
    const Op& gemm = graph_.op(id);
    const ir::Type &own = graph_.type(gemm.results[0]), &type = graph_.type(made.result);
    ir::Builder& b = rw_.b();
    rw_.at(graph_.maker(made.result));
    b.set_name(graph_.value(made.result).name + (own.shape == type.shape ? "" : ".rows"));
    std::vector<ValueId> operands{rw_(gemm.operands[0]), rw_(gemm.operands[1])};
    if (made.addend != kNone) operands.push_back(in_shape(b, rw_(made.addend), own.shape));
    ir::Attrs attrs = gemm.attrs;
    if (type.dtype != own.dtype) attrs.set("dtype", type.dtype);
    const ValueId product = b.op(*gemm.def, std::move(operands), std::move(attrs)).results[0];
    rw_.map(made.result, b.reshape(product, type.shape));
    names_.try_emplace(rw_(made.result), graph_.value(made.result).name);
  }

  const Graph& graph_;
  const std::vector<int> readers_;
  Graph out_;
  ir::Rewriter rw_;
  std::map<OpId, Made> made_;     ///< gemms that change
  std::map<OpId, OpId> at_sum_;   ///< sums taken over, and by which gemm
  std::map<OpId, ValueId> same_;  ///< sums that are there already, as that value
  std::set<ValueId> changed_;     ///< values with more in them than they had
  std::map<ValueId, ValueId> again_;
  std::vector<bool> skip_;  ///< ops that are part of a gemm now
  std::unordered_map<ValueId, std::string> names_;
};

}  // namespace

Graph add_into_gemms(const Graph& graph) {
  AddIntoGemms once(graph);
  Graph out = once.run();
  // What was made again for outputs may hold sums of its own.
  return once.made_again() ? add_into_gemms(out) : out;
}

}  // namespace ingot::passes
