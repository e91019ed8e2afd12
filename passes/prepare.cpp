// prepare: what depends on parameters alone is computed once per update instead of in every program. A cast of a parameter
// becomes a `compute` variable; @prepare makes it after any load, and a program that updates the parameter renews it.
//
//   param %w: f32[8, 8]                  param %w: f32[8, 8]
//   %1 = cast(%w) {dtype: bf16}          compute %w.bf16: bf16[8, 8]
//   %y = matmul(%x, %1)            =>    %y = matmul(%x, %w.bf16)
//   update %w = %w.2                     optimizer %2 = cast(%w.2) {dtype: bf16}
//                                        update %w = %w.2
//                                        update %w.bf16 = %2
//
//   graph @prepare at core {
//     param %w: f32[8, 8]
//     %0 = cast(%w) {dtype: bf16}: bf16[8, 8]
//     update %w.bf16 = %0
//   }
//
// New values that are parts of one, side by side, are cast together, with what stands between them to the end of their rows.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "passes/packed.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::Op;
using ir::ValueId;

class Prepare {
 public:
  Prepare(const Graph& graph, PassContext& context) : graph_(graph), context_(context), out_(like(graph)), rw_(graph, out_) {}

  Graph run() {
    for (const Op& op : graph_.ops()) visit(op);
    rw_.finish();
    renew_copies();
    write_prepare();
    return without_dead(out_);
  }

 private:
  // The parameter this op is a cast of, or nullptr.
  const ir::Variable* cast_parameter(const Op& op) const {
    if (op.name() != "cast") return nullptr;
    const ir::Variable* variable = context_.module.find_variable(read_variable(graph_.maker(op.operands[0])));
    return variable && variable->role == ir::VariableRole::param ? variable : nullptr;
  }

  static ir::Variable copy_of(const ir::Variable& param, ir::DType dtype) {
    ir::Variable copy;
    copy.name = param.name + "." + std::string(ir::dtype_name(dtype));
    copy.role = ir::VariableRole::compute;
    copy.type = {dtype, param.type.shape};
    copy.trainable = false;
    copy.saved = false;
    copy.loc = ir::derived(param.loc, "prepare");
    return copy;
  }

  void visit(const Op& op) {
    const ir::Variable* param = cast_parameter(op);
    if (!param) return rw_.copy(op);
    const ir::Variable copy = copy_of(*param, op.attrs.dtype("dtype"));
    context_.declare(copy);
    rw_.map(op.results[0], rw_.b().variable(copy));
  }

  /// Every copy the module knows, whichever program asked for it.
  std::vector<std::pair<ir::Variable, ir::Variable>> copies() const {
    std::vector<std::pair<ir::Variable, ir::Variable>> list;
    for (const ir::Variable& copy : context_.module.variables) {
      if (copy.role != ir::VariableRole::compute) continue;
      const size_t dot = copy.name.rfind('.');
      const ir::Variable* param = context_.module.find_variable(std::string_view(copy.name).substr(0, dot));
      if (dot != std::string::npos && param && copy_of(*param, copy.type.dtype).name == copy.name)
        list.emplace_back(*param, copy);
    }
    return list;
  }

  bool updates(const std::string& variable) const {
    return std::any_of(graph_.updates().begin(), graph_.updates().end(),
                       [&](const ir::Update& u) { return u.variable == variable; });
  }

  /// A copy to be made of a new value, which begins `offset` elements into `base`.
  struct Renewal {
    ir::Variable copy;
    ValueId value = ir::kNone, base = ir::kNone;
    int64_t offset = 0;
    ir::Loc loc;

    int64_t end() const { return offset + copy.type.elements(); }
  };

  void renew_copies() {
    std::vector<Renewal> wanted = renewals();
    std::stable_sort(wanted.begin(), wanted.end(), [](const Renewal& a, const Renewal& b) {
      return std::tuple(a.base, a.copy.type.dtype, a.offset) < std::tuple(b.base, b.copy.type.dtype, b.offset);
    });
    rw_.b().set_phase(ir::Phase::optimizer);
    for (size_t first = 0, last = 0; first < wanted.size(); first = last) {
      for (last = first + 1; last < wanted.size() && follows(wanted[last - 1], wanted[last]);) ++last;
      renew({wanted.begin() + static_cast<std::ptrdiff_t>(first), wanted.begin() + static_cast<std::ptrdiff_t>(last)});
    }
  }

  std::vector<Renewal> renewals() const {
    std::vector<Renewal> list;
    for (const auto& [param, copy] : copies()) {
      if (updates(copy.name)) continue;
      for (const ir::Update& update : out_.updates()) {
        if (update.variable != param.name) continue;
        Renewal renewal{copy, update.value, update.value, 0, update.loc};
        find_base(renewal);
        list.push_back(std::move(renewal));
      }
    }
    return list;
  }

  // Looks through views that only show a run of what they view.
  void find_base(Renewal& renewal) const {
    for (;;) {
      const Op& op = out_.maker(renewal.base);
      const auto* view = ir::lowering_as<ir::ViewLowering>(op);
      if (!view) return;
      const ir::View map = view->map(out_.type(op.operands[0]), out_.type(renewal.base), op.attrs);
      if (!map.contiguous()) return;
      renewal.base = op.operands[0];
      renewal.offset += map.offset;
    }
  }

  // Next to each other, but for padding.
  static bool follows(const Renewal& a, const Renewal& b) {
    const int64_t gap = b.offset - a.end();
    return a.base == b.base && a.copy.type.dtype == b.copy.type.dtype && gap >= 0 && gap < Packed::kRow;
  }

  void renew(const std::vector<Renewal>& run) {
    ir::Builder& b = rw_.b();
    const ir::DType dtype = run[0].copy.type.dtype;
    b.set_loc(ir::derived(run[0].loc, "prepare"));
    if (run.size() == 1) {
      b.set_name(run[0].copy.name + ".new");
      out_.add_update({run[0].copy.name, b.cast(run[0].value, dtype), run[0].copy.loc});
      return;
    }
    b.set_name("packed." + std::string(ir::dtype_name(dtype)));
    const ir::Shape& whole = out_.type(run[0].base).shape;
    const int64_t row = whole.size() == 2 ? whole[1] : 1, begin = run[0].offset / row * row;
    const int64_t rows = (run.back().end() - begin + row - 1) / row;
    // Whole rows, so that the kernel that makes the new values can make their copies too.
    const ValueId matrix = b.reshape(run[0].base, {out_.type(run[0].base).elements() / row, row});
    const ValueId taken = b.slice(matrix, {begin / row, 0}, {rows, row});
    const ValueId cast = b.reshape(b.cast(taken, dtype), {rows * row});
    for (const Renewal& renewal : run) {
      const ir::Type& type = renewal.copy.type;
      b.set_loc(ir::derived(renewal.loc, "prepare"));
      b.set_name(renewal.copy.name + ".new");
      const ValueId part = b.slice(cast, {renewal.offset - begin}, {type.elements()});
      out_.add_update({renewal.copy.name, b.reshape(part, type.shape), renewal.copy.loc});
    }
  }

  void write_prepare() {
    Graph prepare("prepare", ir::Level::core);
    ir::Builder b(prepare);
    for (const auto& [param, copy] : copies()) {
      b.set_loc(copy.loc);
      b.set_name(copy.name + ".new");
      const ValueId value = b.cast(b.variable(param), copy.type.dtype);
      prepare.add_update({copy.name, value, copy.loc});
    }
    context_.module.set_graph(std::move(prepare));
  }

  const Graph& graph_;
  PassContext& context_;
  Graph out_;
  ir::Rewriter rw_;
};

}  // namespace

PassInfo prepare_pass() {
  return {"prepare",
          "Computes casts of parameters once per update, into compute variables.",
          {},
          false,
          [](const Graph& graph, PassContext& context) { return Prepare(graph, context).run(); }};
}

}  // namespace ingot::passes
