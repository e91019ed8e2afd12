// prepare: what depends on parameters alone is computed once per update instead of in every program. A cast of a parameter
// becomes a `compute` variable; @prepare makes it after any load, and a program that updates the parameter renews it.
//
//   param %w: f32[8, 8]                  param %w: f32[8, 8]
//   %1 = cast(%w) {dtype: bf16}          compute %w.bf16: bf16[8, 8]
//   %y = matmul(%x, %1)            =>    %y = matmul(%x, %w.bf16)
//   update %w = %w.2                     optimizer %2 = cast(%w.2) {dtype: bf16}
//                                        update %w = %w.2
//                                        update %w.bf16 = %2
//   graph @prepare at core {
//     param %w: f32[8, 8]
//     %0 = cast(%w) {dtype: bf16}: bf16[8, 8]
//     update %w.bf16 = %0
//   }
#include <fmt/format.h>

#include <algorithm>

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

  void renew_copies() {
    ir::Builder& b = rw_.b();
    for (const auto& [param, copy] : copies()) {
      if (updates(copy.name)) continue;
      for (const ir::Update& update : graph_.updates()) {
        if (update.variable != param.name) continue;
        b.set_loc(ir::derived(update.loc, "prepare"));
        b.set_phase(ir::Phase::optimizer);
        b.set_name(copy.name + ".new");
        out_.add_update({copy.name, b.cast(rw_(update.value), copy.type.dtype), copy.loc});
      }
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
