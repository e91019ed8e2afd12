#include "models/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/base/error.h"
#include "models/call.h"
#include "models/frame.h"
#include "models/initial.h"

namespace ingot::models {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::ExprPtr;
using ir::kNone;
using ir::UserError;
using ir::ValueId;

class GraphMaker {
 public:
  GraphMaker(const Description& model, const Config& config, const std::map<std::string, double>& train,
             const BuildOptions& options, Report& report)
      : model_(model), config_(config), train_(train), options_(options), report_(report), b_(out_.graph) {
    out_.graph.set_name(options.graph_name);
  }

  Built run() {
    Frame main;
    main.block = &model_.main;
    main.config = &config_;
    main_ = &main;
    if (model_.stack) blocks_ = stack_blocks(model_, config_, report_);
    declare_params(main);
    declare_stack_params();
    if (options_.with_loss) {
      for (const Word& name : model_.main.in) input(name.text);
    }
    statements(main);
    if (options_.with_loss) loss(main);
    outputs(main);
    hypers();
    return std::move(out_);
  }

 private:
  // ------------------------------------------------------------ inputs, parameters

  Slot input(const std::string& name) {
    const auto known = main_->values.find(name);
    if (known != main_->values.end()) return known->second;
    Slot slot;
    const auto it =
        std::find_if(model_.inputs.begin(), model_.inputs.end(), [&](const InputText& i) { return i.name.text == name; });
    attempt([&] {
      if (it == model_.inputs.end()) throw Poisoned();
      const ir::Type type = type_of(it->type, *main_);
      b_.set_loc(it->name.loc);
      slot = Slot::of(b_.input(name, type));
    });
    main_->values[name] = slot;
    if (slot.state == Slot::State::value) out_.names[name] = slot.id;
    return slot;
  }

  /// A size that cannot be is explained by the keys it is made of.
  int64_t size_of(const Expr& size, const Frame& frame) const {
    try {
      return size_value(size, frame.scope());
    } catch (const UserError& e) {
      std::vector<ir::Note> notes;
      for (const std::string& name : ir::names_in(size)) {
        const Setting* setting = model_.find_config(name);
        if (setting && setting->value) notes.push_back({ir::expr_start(*setting->value), fmt::format("`{}` is set here", name)});
      }
      throw UserError(e.diagnostics()[0].loc, e.diagnostics()[0].message, std::move(notes));
    }
  }

  ir::Type type_of(const TypeText& text, const Frame& frame) const {
    constexpr int64_t kMost = int64_t{1} << 40;
    ir::Type type;
    type.dtype = text.dtype;
    int64_t count = 1;
    for (const ExprPtr& size : text.sizes) {
      const int64_t n = size_of(*size, frame);
      type.shape.push_back(n);
      if (n > kMost / count) throw UserError(text.loc, fmt::format("this has more than 2^40 elements: {}", type.text()));
      count *= n;
    }
    return type;
  }

  bool taken(const ExprPtr& when, const Frame& frame) const {
    if (!when) return true;
    const ir::Constant value = ir::evaluate(*when, frame.scope());
    if (const bool* flag = std::get_if<bool>(&value.value)) return *flag;
    throw UserError(ir::expr_start(*when),
                    fmt::format("a condition is true or false, `{}` is {}", ir::expr_text(*when), ir::constant_text(value)));
  }

  /// Parameters of a frame and of what it uses, in the order of the file.
  void declare_params(const Frame& frame) {
    if (!declared_.insert(frame.prefix).second) return;
    for (const ParamText& param : frame.block->params) {
      const std::string name = frame.full(param.name.text);
      if (params_.contains(name)) {
        report_.error(param.name.loc, fmt::format("two parameters would be called {}", name));
        continue;
      }
      params_[name] = kPoisonedParam;
      attempt([&] {
        if (!param.init) throw Poisoned();
        if (!taken(param.when, frame)) {
          params_[name] = kAbsentParam;
          return;
        }
        ir::Variable variable;
        variable.name = name;
        variable.type = type_of(param.type, frame);
        variable.init = initial_text(param, *frame.block, frame.scope(), variable.type.shape);
        variable.loc = param.name.loc;
        params_[name] = static_cast<int>(out_.variables.size());
        out_.variables.push_back(std::move(variable));
      });
    }
    for (const UseText& use : frame.block->use) {
      if (const BlockText* block = model_.find_block(use.block.text)) {
        nest(use.prefix.loc, [&] { declare_params(sub_frame(frame, *block, frame.full(use.prefix.text))); });
      }
    }
  }

  void declare_stack_params() {
    for (size_t layer = 0; layer < blocks_.size(); ++layer) {
      if (const BlockText* block = model_.find_block(blocks_[layer])) declare_params(layer_frame(*block, layer));
    }
  }

  static Frame sub_frame(const Frame& frame, const BlockText& block, const std::string& prefix) {
    Frame inner;
    inner.block = &block;
    inner.prefix = prefix;
    inner.places = frame.places;
    inner.config = frame.config;
    return inner;
  }

  Frame layer_frame(const BlockText& block, size_t layer) const {
    std::string prefix = model_.stack->prefix.text;
    prefix.replace(prefix.find("{layer}"), 7, std::to_string(layer));
    Frame frame = sub_frame(*main_, block, prefix);
    const auto nth = std::count(blocks_.begin(), blocks_.begin() + static_cast<ptrdiff_t>(layer), block.name.text);
    frame.places["layer"] = {static_cast<double>(layer)};
    frame.places["nth"] = {static_cast<double>(nth)};
    frame.places["layers"] = {static_cast<double>(blocks_.size())};
    return frame;
  }

  void hypers() {
    for (const Setting& setting : model_.train) {
      const auto value = train_.find(setting.name.text);
      if (value != train_.end()) out_.variables.push_back(hyper(setting, value->second));
    }
  }

  static ir::Variable hyper(const Setting& setting, double value) {
    ir::Variable variable;
    variable.name = setting.name.text;
    variable.role = ir::VariableRole::hyper;
    variable.type = {ir::DType::f32, {}};
    variable.init = fmt::format("{}", value);
    variable.trainable = false;
    variable.loc = setting.name.loc;
    return variable;
  }

  // ------------------------------------------------------------ statements

  /// Runs a step; mistakes are reported, poison is silent. False when there was either.
  template <class F>
  bool attempt(F&& step) {
    bool clean = true;
    const bool fine = report_.attempt([&] {
      try {
        step();
      } catch (const Poisoned&) {
        clean = false;
      }
    });
    return fine && clean;
  }

  /// Blocks that use one another in a circle end here.
  template <class F>
  void nest(ir::Loc loc, F&& step) {
    if (depth_ >= 32) throw UserError(loc, "blocks use one another more than 32 deep (in a circle?)");
    ++depth_;
    step();
    --depth_;
  }

  void statements(Frame& frame) {
    for (const Statement& statement : frame.block->graph) {
      std::vector<Slot> results(statement.names.size());
      bool skip = false;
      const int depth = depth_;
      attempt([&] {
        if (!taken(statement.when, frame)) {
          skip = true;
          return;
        }
        if (!statement.expr || statement.names.empty()) throw Poisoned();
        results = assign(statement, frame);
      });
      depth_ = depth;
      if (skip) continue;
      for (size_t i = 0; i < statement.names.size(); ++i) bind(statement.names[i], results[i], frame);
    }
  }

  void bind(const Word& name, Slot slot, Frame& frame) {
    if (frame.values.contains(name.text)) {
      report_.error(name.loc, fmt::format("`{}` has a value already{}", name.text, frame.where()));
      return;
    }
    frame.values[name.text] = slot;
    if (slot.state == Slot::State::value) out_.names.emplace(frame.full(name.text), slot.id);
  }

  std::vector<Slot> assign(const Statement& statement, Frame& frame) {
    stem_ = frame.full(statement.names[0].text);
    std::vector<std::string> full;
    for (const Word& name : statement.names) full.push_back(frame.full(name.text));
    return results(*statement.expr, frame, full);
  }

  /// The values of a whole right side, one per name; the names go to the values this makes.
  std::vector<Slot> results(const Expr& e, Frame& frame, const std::vector<std::string>& names) {
    if (e.kind == ExprKind::call && e.text == "split") return split(e, frame, names);
    if (e.kind == ExprKind::call && e.text == "stack") return stack(e, frame, names);
    if (e.kind == ExprKind::call && frame.block->find_use(e.text)) {
      std::vector<Slot> slots = call_block(e, frame);
      need_count(e, slots.size(), slots.size(), names.size());
      return slots;
    }
    if (e.kind == ExprKind::call && !is_constant_expr(e, frame)) return call_op(e, frame, names);
    need_count(e, 1, 1, names.size());
    if (e.kind == ExprKind::name) return {lookup(e, frame)};
    return {Slot::of(value(e, frame, names[0]))};
  }

  static void need_count(const Expr& e, size_t least, size_t most, size_t names) {
    if (names >= least && names <= most) return;
    const std::string count = least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
    throw UserError(e.loc, fmt::format("`{}` gives {} value{}, but {} name{} on the left", ir::expr_text(e).substr(0, 40), count,
                                       count == "1" ? "" : "s", names, names == 1 ? " stands" : "s stand"));
  }

  // ------------------------------------------------------------ expressions

  static bool is_constant_expr(const Expr& e, const Frame& frame) {
    return is_constant(e, [&](const std::string& name) { return frame.is_constant_name(name); });
  }

  /// What a name stands for; values, parameters, config keys and train scalars share one space.
  Slot lookup(const Expr& e, Frame& frame) {
    const auto found = frame.values.find(e.text);
    if (found != frame.values.end()) return found->second;
    const bool is_input = frame.prefix.empty() && std::any_of(model_.main.in.begin(), model_.main.in.end(),
                                                              [&](const Word& w) { return w.text == e.text; });
    if (is_input) return input(e.text);
    if (frame.block->find_param(e.text)) return Slot::of(parameter(e, frame));
    if (frame.is_constant_name(e.text)) return Slot::of(constant(e, ir::evaluate(e, frame.scope()), ""));
    if (const Setting* setting = model_.find_train(e.text)) {
      const auto value = train_.find(e.text);
      if (value == train_.end()) throw Poisoned();
      return Slot::of(b_.variable(hyper(*setting, value->second)));
    }
    for (const Statement& statement : frame.block->graph) {
      const bool assigns =
          std::any_of(statement.names.begin(), statement.names.end(), [&](const Word& w) { return w.text == e.text; });
      if (assigns)
        throw UserError(e.loc,
                        fmt::format("`{}` has no value here: no statement before this one gave it one{}", e.text, frame.where()));
    }
    throw UserError(e.loc, fmt::format("unknown name `{}`", e.text));
  }

  ValueId parameter(const Expr& e, const Frame& frame) {
    const int index = params_.at(frame.full(e.text));
    if (index == kPoisonedParam) throw Poisoned();
    if (index == kAbsentParam) {
      throw UserError(e.loc, fmt::format("the parameter `{}` does not exist here: its `when` is false{}", e.text, frame.where()));
    }
    return b_.variable(out_.variables[static_cast<size_t>(index)]);
  }

  ValueId constant(const Expr& e, const ir::Constant& value, const std::string& name) {
    const bool* flag = std::get_if<bool>(&value.value);
    if (!flag && !value.is_number())
      throw UserError(e.loc, fmt::format("`{}` is {}, not a number", ir::expr_text(e), ir::constant_text(value)));
    b_.set_loc(e.loc);
    ir::Attrs attrs;
    attrs.set("value", flag ? (*flag ? 1.0 : 0.0) : value.number());
    attrs.set("dtype", flag ? ir::DType::boolean : ir::DType::f32);
    return b_.op("constant", {}, std::move(attrs), {name}).results[0];
  }

  /// One value. `name` is what the op that makes it is called; empty: something that tells where it is from.
  ValueId value(const Expr& e, Frame& frame, const std::string& name = "") {
    if (is_constant_expr(e, frame)) return constant(e, ir::evaluate(e, frame.scope()), name);
    switch (e.kind) {
      case ExprKind::name: {
        const Slot slot = lookup(e, frame);
        if (slot.state == Slot::State::poisoned) throw Poisoned();
        if (slot.state == Slot::State::absent) throw UserError(e.loc, fmt::format("`{}` is none here{}", e.text, frame.where()));
        return slot.id;
      }
      case ExprKind::unary:
      case ExprKind::binary: {
        std::vector<ValueId> operands;
        for (const ExprPtr& arg : e.args) operands.push_back(value(*arg, frame));
        return make(ir::op_def(operator_op(e)), e.loc, std::move(operands), {}, {name})[0];
      }
      case ExprKind::call:
        break;
      case ExprKind::list:
        throw UserError(e.loc, "a list is no value; it is an argument of an op");
      default:
        throw UserError(e.loc, fmt::format("`{}` is no value", ir::expr_text(e)));
    }
    std::vector<Slot> slots;
    if (frame.block->find_use(e.text)) {
      slots = call_block(e, frame);
      need_one(e, slots.size());
    } else {
      if (e.text == "split" || e.text == "stack")
        throw UserError(e.loc, fmt::format("{}(...) stands alone on the right of names", e.text));
      slots = call_op(e, frame, {name});
    }
    if (slots[0].state != Slot::State::value) throw Poisoned();
    return slots[0].id;
  }

  static void need_one(const Expr& e, size_t count) {
    if (count != 1)
      throw UserError(e.loc, fmt::format("`{}` gives {} values; give them names in a statement of their own", e.text, count));
  }

  /// Makes the op at `loc`. Names that are empty or missing are made from the statement's.
  std::vector<ValueId> make(const ir::OpDef& def, ir::Loc loc, std::vector<ValueId> operands, ir::Attrs attrs,
                            std::vector<std::string> names) {
    b_.set_loc(loc);
    const bool named = !names.empty() && !names[0].empty();
    b_.set_name(named ? names[0] : stem_ + "." + def.name);
    if (!named) names.clear();
    return b_.op(def, std::move(operands), std::move(attrs), std::move(names)).results;
  }

  // ------------------------------------------------------------ calls

  std::vector<Slot> call_op(const Expr& e, Frame& frame, const std::vector<std::string>& names) {
    const ir::OpDef* def = find_callable(e.text);
    if (!def) throw UserError(e.loc, fmt::format("unknown op `{}`", e.text));
    const BoundCall call = bind_call(*def, e);
    const size_t visible = visible_results(*call.def);
    if (!names[0].empty()) {
      need_count(e, visible, call.def->results.size(), names.size());
    } else {
      need_one(e, visible);
    }
    std::vector<ValueId> operands;
    for (const ExprPtr& operand : call.operands) operands.push_back(operand ? operand_value(*operand, frame) : kNone);
    ir::Attrs attrs;
    for (const auto& [attr, expr] : call.attrs) attrs.set(attr->name, attr_value(*call.def, *attr, *expr, frame.scope()));
    std::vector<Slot> slots;
    for (ValueId id : make(*call.def, e.loc, std::move(operands), std::move(attrs), names)) slots.push_back(Slot::of(id));
    slots.resize(names.size());
    return slots;
  }

  /// `none`, and a name that is none here, leave an optional operand out; Builder refuses it elsewhere.
  ValueId operand_value(const Expr& e, Frame& frame) {
    if (e.kind == ExprKind::none) return kNone;
    if (e.kind == ExprKind::name && frame.values.contains(e.text) && frame.values[e.text].state == Slot::State::absent)
      return kNone;
    return value(e, frame);
  }

  Slot argument(const Expr& e, Frame& frame) {
    if (e.kind == ExprKind::none) return Slot::none();
    if (e.kind == ExprKind::name && !is_constant_expr(e, frame)) {
      const Slot slot = lookup(e, frame);
      if (slot.state == Slot::State::poisoned) throw Poisoned();
      return slot;
    }
    return Slot::of(value(e, frame));
  }

  std::vector<Slot> call_block(const Expr& e, Frame& frame) {
    const UseText& use = *frame.block->find_use(e.text);
    const BlockText* block = model_.find_block(use.block.text);
    if (!block) throw Poisoned();
    if (!e.keywords.empty() || e.args.size() != block->in.size()) {
      throw UserError(e.loc, fmt::format("{} ({}) takes {} value{} by position, not {}", e.text, block->name.text,
                                         block->in.size(), block->in.size() == 1 ? "" : "s", e.args.size() + e.keywords.size()));
    }
    Frame inner = sub_frame(frame, *block, frame.full(e.text));
    for (size_t i = 0; i < e.args.size(); ++i) inner.values[block->in[i].text] = argument(*e.args[i], frame);
    return run_block(inner, e.loc);
  }

  std::vector<Slot> run_block(Frame& frame, ir::Loc loc) {
    const std::string stem = stem_;
    nest(loc, [&] { statements(frame); });
    stem_ = stem;
    std::vector<Slot> out;
    for (const Word& name : frame.block->out) {
      const auto it = frame.values.find(name.text);
      if (it == frame.values.end()) {
        report_.error(name.loc, fmt::format("`{}` has no value at the end of the block{}", name.text, frame.where()));
        out.push_back({});
      } else {
        out.push_back(it->second);
      }
    }
    return out;
  }

  std::vector<Slot> split(const Expr& e, Frame& frame, const std::vector<std::string>& names) {
    int64_t axis = -1;
    for (const auto& [key, expr] : e.keywords) {
      if (key != "axis")
        throw UserError(e.keyword_locs[0], fmt::format("split: has no argument `{}` (it takes x, [sizes], axis)", key));
      const ir::Constant value = ir::evaluate(*expr, frame.scope());
      axis = value.is_number() ? static_cast<int64_t>(std::clamp(value.number(), -100.0, 100.0)) : 100;
    }
    if (e.args.size() != 2) throw UserError(e.loc, "split takes a value and a list of sizes: split(x, [a, b])");
    if (e.args[1]->kind != ExprKind::list) throw UserError(e.args[1]->loc, "split: the sizes are a list [a, b]");
    const ValueId x = value(*e.args[0], frame);
    const ir::Shape shape = b_.shape(x);
    const auto rank = static_cast<int64_t>(shape.size());
    if (axis < -rank || axis >= rank) throw UserError(e.loc, fmt::format("split: the value has {} axes", rank));
    const auto along = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    const std::vector<ExprPtr>& items = e.args[1]->args;
    need_count(e, items.size(), items.size(), names.size());
    std::vector<int64_t> sizes;
    int64_t sum = 0;
    for (const ExprPtr& item : items) {
      sizes.push_back(size_value(*item, frame.scope()));
      sum += sizes.back();
    }
    if (sum != shape[along]) {
      throw UserError(e.args[1]->loc, fmt::format("split: the sizes add up to {}, but the axis of {} has {}", sum,
                                                  b_.type(x).text(), shape[along]));
    }
    std::vector<Slot> out;
    ir::Attrs attrs;
    std::vector<int64_t> starts(shape.size(), 0), lengths = shape;
    for (size_t i = 0; i < sizes.size(); ++i) {
      lengths[along] = sizes[i];
      attrs.set("starts", starts);
      attrs.set("sizes", lengths);
      out.push_back(Slot::of(make(ir::op_def("slice"), e.loc, {x}, attrs, {names[i]})[0]));
      starts[along] += sizes[i];
    }
    return out;
  }

  // ------------------------------------------------------------ the stack

  std::vector<Slot> stack(const Expr& e, Frame& frame, const std::vector<std::string>& names) {
    if (!frame.prefix.empty() || !model_.stack) throw UserError(e.loc, "there is no `stack` section to run here");
    const std::vector<Word>& carry = model_.stack->carry;
    if (e.args.size() != carry.size() || !e.keywords.empty()) {
      throw UserError(e.loc, fmt::format("stack carries {} value{}, so it takes as many first ones (or none), not {}",
                                         carry.size(), carry.size() == 1 ? "" : "s", e.args.size() + e.keywords.size()));
    }
    need_count(e, carry.size(), carry.size(), names.size());
    std::map<std::string, Slot> carried;
    for (size_t i = 0; i < carry.size(); ++i) carried[carry[i].text] = argument(*e.args[i], frame);
    residual(carried[carry[0].text]);
    for (size_t layer = 0; layer < blocks_.size(); ++layer) {
      const BlockText* block = model_.find_block(blocks_[layer]);
      if (!block) throw Poisoned();
      const Slot before = carried[carry[0].text];
      step(layer_frame(*block, layer), carried, e.loc);
      residual(before, carried[carry[0].text]);
    }
    std::vector<Slot> out;
    for (const Word& name : carry) out.push_back(carried[name.text]);
    return out;
  }

  /// A block takes the names in its `in` and replaces the first of them by what it returns.
  void step(Frame frame, std::map<std::string, Slot>& carried, ir::Loc loc) {
    const BlockText& block = *frame.block;
    for (const Word& name : block.in) {
      const auto it = carried.find(name.text);
      if (it == carried.end()) throw UserError(name.loc, fmt::format("the stack carries no `{}`", name.text));
      frame.values[name.text] = it->second;
    }
    if (block.out.size() > block.in.size()) {
      throw UserError(block.out.back().loc, fmt::format("a block of the stack replaces what it takes: {} out, but only {} in",
                                                        block.out.size(), block.in.size()));
    }
    const std::vector<Slot> results = run_block(frame, loc);
    for (size_t i = 0; i < results.size(); ++i) carried[block.in[i].text] = results[i];
  }

  void residual(const Slot& slot) {
    if (slot.state == Slot::State::value) out_.residual.push_back(out_.graph.value(slot.id).name);
  }

  /// What a block makes of the first carried value: the values on elementwise paths from the one it took to the one it returns
  /// (the sums in between), in order.
  void residual(const Slot& before, const Slot& after) {
    if (before.state != Slot::State::value || after.state != Slot::State::value || before.id == after.id) return;
    const ir::Graph& graph = out_.graph;
    const ir::OpId first = graph.value(before.id).op, last = graph.value(after.id).op;
    std::set<ValueId> reached{before.id}, kept{after.id};
    for (ir::OpId op = first + 1; op <= last; ++op) {
      const ir::Op& made = graph.op(op);
      const bool from = std::any_of(made.operands.begin(), made.operands.end(), [&](ValueId v) { return reached.contains(v); });
      const bool same = !made.results.empty() && graph.type(made.results[0]).shape == graph.type(before.id).shape;
      if (from && same && std::holds_alternative<ir::ScalarLowering>(made.def->lowering)) reached.insert(made.results[0]);
    }
    for (ir::OpId op = last; op > first; --op) {
      const ir::Op& made = graph.op(op);
      if (made.results.empty() || !kept.contains(made.results[0]) || !reached.contains(made.results[0])) continue;
      for (ValueId v : made.operands) {
        if (v != before.id && reached.contains(v)) kept.insert(v);
      }
    }
    for (ValueId v : kept) out_.residual.push_back(graph.value(v).name);
  }

  // ------------------------------------------------------------ loss, outputs

  void loss(Frame& frame) {
    if (!model_.loss) return;
    attempt([&] {
      const Expr& e = *model_.loss;
      stem_ = "loss";
      const bool is_op = e.kind == ExprKind::call && !is_constant_expr(e, frame) && !frame.block->find_use(e.text);
      const ir::OpDef* def = is_op ? find_callable(e.text) : nullptr;
      const size_t visible = def ? visible_results(*bind_call(*def, e).def) : 1;
      std::vector<Slot> slots;
      if (visible > 1) {
        slots = call_op(e, frame,
                        visible == 2 ? std::vector<std::string>{"loss", "count"} : std::vector<std::string>(visible, "loss"));
      } else {
        slots = {Slot::of(value(e, frame, "loss"))};
        b_.set_loc(e.loc);
        slots.push_back(Slot::of(constant(e, {1.0}, "count")));
      }
      for (size_t i = 0; i < 2; ++i) scalar(e, slots[i].id, i == 0 ? "loss" : "count");
      out_.graph.add_output({"loss", slots[0].id, e.loc});
      out_.graph.add_output({"count", slots[1].id, e.loc});
    });
  }

  void scalar(const Expr& e, ValueId id, std::string_view what) const {
    const ir::Type& type = b_.type(id);
    if (type.shape.empty() && ir::is_float(type.dtype)) return;
    throw UserError(ir::expr_start(e),
                    fmt::format("the {} is one number (f32[]), not {}; sum(...) makes one", what, type.text()));
  }

  void outputs(Frame& frame) {
    for (const Word& name : model_.outputs) {
      attempt([&] {
        if (options_.with_loss && (name.text == "loss" || name.text == "count")) {
          throw UserError(name.loc, fmt::format("`{}` is an output already", name.text));
        }
        const auto it = frame.values.find(name.text);
        if (it == frame.values.end())
          throw UserError(name.loc, fmt::format("outputs: no statement of the graph gives `{}` a value", name.text));
        if (it->second.state == Slot::State::value) out_.graph.add_output({name.text, it->second.id, name.loc});
      });
    }
    for (const std::string& name : options_.keep) keep(name);
  }

  void keep(const std::string& name) {
    const auto alias = out_.names.find(name);
    const ValueId id = alias != out_.names.end() ? alias->second : out_.graph.find(name);
    const ir::Loc loc = ir::make_loc("<command line>", 1, 1);
    if (id == kNone) {
      std::vector<std::string> known;
      for (const auto& [known_name, value] : out_.names) known.push_back(known_name);
      report_.error(loc, fmt::format("the model has no value `{}`{}", name, did_you_mean(name, known)));
    } else if (!out_.graph.find_output(name)) {
      out_.graph.add_output({name, id, loc});
    }
  }

  static constexpr int kPoisonedParam = -1, kAbsentParam = -2;

  const Description& model_;
  const Config& config_;
  const std::map<std::string, double>& train_;
  const BuildOptions& options_;
  Report& report_;
  Built out_;
  ir::Builder b_;
  Frame* main_ = nullptr;
  std::vector<std::string> blocks_;    // kinds along the stack
  std::map<std::string, int> params_;  // full name -> index into out_.variables, or one of the above
  std::set<std::string> declared_;     // prefixes whose parameters exist
  std::string stem_;                   // name of the statement being built, for values without one
  int depth_ = 0;
};

}  // namespace

Built build_graph(const Description& model, const Config& config, const std::map<std::string, double>& train,
                  const BuildOptions& options, Report& report) {
  return GraphMaker(model, config, train, options, report).run();
}

std::vector<std::string> stack_blocks(const Description& model, const Config& config, Report& report) {
  std::vector<std::string> out;
  report.attempt([&] {
    try {
      const Expr& e = *model.stack->blocks;
      const ir::Constant value =
          ir::evaluate(e, {[&](const std::string& n) { return config.find(n); }, [&] { return config.names(); }}, true);
      const ir::ConstantList* list = std::get_if<ir::ConstantList>(&value.value);
      if (!list) throw UserError(e.loc, fmt::format("stack.blocks is a list of block names, not {}", ir::constant_text(value)));
      if (list->empty()) throw UserError(e.loc, "the stack has no blocks");
      const Setting* setting = e.kind == ExprKind::name ? model.find_config(e.text) : nullptr;
      const ir::Loc loc = setting && setting->value ? setting->value->loc : e.loc;
      std::vector<std::string> known;
      for (const BlockText& block : model.blocks) known.push_back(block.name.text);
      for (const ir::Constant& item : *list) {
        const std::string name = ir::constant_text(item);
        if (!model.find_block(name))
          throw UserError(loc, fmt::format("the stack names an unknown block `{}`{}", name, did_you_mean(name, known)));
      }
      for (const ir::Constant& item : *list) out.push_back(ir::constant_text(item));
    } catch (const Poisoned&) {
    }
  });
  return out;
}

}  // namespace ingot::models
