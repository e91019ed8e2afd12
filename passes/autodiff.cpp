// autodiff: the backward pass. Sweeps the ops in reverse from the output `loss`, whose gradient is the constant 1, and lets
// each op's rule build the gradients of its operands. What several uses give is added in that fixed order.
//
//   param %w: f32[3]                     param %w: f32[3]
//   %h = mul(%x, %w): f32[2, 3]          %h = mul(%x, %w): f32[2, 3]
//   %l = sum(%h): f32[]            =>    %l = sum(%h): f32[]
//   output loss = %l                     backward %0 = constant() {value: 1.0}: f32[]
//                                        backward %h.grad = broadcast(%0): f32[2, 3]
//                                        backward %w.back = mul(%h.grad, %x): f32[2, 3]
//                                        backward %w.grad = sum(%w.back) {axes: [0]}: f32[3]
//                                        output loss = %l
//                                        output grad.w = %w.grad
//
// Options: `grads`, below; `scale=state` starts from the state `loss_scale` instead of 1 (loss_scale.h), and the outputs are that
// many times the gradients; `scale=NUMBER` starts from that number, and the outputs are divided by it.
//
// Gradients build ops; they compute nothing. What a rule mentions is what gets saved. A parameter's gradient is made in f32
// (`grads=bf16`: stored in bf16), through casts of it too; any other gradient in its value's own dtype. An op without a
// gradient on the way to the loss, and a trainable parameter that gets none, are mistakes in the model: all are reported.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "ir/base/text.h"
#include "passes/loss_scale.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::Shape;
using ir::ValueId;

class Engine {
 public:
  Engine(const Graph& graph, PassContext& context)
      : graph_(graph),
        context_(context),
        module_(context.module),
        out_(like(graph)),
        rw_(graph, out_),
        parts_(graph.values().size()),
        final_(graph.values().size(), kNone),
        wanted_(graph.values().size(), false),
        follows_(follow_inputs(graph)),
        blocked_(graph.values().size(), false) {
    const std::string grads = context.option("grads", "f32");
    const auto dtype = ir::dtype_from_name(grads);
    if (!dtype || (*dtype != DType::f32 && *dtype != DType::bf16)) {
      throw ir::UserError(ir::Loc{}, fmt::format("autodiff: grads must be f32 or bf16, but is '{}'", grads));
    }
    param_dtype_ = *dtype;
    const std::string scale = context.option("scale", "1");
    from_state_ = scale == "state";
    if (from_state_) return;
    const auto [end, error] = std::from_chars(scale.data(), scale.data() + scale.size(), scale_);
    if (error != std::errc() || end != scale.data() + scale.size() || !(scale_ > 0) || !std::isfinite(scale_)) {
      throw ir::UserError(ir::Loc{}, fmt::format("autodiff: scale must be a number above 0 or `state`, but is '{}'", scale));
    }
  }

  Graph run() {
    out_.set_level(ir::Level::train);
    for (const Op& op : graph_.ops()) rw_.copy(op);
    find_wanted();
    seed();
    for (size_t i = graph_.ops().size(); i-- > 0;) visit(graph_.ops()[i]);
    rw_.finish();
    add_parameter_outputs();
    report();
    return with_names(out_, names_);
  }

 private:
  class Rule;

  // ---------------------------------------------------------------- what needs a gradient

  bool is_trained(const std::string& variable) const {
    const ir::Variable* v = variable.empty() ? nullptr : module_.find_variable(variable);
    return v && v->role == ir::VariableRole::param && v->trainable && ir::is_float(v->type.dtype);
  }

  // A value needs a gradient when it is a float that a trainable parameter reaches by differentiable ops.
  void find_wanted() {
    for (const Op& op : graph_.ops()) {
      bool reaches = is_trained(read_variable(op));
      if (!op.def->gradient_is_zero) {
        for (ValueId operand : op.operands) reaches = reaches || (operand != kNone && wanted_[operand]);
      }
      for (ValueId result : op.results) wanted_[result] = reaches && ir::is_float(graph_.type(result).dtype);
    }
  }

  // What depends on parameters alone is on the way to one: its gradient is not rounded before it gets there.
  DType grad_dtype(ValueId old) const {
    if (is_trained(behind_casts(graph_, old))) return param_dtype_;
    return follows_[old] ? graph_.type(old).dtype : DType::f32;
  }

  // ---------------------------------------------------------------- the sweep

  void seed() {
    const ir::Output* loss = graph_.find_output("loss");
    if (!loss)
      throw ir::UserError(ir::Loc{},
                          fmt::format("@{} has no output 'loss', so autodiff has nothing to start from", graph_.name()));
    const ir::Type& type = graph_.type(loss->value);
    if (type.rank() != 0 || !ir::is_float(type.dtype)) {
      throw ir::UserError(graph_.maker(loss->value).loc,
                          fmt::format("the loss must be one number, but %{} is {}", graph_.value(loss->value).name, type.text()));
    }
    rw_.b().set_loc(ir::derived(graph_.maker(loss->value).loc, "gradient"));
    rw_.b().set_phase(ir::Phase::backward);
    parts_[loss->value].push_back(start(type.dtype));
  }

  ValueId start(DType dtype) {
    ir::Builder& b = rw_.b();
    if (!from_state_) return b.constant(scale_, dtype);
    const ir::Variable variable = loss_scale_variable(b.loc());
    context_.declare(variable);
    return b.cast(b.variable(variable), dtype);
  }

  void visit(const Op& op) {
    for (ValueId result : op.results) finish_value(result);
    const bool any = std::any_of(op.results.begin(), op.results.end(), [&](ValueId r) { return final_[r] != kNone; });
    const bool blocked = std::any_of(op.results.begin(), op.results.end(), [&](ValueId r) { return blocked_[r]; });
    const bool wanted = std::any_of(op.operands.begin(), op.operands.end(), [&](ValueId o) { return o != kNone && wanted_[o]; });
    if (!wanted || op.def->gradient_is_zero || (!any && !blocked)) return;
    if (any && !op.def->gradient) {
      errors_.push_back({op.loc,
                         fmt::format("'{}' has no gradient, and %{} stands between {} and the loss", op.name(),
                                     graph_.value(op.results[0]).name, first_param(op)),
                         {}});
    }
    if (blocked || !op.def->gradient) {
      for (ValueId operand : op.operands) {
        if (operand != kNone) blocked_[operand] = true;
      }
    }
    if (any && op.def->gradient) differentiate(op);
  }

  void differentiate(const Op& op);

  // Adds up what the uses of a value gave; the sum gets the name that counts.
  void finish_value(ValueId old) {
    const std::vector<ValueId>& parts = parts_[old];
    if (parts.empty()) return;
    ir::Builder& b = rw_.b();
    at(graph_.maker(old));
    final_[old] = sum_up(parts, grad_dtype(old));
    // A gradient that is another value's too (both operands of an addition) keeps its first name.
    names_.try_emplace(final_[old], graph_.value(old).name + ".grad");
    b.set_name("");
  }

  ValueId sum_up(const std::vector<ValueId>& parts, DType dtype) {
    ir::Builder& b = rw_.b();
    if (parts.size() == 1) return parts[0];
    if (const ValueId joined = side_by_side(parts); joined != kNone) return joined;
    // Parameters' gradients are added in f32 even where they are stored in 16 bits.
    const bool widen = dtype != DType::f32 && dtype == param_dtype_;
    ValueId sum = widen ? b.cast(parts[0], DType::f32) : parts[0];
    for (size_t i = 1; i < parts.size(); ++i) sum = b.add(sum, widen ? b.cast(parts[i], DType::f32) : parts[i]);
    return b.cast(sum, dtype);
  }

  /// A gradient with zeros before and behind it along an axis, as slices give them.
  struct Padded {
    int64_t axis = 0, begin = 0;
    ValueId part = kNone;
  };
  std::optional<Padded> padded(ValueId gradient) const {
    const Op& op = out_.maker(gradient);
    if (!ir::lowering_as<ir::PackLowering>(op)) return std::nullopt;
    Padded made{op.attrs.integer("axis")};
    int64_t at = 0;
    for (const ValueId part : op.operands) {
      if (!zeros(part)) {
        if (made.part != kNone) return std::nullopt;
        made.begin = at;
        made.part = part;
      }
      at += out_.type(part).shape[static_cast<size_t>(made.axis)];
    }
    return made.part == kNone ? std::nullopt : std::optional(made);
  }
  bool zeros(ValueId value) const {
    while (ir::lowering_as<ir::ViewLowering>(out_.maker(value))) value = out_.maker(value).operands[0];
    return constant_value(out_, value) == 0.0;
  }

  // Slices that do not overlap give gradients that lie side by side: nothing need be added. kNone when they do.
  ValueId side_by_side(const std::vector<ValueId>& gradients) {
    std::vector<Padded> list;
    for (const ValueId gradient : gradients) {
      const std::optional<Padded> one = padded(gradient);
      if (!one || (!list.empty() && list[0].axis != one->axis)) return kNone;
      list.push_back(*one);
    }
    std::sort(list.begin(), list.end(), [](const Padded& a, const Padded& b) { return a.begin < b.begin; });
    ir::Builder& b = rw_.b();
    const auto axis = static_cast<size_t>(list[0].axis);
    ir::Type gap = b.type(gradients[0]);
    const int64_t end = gap.shape[axis];
    std::vector<ValueId> parts;
    int64_t at = 0;
    const auto fill_to = [&](int64_t begin) {
      if (begin == at) return;
      gap.shape[axis] = begin - at;
      parts.push_back(b.full(0, gap));
    };
    for (const Padded& one : list) {
      if (one.begin < at) return kNone;
      fill_to(one.begin);
      parts.push_back(one.part);
      at = one.begin + b.shape(one.part)[axis];
    }
    fill_to(end);
    return b.concat(std::move(parts), list[0].axis);
  }

  void at(const Op& op) {
    ir::Builder& b = rw_.b();
    b.set_loc(ir::derived(op.loc, "gradient"));
    b.set_phase(ir::Phase::backward);
    b.set_name(op.results.empty() ? "" : graph_.value(op.results[0]).name + ".back");
  }

  // What a rule gave, brought to the operand's shape and its gradient's dtype: sums over the axes it was broadcast along.
  ValueId unbroadcast(ValueId gradient, ValueId old) {
    ir::Builder& b = rw_.b();
    const Shape& from = b.shape(gradient);
    const Shape& to = graph_.type(old).shape;
    const DType dtype = grad_dtype(old);
    if (from == to) return b.cast(gradient, dtype);
    const auto joined = ir::broadcast_shapes(from, to);
    ir::check(
        joined && (*joined == from || *joined == to),
        fmt::format("the gradient of %{} is {}, its value {}", graph_.value(old).name, ir::shape_text(from), ir::shape_text(to)));
    if (*joined == to) return b.cast(b.broadcast(gradient, to), dtype);
    const size_t extra = from.size() - to.size();
    std::vector<int64_t> axes;
    for (size_t i = 0; i < from.size(); ++i) {
      if (i < extra || (to[i - extra] == 1 && from[i] != 1)) axes.push_back(static_cast<int64_t>(i));
    }
    return b.reshape(b.sum(gradient, axes, false, dtype), to);
  }

  // ---------------------------------------------------------------- mistakes

  // In the order of the file, which is not the order of the sweep.
  void report() {
    std::stable_sort(errors_.begin(), errors_.end(), [](const ir::Diagnostic& a, const ir::Diagnostic& b) {
      return std::pair(a.loc.line, a.loc.col) < std::pair(b.loc.line, b.loc.col);
    });
    ir::Diagnostics sorted;
    for (ir::Diagnostic& error : errors_) sorted.error(error.loc, std::move(error.message));
    sorted.throw_if_any();
  }

  // ---------------------------------------------------------------- parameters

  std::string first_param(const Op& op) const {
    std::vector<bool> seen(graph_.values().size(), false);
    for (ValueId operand : op.operands) {
      if (operand != kNone && wanted_[operand]) seen[operand] = true;
    }
    std::string found;
    for (size_t i = graph_.values()[op.results[0]].op; i-- > 0;) {
      const Op& before = graph_.ops()[i];
      if (std::none_of(before.results.begin(), before.results.end(), [&](ValueId r) { return seen[r]; })) continue;
      if (is_trained(read_variable(before))) found = read_variable(before);
      for (ValueId operand : before.operands) {
        if (operand != kNone && wanted_[operand]) seen[operand] = true;
      }
    }
    return found.empty() ? "a parameter" : "parameter %" + found;
  }

  void add_parameter_outputs() {
    struct Reads {
      std::vector<ValueId> gradients;
      bool read = false, blocked = false;
    };
    // One parameter may be read by several ops; the sweep met them last to first.
    std::map<std::string, Reads> reads;
    for (size_t i = graph_.ops().size(); i-- > 0;) {
      const Op& op = graph_.ops()[i];
      const std::string name = read_variable(op);
      if (!is_trained(name)) continue;
      Reads& r = reads[name];
      r.read = true;
      r.blocked = r.blocked || blocked_[op.results[0]];
      if (final_[op.results[0]] != kNone) r.gradients.push_back(final_[op.results[0]]);
    }
    for (const ir::Variable& variable : module_.variables) {
      if (!is_trained(variable.name)) continue;
      const Reads& r = reads[variable.name];
      if (!r.gradients.empty()) {
        add_output(variable, r.gradients);
      } else if (!r.blocked) {
        errors_.push_back({variable.loc,
                           fmt::format("parameter '{}' gets no gradient: {}", variable.name,
                                       r.read ? "the loss does not depend on it in a way that can be differentiated"
                                              : "nothing that the loss depends on reads it"),
                           {}});
      }
    }
  }

  void add_output(const ir::Variable& variable, const std::vector<ValueId>& gradients) {
    ir::Builder& b = rw_.b();
    b.set_loc(ir::derived(variable.loc, "gradient"));
    b.set_phase(ir::Phase::backward);
    b.set_name(variable.name + ".back");
    ValueId sum = sum_up(gradients, param_dtype_);
    if (scale_ != 1) sum = b.mul(sum, b.constant(1 / scale_, param_dtype_));
    if (gradients.size() > 1 || scale_ != 1) {
      for (ValueId part : gradients) names_.erase(part);
    }
    names_[sum] = variable.name + ".grad";  // not the name of its 16-bit cast
    out_.add_output({"grad." + variable.name, sum, ir::derived(variable.loc, "gradient")});
  }

  const Graph& graph_;
  PassContext& context_;
  const ir::Module& module_;
  Graph out_;
  ir::Rewriter rw_;
  DType param_dtype_ = DType::f32;
  bool from_state_ = false;                  ///< the gradient of the loss is the state `loss_scale`,
  double scale_ = 1;                         ///< else this
  std::vector<std::vector<ValueId>> parts_;  ///< by old value: gradients its uses gave, in the order met
  std::vector<ValueId> final_;               ///< by old value: their sum
  std::vector<bool> wanted_;                 ///< by old value: needs a gradient
  std::vector<bool> follows_;                ///< by old value: depends on an input
  std::vector<bool> blocked_;                ///< by old value: an op without gradient stands behind it
  std::unordered_map<ValueId, std::string> names_;
  std::vector<ir::Diagnostic> errors_;
};

/// What a gradient rule sees of the engine.
class Engine::Rule : public ir::GradientContext {
 public:
  Rule(Engine& engine, const Op& op) : engine_(engine), op_(op) {}

  ir::Builder& b() override { return engine_.rw_.b(); }
  const Op& op() const override { return op_; }
  ValueId operand(int i) const override { return engine_.rw_(old(i)); }
  ValueId result(int i) const override { return engine_.rw_(op_.results[static_cast<size_t>(i)]); }
  ValueId grad(int i) const override { return engine_.final_[op_.results[static_cast<size_t>(i)]]; }
  bool wants(int i) const override { return old(i) != kNone && engine_.wanted_[old(i)]; }
  DType grad_dtype(int i) const override { return engine_.grad_dtype(old(i)); }
  void set(int i, ValueId gradient) override {
    if (!wants(i) || gradient == kNone) return;
    engine_.parts_[old(i)].push_back(engine_.unbroadcast(gradient, old(i)));
  }

 private:
  ValueId old(int i) const { return static_cast<size_t>(i) < op_.operands.size() ? op_.operands[static_cast<size_t>(i)] : kNone; }

  Engine& engine_;
  const Op& op_;
};

void Engine::differentiate(const Op& op) {
  at(op);
  Rule rule(*this, op);
  op.def->gradient(rule);
}

Graph run(const Graph& graph, PassContext& context) {
  // A graph that holds its backward already is left alone.
  const bool done =
      std::any_of(graph.ops().begin(), graph.ops().end(), [](const Op& op) { return op.phase == ir::Phase::backward; });
  return done ? graph : Engine(graph, context).run();
}

}  // namespace

PassInfo autodiff_pass() {
  return {"autodiff",
          "Builds the gradient of the output `loss` for every trainable parameter, as outputs grad.<parameter>.",
          {"grads", "scale"},
          true,
          run};
}

}  // namespace ingot::passes
