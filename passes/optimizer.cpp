// optimizer: from gradients to an update. Everything is in the graph: the schedule, the clip, the division by the count and
// the choice to leave everything as it is; what the host may change between steps are the hypers it reads.
//
//   output loss = %l                     optimizer %lr.now = (schedule of %step and hypers)
//   output count = %n                    optimizer %norm = sqrt(sum over parameters of sum(square(gradient)))
//   output grad.w = %w.grad        =>    optimizer %ok = isfinite(%norm) and %n > 0
//                                        optimizer %p, %m, %v = adamw(pack(%w, ..), pack(%w.grad, ..), pack(%w.m, ..), ...)
//                                        output loss = %l       output count = %n
//                                        output grad_norm = %norm / %n       output lr = %lr.now
//                                        update %w = (%w's part of %p)  ...  update %step = select(%ok, %step + 1, %step)
//
// The rule works on all parameters packed side by side (packed.h), so neither it nor the norm grows with their number. Losses
// are sums, so gradients are too: the rule gets scale = clip factor / count. A count of zero or a norm that is not finite changes
// nothing, the step counter included. Sums of squares are f32.
//
// `scaled=true`: the gradients are those of the loss times the state `loss_scale` (loss_scale.h), which is divided out, renewed
// and reported as the output `loss_scale`.
#include <fmt/format.h>

#include <algorithm>

#include "ir/base/expr.h"
#include "ir/base/text.h"
#include "passes/loss_scale.h"
#include "passes/passes.h"
#include "passes/rules.h"
#include "passes/scalars.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::ValueId;

std::string suggestion(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = ir::nearest_name(name, known);
  return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
}

class Optimizer {
 public:
  Optimizer(const Graph& graph, PassContext& context)
      : graph_(graph),
        context_(context),
        spec_(context.module.optimizer),
        out_(like(graph)),
        rw_(graph, out_),
        b_(rw_.b()),
        scalars_(b_, context) {}

  Graph run() {
    for (const ir::Op& op : graph_.ops()) rw_.copy(op);
    collect_gradients();
    b_.set_phase(ir::Phase::optimizer);
    b_.set_loc(ir::derived(spec_.rule_loc, "optimizer"));
    read_step();
    schedule();
    norm();
    finish_outputs(graph_, rw_, [](const ir::Output& output) { return !output.name.starts_with("grad."); });
    apply_rule();
    count_step();
    add_output("grad_norm", grad_norm_);
    add_output("lr", lr_);
    if (loss_scale_ != ir::kNone) renew_loss_scale();
    return with_names(out_, names_);
  }

 private:
  void collect_gradients() {
    std::vector<Trained> trained;
    for (const ir::Variable& variable : context_.module.variables) {
      const ir::Output* output = graph_.find_output("grad." + variable.name);
      if (output) trained.push_back({variable, rw_(output->value)});
    }
    packs_ = pack_trained(out_, trained);
    if (packs_.empty()) {
      throw ir::UserError(ir::Loc{}, fmt::format("@{} has no output grad.<parameter> for the optimizer; 'autodiff' stands before",
                                                 graph_.name()));
    }
  }

  ValueId output_value(std::string_view name) const {
    const ir::Output* output = graph_.find_output(name);
    if (!output)
      throw ir::UserError(ir::Loc{}, fmt::format("@{} has no output '{}', which the optimizer reads", graph_.name(), name));
    return rw_(output->value);
  }

  void add_output(const char* name, ValueId value) { out_.add_output({name, value, ir::derived(spec_.rule_loc, "optimizer")}); }
  void name(ValueId value, const char* wanted) { names_.try_emplace(value, wanted); }

  // ---------------------------------------------------------------- step and schedule

  void read_step() {
    ir::Variable step;
    step.name = "step";
    step.role = ir::VariableRole::state;
    step.type = {DType::i32, {}};
    step.loc = ir::derived(spec_.rule_loc, "optimizer");
    context_.declare(step);
    step_ = b_.variable(step);
    done_ = b_.cast(step_, DType::f32);
  }

  void schedule() {
    if (spec_.schedule.empty()) return;
    b_.set_loc(ir::derived(spec_.schedule_loc, "optimizer"));
    const ir::ExprPtr call = ir::parse_expr(spec_.schedule, spec_.schedule_loc);
    const auto scheduled = scheduled_lr(*call, scalars_, done_);
    lr_ = scheduled.second;
    name(lr_, "lr.now");
    // The rule says `lr` and means what the schedule makes of it.
    scalars_.bind(scheduled.first, lr_);
  }

  // ---------------------------------------------------------------- norm, clip, scale

  void norm() {
    b_.set_loc(ir::derived(spec_.clip.empty() ? spec_.rule_loc : spec_.clip_loc, "optimizer"));
    ValueId total = ir::kNone;
    for (const Packed& packed : packs_) {
      std::vector<ValueId> gradients;
      for (const Trained& part : packed.parts) gradients.push_back(part.gradient);
      b_.set_name("packed.grad");
      gradients_.push_back(packed.pack(b_, gradients));
      b_.set_name("norm");
      const ValueId wide = b_.cast(gradients_.back(), DType::f32);
      const ValueId squares = b_.sum(b_.make("square", {wide}), {0, 1});
      total = total == ir::kNone ? squares : b_.add(total, squares);
    }
    b_.set_name("");
    const ValueId sum_norm = b_.make("sqrt", {total});
    const ValueId count = output_value("count");
    const ValueId some = b_.make("gt", {count, b_.constant(0)});
    ValueId divisor = b_.select(some, count, b_.constant(1));
    if (context_.option("scaled", "false") == "true") {
      const ir::Variable variable = loss_scale_variable(b_.loc());
      context_.declare(variable);
      loss_scale_ = b_.variable(variable);
      divisor = b_.mul(divisor, loss_scale_);
    }
    finite_ = b_.make("isfinite", {sum_norm});
    ok_ = b_.make("logical_and", {finite_, some});
    grad_norm_ = b_.div(sum_norm, divisor);
    name(ok_, "ok");
    name(grad_norm_, "grad_norm");
    if (spec_.clip.empty()) {
      scale_ = b_.div(b_.constant(1), divisor);
    } else {
      // clip / max(norm, clip): exactly 1 below the clip, and finite for every norm.
      const ValueId clip = clip_value();
      scale_ = b_.div(b_.div(clip, b_.make("maximum", {grad_norm_, clip})), divisor);
    }
    name(scale_, "scale");
  }

  ValueId clip_value() {
    const ir::ExprPtr call = ir::parse_expr(spec_.clip, spec_.clip_loc);
    if (call->kind != ir::ExprKind::call || call->text != "global_norm") {
      throw ir::UserError(call->loc, fmt::format("clip must be global_norm(...), but is '{}'{}", spec_.clip,
                                                 suggestion(call->text, {"global_norm"})));
    }
    return scalars_.build(*bind_arguments(*call, {"clip"})[0]);
  }

  // ---------------------------------------------------------------- the rule

  void apply_rule() {
    b_.set_loc(ir::derived(spec_.rule_loc, "optimizer"));
    const ir::ExprPtr call = ir::parse_expr(spec_.rule, spec_.rule_loc);
    const Rule& rule = find_rule(*call);
    const std::vector<ir::ExprPtr> bound = bind_arguments(*call, rule.arguments);
    RuleContext shared{b_, context_, packs_[0], ir::kNone, ir::kNone, scale_, ir::kNone, ok_, {}};
    shared.step = b_.add(done_, 1.0);
    for (size_t i = 0; i < bound.size(); ++i) shared.arguments[rule.arguments[i]] = scalars_.build(*bound[i]);
    if (lr_ == ir::kNone) lr_ = shared.argument("lr");
    if (rule.shared) shared.arguments.merge(rule.shared(shared));
    for (size_t i = 0; i < packs_.size(); ++i) {
      const Packed& packed = packs_[i];
      std::vector<ValueId> values;
      for (const Trained& part : packed.parts) values.push_back(b_.variable(part.variable));
      b_.set_name("packed");
      const ValueId value = packed.pack(b_, values);
      RuleContext c{b_, context_, packed, value, gradients_[i], scale_, shared.step, ok_, shared.arguments};
      by_group(c, "lr", &Packed::Group::lr_factor);
      by_group(c, "decay", &Packed::Group::decay_factor);
      rule.apply(c);
    }
  }

  static const Rule& find_rule(const ir::Expr& call) {
    std::vector<std::string> known;
    for (const Rule& rule : rules()) {
      if (call.kind == ir::ExprKind::call && call.text == rule.name) return rule;
      known.push_back(rule.name);
    }
    throw ir::UserError(call.loc, fmt::format("there is no optimizer rule '{}'{}; known: {}", ir::expr_text(call),
                                              suggestion(call.text, known), fmt::join(known, ", ")));
  }

  void by_group(RuleContext& c, const std::string& argument, double Packed::Group::*factor) {
    const auto at = c.arguments.find(argument);
    if (at == c.arguments.end()) return;
    b_.set_name(argument + ".group");
    at->second = c.packed.by_group(b_, at->second, factor);
  }

  void count_step() {
    b_.set_loc(ir::derived(spec_.rule_loc, "optimizer"));
    b_.set_name("step.new");
    const ValueId next = b_.add(step_, b_.constant(1, DType::i32));
    const ValueId now = b_.select(ok_, next, step_);
    name(now, "step.new");
    out_.add_update({"step", now, b_.loc()});
  }

  void renew_loss_scale() {
    b_.set_loc(ir::derived(spec_.rule_loc, "optimizer"));
    add_output("loss_scale", update_loss_scale(b_, context_, {loss_scale_, finite_, ok_}));
  }

  const Graph& graph_;
  PassContext& context_;
  const ir::OptimizerSpec spec_;
  Graph out_;
  ir::Rewriter rw_;
  ir::Builder& b_;
  Scalars scalars_;
  std::vector<Packed> packs_;
  std::vector<ValueId> gradients_;  ///< per pack
  ValueId step_ = ir::kNone, done_ = ir::kNone, lr_ = ir::kNone, finite_ = ir::kNone, ok_ = ir::kNone, loss_scale_ = ir::kNone,
          scale_ = ir::kNone, grad_norm_ = ir::kNone;
  std::unordered_map<ValueId, std::string> names_;
};

Graph run(const Graph& graph, PassContext& context) {
  const bool done =
      std::any_of(graph.updates().begin(), graph.updates().end(), [](const ir::Update& u) { return u.variable == "step"; });
  if (done) return graph;
  if (context.module.optimizer.rule.empty()) {
    throw ir::UserError(ir::Loc{}, fmt::format("the model '{}' has no optimizer, so it cannot be trained", context.module.name));
  }
  return Optimizer(graph, context).run();
}

}  // namespace

PassInfo optimizer_pass() {
  return {"optimizer", "Turns gradients into updates: schedule, clip, division by the count, the rule.", {"scaled"}, true, run};
}

}  // namespace ingot::passes
