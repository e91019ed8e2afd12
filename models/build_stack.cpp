// Blocks called by blocks, the stack that runs them, and split.
#include <fmt/format.h>

#include <algorithm>

#include "ir/base/error.h"
#include "ir/graph/op_def.h"
#include "models/maker.h"

namespace ingot::models {

using ir::Expr;
using ir::ExprKind;
using ir::ExprPtr;
using ir::kNone;
using ir::UserError;
using ir::ValueId;

std::vector<Slot> GraphMaker::call_block(const Expr& e, Frame& frame) {
  const UseText& use = *frame.block->find_use(e.text);
  const BlockText* block = model_.find_block(use.block.text);
  if (!block) throw Poisoned();
  if (!e.keywords.empty() || e.args.size() != block->in.size()) {
    throw UserError(e.loc, fmt::format("{} ({}) takes {} value{} by position, not {}", e.text, block->name.text, block->in.size(),
                                       block->in.size() == 1 ? "" : "s", e.args.size() + e.keywords.size()));
  }
  Frame inner = sub_frame(frame, *block, frame.full(e.text));
  for (size_t i = 0; i < e.args.size(); ++i) inner.values[block->in[i].text] = argument(*e.args[i], frame);
  return run_block(inner, e.loc);
}

std::vector<Slot> GraphMaker::run_block(Frame& frame, ir::Loc loc) {
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

std::vector<Slot> GraphMaker::split(const Expr& e, Frame& frame, const std::vector<std::string>& names) {
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

std::vector<Slot> GraphMaker::stack(const Expr& e, Frame& frame, const std::vector<std::string>& names) {
  if (!frame.prefix.empty() || !model_.stack) throw UserError(e.loc, "there is no `stack` section to run here");
  const std::vector<Word>& carry = model_.stack->carry;
  if (e.args.size() != carry.size() || !e.keywords.empty()) {
    throw UserError(e.loc, fmt::format("stack carries {} value{}, so it takes as many first ones (or none), not {}", carry.size(),
                                       carry.size() == 1 ? "" : "s", e.args.size() + e.keywords.size()));
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

void GraphMaker::step(Frame frame, std::map<std::string, Slot>& carried, ir::Loc loc) {
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

void GraphMaker::residual(const Slot& slot) {
  if (slot.state == Slot::State::value) out_.residual.push_back(out_.graph.value(slot.id).name);
}

void GraphMaker::residual(const Slot& before, const Slot& after) {
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

}  // namespace ingot::models
