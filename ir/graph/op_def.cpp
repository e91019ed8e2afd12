#include "ir/graph/op_def.h"

#include <algorithm>

#include "ir/base/text.h"

namespace ingot::ir {

void define_all_ops(OpTable& table);  // generated from the file names of ir/ops/

bool Levels::allows(Level level) const {
  switch (level) {
    case Level::model:
      return model;
    case Level::train:
      return train;
    case Level::core:
      return core;
    case Level::fused:
      return fused;
  }
  return false;
}

bool View::contiguous() const {
  if (guard_axis >= 0) return false;
  int64_t expected = 1;
  for (size_t k = dims.size(); k-- > 0;) {
    if (dims[k] != 1 && strides[k] != expected) return false;
    expected *= dims[k];
  }
  return true;
}

// ---------------------------------------------------------------- fluent building

OpDef& OpDef::operand(std::string operand_name, std::string doc) {
  positional.push_back(operand_name);
  operands.push_back({std::move(operand_name), std::move(doc)});
  return *this;
}

OpDef& OpDef::optional_operand(std::string operand_name, std::string doc) {
  operand(std::move(operand_name), std::move(doc));
  operands.back().optional = true;
  return *this;
}

OpDef& OpDef::variadic_operand(std::string operand_name, std::string doc) {
  operand(std::move(operand_name), std::move(doc));
  operands.back().variadic = true;
  return *this;
}

OpDef& OpDef::port_operand(std::string operand_name, std::string doc) {
  OperandDef def{std::move(operand_name), std::move(doc)};
  def.optional = true;
  def.port = true;
  operands.push_back(std::move(def));  // keyword only: not in `positional`
  return *this;
}

OpDef& OpDef::attr(std::string attr_name, AttrKind kind, std::string doc) {
  positional.push_back(attr_name);
  AttrDef def;
  def.name = std::move(attr_name);
  def.doc = std::move(doc);
  def.kind = kind;
  attrs.push_back(std::move(def));
  return *this;
}

OpDef& OpDef::attr(std::string attr_name, AttrKind kind, Attr fallback, std::string doc) {
  attr(std::move(attr_name), kind, std::move(doc));
  check(attr_kind(fallback) == kind, "op '" + name + "': the default of '" + attrs.back().name + "' is of another kind");
  attrs.back().required = false;
  attrs.back().fallback = std::move(fallback);
  return *this;
}

OpDef& OpDef::optional_attr(std::string attr_name, AttrKind kind, std::string doc) {
  attr(std::move(attr_name), kind, std::move(doc));
  attrs.back().required = false;
  attrs.back().unset_ok = true;
  return *this;
}

OpDef& OpDef::alias(std::string alias_name) {
  check(!attrs.empty(), "alias() follows attr()");
  attrs.back().alias = std::move(alias_name);
  return *this;
}

OpDef& OpDef::result(std::string result_name, std::string doc) {
  results.push_back({std::move(result_name), std::move(doc)});
  return *this;
}

OpDef& OpDef::hidden_result(std::string result_name, std::string doc) {
  results.push_back({std::move(result_name), std::move(doc), true});
  return *this;
}

int OpDef::operand_index(std::string_view wanted) const {
  const auto at = std::find_if(operands.begin(), operands.end(), [&](const OperandDef& d) { return d.name == wanted; });
  return at == operands.end() ? -1 : static_cast<int>(at - operands.begin());
}

int OpDef::result_index(std::string_view wanted) const {
  const auto at = std::find_if(results.begin(), results.end(), [&](const ResultDef& d) { return d.name == wanted; });
  return at == results.end() ? -1 : static_cast<int>(at - results.begin());
}

const AttrDef* OpDef::find_attr(std::string_view wanted) const {
  for (const AttrDef& def : attrs) {
    if (def.name == wanted || (!def.alias.empty() && def.alias == wanted)) return &def;
  }
  return nullptr;
}

// ---------------------------------------------------------------- the table

OpDef& OpTable::add(std::string name) {
  check(!find(name), "op '" + name + "' is defined twice");
  defs_.push_back(std::make_unique<OpDef>());
  OpDef& def = *defs_.back();
  def.name = std::move(name);
  by_name_.emplace(def.name, &def);
  return def;
}

const OpDef* OpTable::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : at->second;
}

std::vector<const OpDef*> OpTable::all() const {
  std::vector<const OpDef*> list;
  for (const auto& def : defs_) list.push_back(def.get());
  std::sort(list.begin(), list.end(), [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  return list;
}

std::vector<std::string> OpTable::names() const {
  std::vector<std::string> list;
  for (const OpDef* def : all()) list.push_back(def->name);
  return list;
}

const OpTable& op_table() {
  static const OpTable table = [] {
    OpTable made;
    define_all_ops(made);
    return made;
  }();
  return table;
}

const OpDef& op_def(std::string_view name) {
  const OpDef* def = op_table().find(name);
  check(def, [&] { return "there is no op '" + std::string(name) + "'"; });
  return *def;
}

// ---------------------------------------------------------------- inference helpers

std::vector<Type> InferContext::types() const {
  std::vector<Type> list;
  for (int i = 0; i < operand_count(); ++i) {
    if (has(i)) list.push_back(type(i));
  }
  return list;
}

std::string InferContext::show(int i) const {
  if (!has(i)) return "none";
  return "%" + graph_.value(operands_[static_cast<size_t>(i)]).name + " is " + type(i).text();
}

void InferContext::fail(const std::string& message) const { throw UserError(loc_, def_.name + ": " + message); }

namespace {
std::string operand_name(const OpDef& def, int i) {
  const auto last = static_cast<int>(def.operands.size()) - 1;
  return def.operands[static_cast<size_t>(std::min(i, last))].name;
}
}  // namespace

void InferContext::need_float(int i) const {
  if (!is_float(type(i).dtype)) fail(operand_name(def_, i) + " must hold floats, but " + show(i));
}

void InferContext::need_integer(int i) const {
  if (type(i).dtype != DType::i32 && type(i).dtype != DType::i64)
    fail(operand_name(def_, i) + " must hold integers, but " + show(i));
}

void InferContext::need_rank(int i, int64_t rank) const {
  if (type(i).rank() != rank) fail(operand_name(def_, i) + " must have " + std::to_string(rank) + " axes, but " + show(i));
}

void InferContext::need_shape(int i, const Shape& shape, const std::string& why) const {
  if (type(i).shape != shape)
    fail(operand_name(def_, i) + " must have shape " + shape_text(shape) + " (" + why + "), but " + show(i));
}

void InferContext::need_same_shape(int i, int j) const {
  if (type(i).shape != type(j).shape) {
    fail(operand_name(def_, i) + " and " + operand_name(def_, j) + " must have the same shape, but " + show(i) + " and " +
         show(j));
  }
}

Shape InferContext::broadcast_all() const {
  Shape shape;
  int widest = -1;
  for (int i = 0; i < operand_count(); ++i) {
    if (!has(i)) continue;
    const auto joined = broadcast_shapes(shape, type(i).shape);
    if (!joined) fail("shapes do not broadcast: " + show(widest) + ", " + show(i));
    if (widest < 0 || type(i).rank() >= type(widest).rank()) widest = i;
    shape = *joined;
  }
  return shape;
}

int64_t InferContext::axis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank) {
    fail("axis " + std::to_string(axis) + " is outside " + std::to_string(-rank) + ".." + std::to_string(rank - 1) +
         (operand_count() > 0 && has(0) ? ": " + show(0) : ""));
  }
  return axis < 0 ? axis + rank : axis;
}

}  // namespace ingot::ir
