// bias: a vector added to every row of a product is added by the gemm, where a kernel would be launched for that alone.
//
//   %p = matmul(%x, %w): f32[64, 8]                     %y.rows = matmul(%x, %w, %b): f32[64, 8]
//   %1 = reshape(%p) {shape: [2, 32, 8]}         =>     %y = reshape(%y.rows) {shape: [2, 32, 8]}: f32[2, 32, 8]
//   %y = add(%1, %b): f32[2, 32, 8]
//   (%b: f32[8]; products or an output read %y)
//
// Whether the sum would be a kernel of its own is asked of fusion itself: groups are found as `fuse` will find them, and a sum is
// taken when all its group does is such sums, and at most their rounding. In any other group the addition costs nothing, and the
// product stays as it was. With narrow=bf16 the gemm makes what would have been stored; the sum is rounded once, where the
// product was rounded too before. Values that recompute makes a second time are taken alike or not at all, as they are rounded
// alike.
//
// kernels=true: sums that hand-written kernels read too. Without it they stay: the decay of RWKV-7 (w0 + tanh(x w1) w2, read by
// wkv7) is one: a kernel a layer less, but w0 would be rounded to the result's dtype where the library wants biases so, and the
// product could no longer be made together with its sibling, whose bias stands in a region.
//
// same_dtype=true: the target's gemms add a bias of their result's dtype only. A parameter gets a copy in that (by `prepare`:
// one small kernel an update for all biases that lie side by side, instead of one over the whole result for each); any other bias
// of another dtype would need a cast wherever it is read, and stays where it is.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "passes/algebra.h"
#include "passes/fusion_groups.h"
#include "passes/narrow.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

/// A sum that its gemm could make.
struct BiasSum {
  OpId gemm = 0;
  ValueId bias = kNone;    ///< of the product's columns, in whatever shape
  ValueId result = kNone;  ///< what is stored: the sum, or a cast of it
  DType dtype = DType::f32;
  size_t group = 0;
};

// ---------------------------------------------------------------- sums of a product and a bias

class BiasSums {
 public:
  BiasSums(const Graph& graph, bool kernels, bool same_dtype)
      : graph_(graph), readers_(count_operands(graph)), kernels_(kernels), same_dtype_(same_dtype) {}

  /// By sum: those that something reads which is in no region. What only row ops read is left to their regions.
  std::map<OpId, BiasSum> find() const {
    const std::vector<Readers> read_by = find_readers();
    std::map<OpId, BiasSum> found;
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      const Op& op = graph_.op(id);
      if (!is_sum(op) || !wanted(read_by[op.results[0]])) continue;
      for (const size_t side : {0, 1}) {
        const std::optional<OpId> gemm = gemm_behind(op.operands[side], op.phase);
        if (!gemm || !is_bias(op.operands[1 - side], op, *gemm)) continue;
        found[id] = {*gemm, op.operands[1 - side], op.results[0], graph_.type(op.results[0]).dtype};
        break;
      }
    }
    return found;
  }

  /// The bias as a gemm with a result of this dtype reads it, without a call for it: itself, what it was cast from, or a
  /// parameter to be cast. kNone: there is no such value.
  ValueId readable(ValueId bias, DType result) const {
    ValueId value = bias;
    for (;;) {
      const Op& op = graph_.maker(value);
      const bool cast = is_widening(graph_, op);
      if (cast && graph_.type(op.operands[0]).dtype != result) return kNone;
      if (!cast && !is_reshape(graph_, op)) break;
      value = op.operands[0];
    }
    const DType dtype = graph_.type(value).dtype;
    if (dtype != result && (dtype != DType::f32 || (same_dtype_ && read_variable(graph_.maker(value)).empty()))) return kNone;
    return lies_somewhere(value) ? value : kNone;
  }

 private:
  /// What reads a value, as it is or through views and casts.
  struct Readers {
    bool row_op = false, kernel = false, output = false;
    bool other = false;  ///< what is in no region either: a product, a gather
  };

  // Outputs count where nothing else reads: one that is asked for to look at something changes nothing.
  bool wanted(const Readers& by) const { return by.kernel ? kernels_ : by.other || (by.output && !by.row_op); }

  std::vector<Readers> find_readers() const {
    std::vector<Readers> read(graph_.values().size());
    for (const ir::Output& output : graph_.outputs()) read[output.value].output = true;
    for (auto id = static_cast<OpId>(graph_.ops().size()); id-- > 0;) {
      const Op& op = graph_.op(id);
      const Readers here = readers_of(op, read[op.results[0]]);
      for (const ValueId operand : op.operands) {
        if (operand == kNone) continue;
        Readers& by = read[operand];
        by = {by.row_op || here.row_op, by.kernel || here.kernel, by.output || here.output, by.other || here.other};
      }
    }
    return read;
  }

  // What reading by this op amounts to.
  Readers readers_of(const Op& op, const Readers& of_result) const {
    if (ir::lowering_as<ir::ViewLowering>(op) || is_float_cast(graph_, op)) return of_result;
    if (ir::lowering_as<ir::ScalarLowering>(op) || ir::lowering_as<ir::ReduceLowering>(op)) return {.row_op = true};
    const bool kernel = ir::lowering_as<ir::KernelLowering>(op) != nullptr;
    return {.kernel = kernel, .other = !kernel};
  }

  // The gemm of this phase whose product, in another shape or dtype, is the value, if nobody else reads it and it adds nothing.
  std::optional<OpId> gemm_behind(ValueId value, ir::Phase phase) const {
    while (readers_[value] == 1) {
      const OpId id = graph_.value(value).op;
      const Op& op = graph_.op(id);
      if (is_gemm(op)) return gemm_addend(op) == kNone && op.phase == phase ? std::optional(id) : std::nullopt;
      if (!is_reshape(graph_, op) && !is_widening(graph_, op)) return std::nullopt;
      value = op.operands[0];
    }
    return std::nullopt;
  }

  // One number per column of the product: spread over the last axes of the sum, which are the columns.
  bool is_bias(ValueId value, const Op& sum, OpId gemm) const {
    const ir::Shape& all = graph_.type(sum.results[0]).shape;
    const ir::Shape& shape = graph_.type(value).shape;
    const auto first = std::find_if(shape.begin(), shape.end(), [](int64_t size) { return size != 1; });
    const auto axes = static_cast<size_t>(shape.end() - first);
    const int64_t columns = graph_.type(graph_.op(gemm).results[0]).shape.back();
    return graph_.type(value).elements() == columns && axes > 0 && axes <= all.size() &&
           std::equal(first, shape.end(), all.end() - static_cast<std::ptrdiff_t>(axes)) &&
           graph_.type(sum.results[0]).elements() == graph_.type(graph_.op(gemm).results[0]).elements();
  }

  // Does it stand in memory without a call made for a view of it or for a constant spread out?
  bool lies_somewhere(ValueId value) const {
    const Op& op = graph_.maker(value);
    if (ir::lowering_as<ir::SourceLowering>(op)) return true;
    if (const auto* view = ir::lowering_as<ir::ViewLowering>(op)) {
      const ValueId from = op.operands[0];
      return view->map(graph_.type(from), graph_.type(value), op.attrs).contiguous() && lies_somewhere(from);
    }
    return !ir::lowering_as<ir::GenerateLowering>(op) && !is_float_cast(graph_, op);
  }

  const Graph& graph_;
  const std::vector<int> readers_;
  const bool kernels_, same_dtype_;
};

// ---------------------------------------------------------------- which of them would be kernels of their own

/// Leaves those whose group does nothing else, each with what the group stores.
class OwnKernels {
 public:
  OwnKernels(const Graph& graph, const BiasSums& sums, const PassContext& context)
      : graph_(graph),
        sums_(sums),
        storage_(graph, storage_options(graph, context)),
        options_(fusion_options(storage_, context)) {}

  std::map<OpId, BiasSum> of(const std::map<OpId, BiasSum>& found) {
    const std::vector<FusionGroup> groups = find_fusion_groups(graph_, storage_, options_);
    crossing_ = crossing_values(graph_, storage_, groups);
    narrowed_ = narrowed_values(graph_, storage_, crossing_);
    std::map<OpId, int> groups_of;
    for (const FusionGroup& group : groups) {
      for (const OpId id : group.ops) ++groups_of[id];
    }
    std::map<OpId, BiasSum> taken;
    for (size_t group = 0; group < groups.size(); ++group) {
      const std::vector<OpId>& ops = groups[group].ops;
      const bool alone = std::all_of(ops.begin(), ops.end(), [&](OpId id) { return groups_of[id] == 1; });
      std::optional<std::map<OpId, BiasSum>> all = alone ? all_of(ops, found) : std::nullopt;
      if (!all) continue;
      for (auto& [id, sum] : *all) sum.group = group;
      taken.merge(*all);
    }
    while (drop_unlike_twins(taken)) {
    }
    return taken;
  }

 private:
  std::optional<std::map<OpId, BiasSum>> all_of(const std::vector<OpId>& ops, const std::map<OpId, BiasSum>& found) const {
    std::map<OpId, BiasSum> all;
    for (const OpId id : ops) {
      const Op& op = graph_.op(id);
      if (const auto sum = found.find(id); sum != found.end()) {
        all.insert(*sum);
      } else if (!stored_instead(op, all)) {
        return std::nullopt;
      }
    }
    for (auto& [id, sum] : all) {
      if (sum.result == graph_.op(id).results[0] && narrowed_[sum.result]) sum.dtype = *storage_.options().narrow;
      if (sums_.readable(sum.bias, sum.dtype) == kNone) return std::nullopt;
    }
    return all;
  }

  // The one rounding of a sum that is not stored itself.
  bool stored_instead(const Op& op, std::map<OpId, BiasSum>& all) const {
    if (!is_float_cast(graph_, op)) return false;
    const ValueId rounded = storage_.base(op.operands[0]);
    const auto sum = all.find(graph_.value(rounded).op);
    if (sum == all.end() || crossing_[rounded] || sum->second.result != rounded) return false;
    sum->second.result = op.results[0];
    sum->second.dtype = graph_.type(op.results[0]).dtype;
    return true;
  }

  // Twins of which one stays drop the others, and these what is in their groups, which stay then. Returns whether one was
  // dropped.
  bool drop_unlike_twins(std::map<OpId, BiasSum>& taken) const {
    std::set<uint32_t> staying;
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      if (is_sum(graph_.op(id)) && !taken.contains(id)) staying.insert(storage_.twins(graph_.op(id).results[0]));
    }
    std::set<size_t> groups;
    for (const auto& [id, sum] : taken) {
      if (staying.contains(storage_.twins(graph_.op(id).results[0]))) groups.insert(sum.group);
    }
    return std::erase_if(taken, [&](const auto& entry) { return groups.contains(entry.second.group); }) > 0;
  }

  const Graph& graph_;
  const BiasSums& sums_;
  const Storage storage_;
  const FusionOptions options_;
  std::vector<bool> crossing_, narrowed_;
};

// ---------------------------------------------------------------- writing it down

class Writer {
 public:
  Writer(const Graph& graph, const BiasSums& sums, const std::map<OpId, BiasSum>& taken, bool same_dtype)
      : graph_(graph), sums_(sums), same_dtype_(same_dtype), out_(like(graph)), rw_(graph, out_) {
    for (const auto& [id, sum] : taken) made_.emplace(graph.value(sum.result).op, sum);
  }

  // Products and sums whose readers are gone stay for outputs that name them.
  Graph run() {
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      const auto sum = made_.find(id);
      if (sum == made_.end()) {
        rw_.copy(graph_.op(id));
      } else {
        make(sum->second);
      }
    }
    rw_.finish();
    return without_dead(with_names(out_, names_));
  }

 private:
  void make(const BiasSum& sum) {
    const Op& gemm = graph_.op(sum.gemm);
    const ir::Type &own = graph_.type(gemm.results[0]), &type = graph_.type(sum.result);
    const std::string& name = graph_.value(sum.result).name;
    const bool narrowed = sum.dtype != type.dtype;
    const std::string stored = narrowed ? name + "." + std::string(ir::dtype_name(sum.dtype)) : name;
    ir::Builder& b = rw_.b();
    const ValueId bias = row(sum, own.shape.back());
    rw_.at(graph_.maker(sum.result));
    b.set_name(stored + (own.shape == type.shape ? "" : ".rows"));
    ir::Attrs attrs = gemm.attrs;
    if (sum.dtype != own.dtype || attrs.has("dtype")) attrs.set("dtype", sum.dtype);
    const ValueId product = b.op(*gemm.def, {rw_(gemm.operands[0]), rw_(gemm.operands[1]), bias}, std::move(attrs)).results[0];
    const ValueId shaped = b.reshape(product, type.shape);
    names_.try_emplace(shaped, stored);
    rw_.map(sum.result, narrowed ? b.cast(shaped, type.dtype) : shaped);
    names_.try_emplace(rw_(sum.result), name);
  }

  // The bias as one row.
  ValueId row(const BiasSum& sum, int64_t columns) {
    const ValueId found = sums_.readable(sum.bias, sum.dtype);
    const DType dtype = graph_.type(found).dtype;
    ir::Builder& b = rw_.b();
    rw_.at(graph_.maker(found));
    ValueId value = rw_(found);
    if (same_dtype_ && dtype != sum.dtype) {
      b.set_name(graph_.value(found).name + "." + std::string(ir::dtype_name(sum.dtype)));
      ValueId& cast = casts_.try_emplace({found, sum.dtype}, kNone).first->second;
      value = cast = cast == kNone ? b.cast(value, sum.dtype) : cast;
    }
    b.set_name(graph_.value(found).name + ".row");
    return in_shape(b, value, {columns});
  }

  const Graph& graph_;
  const BiasSums& sums_;
  const bool same_dtype_;
  Graph out_;
  ir::Rewriter rw_;
  std::map<OpId, BiasSum> made_;  ///< by the op whose result the gemm makes
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
  std::unordered_map<ValueId, std::string> names_;
};

/// nullopt: no gemm has a sum to take.
std::optional<Graph> taken_once(const Graph& graph, const PassContext& context, bool kernels, bool same_dtype) {
  const BiasSums sums(graph, kernels, same_dtype);
  const std::map<OpId, BiasSum> found = sums.find();
  if (found.empty()) return std::nullopt;
  const std::map<OpId, BiasSum> taken = OwnKernels(graph, sums, context).of(found);
  return taken.empty() ? std::nullopt : std::optional(Writer(graph, sums, taken, same_dtype).run());
}

bool flag(const PassContext& context, std::string_view name) {
  const std::string text = context.option(name, "false");
  if (text != "true" && text != "false") throw ir::UserError({}, fmt::format("bias: {} is true or false, not '{}'", name, text));
  return text == "true";
}

Graph run(const Graph& graph, PassContext& context) {
  const bool kernels = flag(context, "kernels"), same_dtype = flag(context, "same_dtype");
  if (graph.level() != ir::Level::core) return graph;
  Graph out = graph;
  // A sum made again for an output is one more.
  while (std::optional<Graph> next = taken_once(out, context, kernels, same_dtype)) out = std::move(*next);
  return out;
}

}  // namespace

PassInfo bias_pass() {
  return {"bias",
          "Lets gemms add what is added to every row of their product, where that would be a kernel of its own.",
          {"narrow", "rows", "launch", "kernels", "same_dtype"},
          false,
          run};
}

}  // namespace ingot::passes
