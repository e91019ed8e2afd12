// autocast{dtype=bf16}: activations and parameters to the compute dtype; parameters stay f32 where they live.
//
//   param %w: f32[8, 8]                  param %w: f32[8, 8]
//   %y = linear(%x, %w): f32[4, 8]       %x.bf16 = cast(%x) {dtype: bf16}       one cast per value, at its first use
//                                  =>    %w.bf16 = cast(%w) {dtype: bf16}
//                                        %y = linear(%x.bf16, %w.bf16): bf16[4, 8]
//
// What an op makes is what its inference says of operands in the compute dtype; so losses, row statistics and states come
// out in f32 where the op says so. Exceptions:
//   - numbers of rank 0 stay f32: as operands they are weak, and a scalar result (a loss written by hand) is computed in f32
//   - a pinned value (module.precision.pin, by name) is computed in f32 from f32 and is used as f32
//   - a pinned parameter is used as f32; gemms need one dtype, so their other operand follows a pinned parameter up, while
//     a pinned value comes down to an unpinned one
//   - carried states keep their own dtype; integers and bools are left alone; a cast the author wrote stays what it is
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/base/text.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::Type;
using ir::ValueId;

// How an operand is given to an op.
enum class As { is, compute, f32 };

class Autocast {
 public:
  Autocast(const Graph& graph, PassContext& context, DType dtype)
      : graph_(graph), module_(context.module), dtype_(dtype), out_(like(graph)), rw_(graph, out_) {}

  Graph run() {
    for (const Op& op : graph_.ops()) visit(op);
    for (const ir::Output& output : graph_.outputs()) out_.add_output({output.name, rw_(output.value), output.loc});
    for (const ir::Update& update : graph_.updates()) {
      // A variable holds the dtype it was declared with.
      const ir::Variable* variable = module_.find_variable(update.variable);
      const ValueId value = rw_(update.value);
      out_.add_update({update.variable, variable ? in_dtype(value, variable->type.dtype) : value, update.loc});
    }
    return std::move(out_);
  }

 private:
  bool pinned_name(const std::string& name) const {
    const auto& pins = module_.precision.pin;
    return std::any_of(pins.begin(), pins.end(), [&](const std::string& pin) { return ir::glob_match(pin, name); });
  }
  // By the old value: the author's names are what pins speak of.
  bool pinned(ValueId old) const { return pinned_name(graph_.value(old).name) || pinned_name(read_variable(graph_.maker(old))); }
  bool pinned_parameter(ValueId old) const { return !read_variable(graph_.maker(old)).empty() && pinned(old); }

  bool casts(ValueId old) const { return old != kNone && ir::is_float(graph_.type(old).dtype) && graph_.type(old).rank() > 0; }

  void visit(const Op& op) {
    const bool source = std::holds_alternative<ir::SourceLowering>(op.def->lowering);
    if (source || op.name() == "cast" ||
        std::none_of(op.operands.begin(), op.operands.end(), [&](ValueId o) { return casts(o); })) {
      return as_it_is(op, source);
    }
    const bool pin =
        std::any_of(op.results.begin(), op.results.end(), [&](ValueId r) { return pinned_name(graph_.value(r).name); });
    if (pin) return place(op, all(op, As::f32));
    std::vector<As> wish = wishes(op);
    if (!fits(op, wish)) wish = one_dtype(op);
    if (!fits(op, wish)) wish = all(op, As::f32);
    if (makes_narrow_scalar(op, wish)) wish = all(op, As::f32);
    place(op, wish);
  }

  void as_it_is(const Op& op, bool source) {
    if (source) return rw_.copy(op);
    std::vector<ValueId> operands;
    for (ValueId operand : op.operands) operands.push_back(rw_(operand));
    rw_.copy_with(op, std::move(operands), op.attrs);
  }

  std::vector<As> all(const Op& op, As as) const {
    std::vector<As> list;
    for (ValueId operand : op.operands) list.push_back(casts(operand) ? as : As::is);
    return list;
  }

  std::vector<As> wishes(const Op& op) const {
    std::vector<As> list;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId old = op.operands[i];
      const bool port = op.def->operands[std::min(i, op.def->operands.size() - 1)].port;
      list.push_back(!casts(old) || port ? As::is : pinned(old) ? As::f32 : As::compute);
    }
    return list;
  }

  std::vector<As> one_dtype(const Op& op) const {
    const bool up =
        std::any_of(op.operands.begin(), op.operands.end(), [&](ValueId o) { return casts(o) && pinned_parameter(o); });
    return all(op, up ? As::f32 : As::compute);
  }

  Type type_as(ValueId old, As as) const {
    Type type = out_.type(rw_(old));
    if (as != As::is) type.dtype = as == As::f32 ? DType::f32 : dtype_;
    return type;
  }

  // The op on inputs of those types, in a graph of its own; nullopt when inference refuses them.
  std::optional<Graph> trial(const Op& op, const std::vector<As>& wish) const {
    Graph scratch("trial", graph_.level());
    ir::Builder b(scratch);
    std::vector<ValueId> operands;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId old = op.operands[i];
      operands.push_back(old == kNone ? kNone : b.input("a" + std::to_string(i), type_as(old, wish[i])));
    }
    try {
      b.op(*op.def, operands, op.attrs);
    } catch (const ir::UserError&) {
      return std::nullopt;
    }
    return scratch;
  }

  static bool mixed_gemm(const Graph& graph, const Op& op) {
    return ir::lowering_as<ir::GemmLowering>(op) && graph.type(op.operands[0]).dtype != graph.type(op.operands[1]).dtype;
  }

  // Inference accepts the types, and no gemm in what the op is made of meets two dtypes.
  bool fits(const Op& op, const std::vector<As>& wish) const {
    std::optional<Graph> scratch = trial(op, wish);
    if (!scratch) return false;
    if (std::none_of(wish.begin(), wish.end(), [](As as) { return as == As::f32; })) return true;
    const Op made = scratch->ops().back();
    const auto* composite = ir::lowering_as<ir::DecomposeLowering>(made);
    if (composite) {
      ir::Builder b(*scratch);
      ir::DecomposeContext context{b, made, made.operands, std::vector<bool>(made.results.size(), true), {}};
      for (ValueId result : made.results) context.result_types.push_back(scratch->type(result));
      composite->build(context);
    }
    return std::none_of(scratch->ops().begin(), scratch->ops().end(),
                        [&](const Op& piece) { return mixed_gemm(*scratch, piece); });
  }

  bool makes_narrow_scalar(const Op& op, const std::vector<As>& wish) const {
    const std::optional<Graph> scratch = trial(op, wish);
    if (!scratch) return false;
    const std::vector<ValueId>& results = scratch->ops().back().results;
    return std::any_of(results.begin(), results.end(), [&](ValueId r) { return scratch->type(r) == Type{dtype_, {}}; });
  }

  void place(const Op& op, const std::vector<As>& wish) {
    std::vector<ValueId> operands;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId old = op.operands[i];
      ValueId now = rw_(old);
      if (wish[i] != As::is) now = in_dtype(now, wish[i] == As::f32 ? DType::f32 : dtype_);
      operands.push_back(now);
    }
    rw_.copy_with(op, std::move(operands), op.attrs);
  }

  // One cast per value and dtype.
  ValueId in_dtype(ValueId now, DType dtype) {
    if (out_.type(now).dtype == dtype) return now;
    const auto [at, fresh] = casts_.try_emplace({now, dtype}, kNone);
    if (!fresh) return at->second;
    const Op& maker = out_.maker(now);
    ir::Builder& b = rw_.b();
    b.set_loc(ir::derived(maker.loc, "autocast"));
    b.set_phase(maker.phase);
    b.set_name(out_.value(now).name + "." + std::string(ir::dtype_name(dtype)));
    return at->second = b.cast(now, dtype);
  }

  const Graph& graph_;
  const ir::Module& module_;
  DType dtype_;
  Graph out_;
  ir::Rewriter rw_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

Graph run(const Graph& graph, PassContext& context) {
  const std::string name = context.option("dtype", "bf16");
  const auto dtype = ir::dtype_from_name(name);
  if (!dtype || !ir::is_float(*dtype)) {
    throw ir::UserError(ir::Loc{}, fmt::format("autocast: dtype must be f32, bf16 or f16, but is '{}'", name));
  }
  if (*dtype == DType::f32) return graph;
  ir::check(graph.level() == ir::Level::model, "autocast: stands after autodiff or decompose");
  return Autocast(graph, context, *dtype).run();
}

}  // namespace

PassInfo autocast_pass() { return {"autocast", "Computes in a 16-bit dtype what is not pinned to f32.", {"dtype"}, true, run}; }

}  // namespace ingot::passes
