// Inputs, parameters, statements, and the ends of a graph.
#include <fmt/format.h>

#include <algorithm>

#include "ir/base/error.h"
#include "models/call.h"
#include "models/initial.h"
#include "models/maker.h"

namespace ingot::models {

using ir::Expr;
using ir::ExprKind;
using ir::ExprPtr;
using ir::kNone;
using ir::UserError;
using ir::ValueId;

Built GraphMaker::run() {
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

Slot GraphMaker::input(const std::string& name) {
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

int64_t GraphMaker::size_of(const Expr& size, const Frame& frame) const {
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

ir::Type GraphMaker::type_of(const TypeText& text, const Frame& frame) const {
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

bool GraphMaker::taken(const ExprPtr& when, const Frame& frame) const {
  if (!when) return true;
  const ir::Constant value = ir::evaluate(*when, frame.scope());
  if (const bool* flag = std::get_if<bool>(&value.value)) return *flag;
  throw UserError(ir::expr_start(*when),
                  fmt::format("a condition is true or false, `{}` is {}", ir::expr_text(*when), ir::constant_text(value)));
}

void GraphMaker::declare_params(const Frame& frame) {
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

void GraphMaker::declare_stack_params() {
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    if (const BlockText* block = model_.find_block(blocks_[layer])) declare_params(layer_frame(*block, layer));
  }
}

Frame GraphMaker::sub_frame(const Frame& frame, const BlockText& block, const std::string& prefix) {
  Frame inner;
  inner.block = &block;
  inner.prefix = prefix;
  inner.places = frame.places;
  inner.config = frame.config;
  return inner;
}

Frame GraphMaker::layer_frame(const BlockText& block, size_t layer) const {
  std::string prefix = model_.stack->prefix.text;
  prefix.replace(prefix.find("{layer}"), 7, std::to_string(layer));
  Frame frame = sub_frame(*main_, block, prefix);
  const auto nth = std::count(blocks_.begin(), blocks_.begin() + static_cast<ptrdiff_t>(layer), block.name.text);
  frame.places["layer"] = {static_cast<double>(layer)};
  frame.places["nth"] = {static_cast<double>(nth)};
  frame.places["layers"] = {static_cast<double>(blocks_.size())};
  return frame;
}

void GraphMaker::hypers() {
  for (const Setting& setting : model_.train) {
    const auto value = train_.find(setting.name.text);
    if (value != train_.end()) out_.variables.push_back(hyper(setting, value->second));
  }
}

ir::Variable GraphMaker::hyper(const Setting& setting, double value) {
  ir::Variable variable;
  variable.name = setting.name.text;
  variable.role = ir::VariableRole::hyper;
  variable.type = {ir::DType::f32, {}};
  variable.init = fmt::format("{}", value);
  variable.trainable = false;
  variable.loc = setting.name.loc;
  return variable;
}

void GraphMaker::statements(Frame& frame) {
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

void GraphMaker::bind(const Word& name, Slot slot, Frame& frame) {
  if (frame.values.contains(name.text)) {
    report_.error(name.loc, fmt::format("`{}` has a value already{}", name.text, frame.where()));
    return;
  }
  frame.values[name.text] = slot;
  if (slot.state == Slot::State::value) out_.names.emplace(frame.full(name.text), slot.id);
}

std::vector<Slot> GraphMaker::assign(const Statement& statement, Frame& frame) {
  stem_ = frame.full(statement.names[0].text);
  std::vector<std::string> full;
  for (const Word& name : statement.names) full.push_back(frame.full(name.text));
  return results(*statement.expr, frame, full);
}

void GraphMaker::loss(Frame& frame) {
  if (!model_.loss) return;
  attempt([&] {
    const Expr& e = *model_.loss;
    stem_ = "loss";
    const bool is_op = e.kind == ExprKind::call && !is_constant_expr(e, frame) && !frame.block->find_use(e.text);
    const ir::OpDef* def = is_op ? find_callable(e.text) : nullptr;
    const size_t visible = def ? visible_results(*bind_call(*def, e).def) : 1;
    std::vector<Slot> slots;
    if (visible > 1) {
      slots =
          call_op(e, frame, visible == 2 ? std::vector<std::string>{"loss", "count"} : std::vector<std::string>(visible, "loss"));
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

void GraphMaker::scalar(const Expr& e, ValueId id, std::string_view what) const {
  const ir::Type& type = b_.type(id);
  if (type.shape.empty() && ir::is_float(type.dtype)) return;
  throw UserError(ir::expr_start(e), fmt::format("the {} is one number (f32[]), not {}; sum(...) makes one", what, type.text()));
}

void GraphMaker::outputs(Frame& frame) {
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

void GraphMaker::keep(const std::string& name) {
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
