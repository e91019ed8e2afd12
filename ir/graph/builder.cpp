#include "ir/graph/builder.h"

#include <algorithm>

#include "ir/base/text.h"

namespace ingot::ir {
namespace {

[[noreturn]] void refuse(Loc loc, const OpDef& def, const std::string& message) {
  throw UserError(loc, def.name + ": " + message);
}

void check_operands(const OpDef& def, std::vector<ValueId>& operands, Loc loc) {
  const size_t declared = def.operands.size();
  if (def.variadic()) {
    if (operands.size() < declared) refuse(loc, def, "needs at least " + std::to_string(declared) + " operands");
  } else {
    if (operands.size() > declared) {
      refuse(loc, def, "takes " + std::to_string(declared) + " operands, but was given " + std::to_string(operands.size()));
    }
    operands.resize(declared, kNone);
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const OperandDef& operand = def.operands[std::min(i, declared - 1)];
    if (operands[i] == kNone && !operand.optional) refuse(loc, def, "operand '" + operand.name + "' is missing");
  }
}

void check_attrs(const OpDef& def, Attrs& attrs, Loc loc) {
  for (const auto& [name, value] : attrs) {
    const AttrDef* attr = def.find_attr(name);
    if (!attr || attr->name != name) {
      std::vector<std::string> known;
      for (const AttrDef& a : def.attrs) known.push_back(a.name);
      const std::string nearest = nearest_name(name, known);
      refuse(loc, def, "has no attribute '" + name + "'" + (nearest.empty() ? "" : " (did you mean '" + nearest + "'?)"));
    }
    if (attr_kind(value) != attr->kind) {
      refuse(loc, def,
             "attribute '" + name + "' must be " + std::string(attr_kind_text(attr->kind)) + ", but is " + attr_text(value));
    }
  }
  for (const AttrDef& attr : def.attrs) {
    if (attrs.has(attr.name) || attr.unset_ok) continue;
    if (attr.required) refuse(loc, def, "attribute '" + attr.name + "' is missing");
    attrs.set(attr.name, attr.fallback);
  }
}

// Made unique one by one: the results of one op must not take each other's names either.
std::vector<std::string> unique_names(const Graph& graph, const std::vector<std::string>& wanted) {
  std::vector<std::string> unique;
  for (const std::string& name : wanted) {
    std::string candidate = graph.unique_name(name);
    for (int n = 2; std::find(unique.begin(), unique.end(), candidate) != unique.end(); ++n) {
      candidate = graph.unique_name((name.empty() ? "v" : name) + "." + std::to_string(n));
    }
    unique.push_back(std::move(candidate));
  }
  return unique;
}

constexpr int64_t kMostElements = int64_t{1} << 40;

void check_sizes(const OpDef& def, const std::vector<Type>& types, Loc loc) {
  for (const Type& type : types) {
    int64_t count = 1;
    for (int64_t size : type.shape) {
      if (size < 1) refuse(loc, def, "every axis must be at least 1 long, but the result would be " + type.text());
      if (size > kMostElements / count) refuse(loc, def, "the result would be too large: " + type.text());
      count *= size;
    }
  }
}

}  // namespace

const Op& Builder::op(const OpDef& def, std::vector<ValueId> operands, Attrs attrs, std::vector<std::string> names) {
  check_operands(def, operands, loc_);
  check_attrs(def, attrs, loc_);
  if (def.normalize) def.normalize(attrs, InferContext(graph_, def, operands, attrs, loc_));
  InferContext context(graph_, def, operands, attrs, loc_);
  check(static_cast<bool>(def.infer), [&] { return "op '" + def.name + "' has no inference"; });
  def.infer(context);
  std::vector<Type> types = context.take_results();
  check(types.size() == def.results.size(),
        [&] { return "op '" + def.name + "': inference gave another number of results than declared"; });
  check_sizes(def, types, loc_);
  for (size_t i = names.size(); i < types.size(); ++i) {
    names.push_back(i == 0 || name_.empty() ? name_ : name_ + "." + def.results[i].name);
  }
  Op op;
  op.def = &def;
  op.operands = std::move(operands);
  op.attrs = std::move(attrs);
  op.phase = phase_;
  op.loc = loc_;
  return graph_.op(graph_.append(std::move(op), unique_names(graph_, names), std::move(types)));
}

const Op& Builder::op(std::string_view name, std::vector<ValueId> operands, Attrs attrs, std::vector<std::string> names) {
  return op(op_def(name), std::move(operands), std::move(attrs), std::move(names));
}

ValueId Builder::make(std::string_view name, std::vector<ValueId> operands, Attrs attrs) {
  return op(name, std::move(operands), std::move(attrs)).results[0];
}

const Op& Builder::fuse(std::vector<ValueId> operands, Graph region, std::string_view kind, std::vector<std::string> names,
                        int64_t rows) {
  Op op;
  op.def = &op_def("fuse");
  op.operands = std::move(operands);
  op.attrs.set("kind", std::string(kind));
  if (rows > 0) op.attrs.set("rows", rows);
  op.phase = phase_;
  op.loc = loc_;
  std::vector<Type> types;
  for (const Output& output : region.outputs()) types.push_back(region.type(output.value));
  names.resize(types.size(), name_);
  op.region = std::make_shared<const Graph>(std::move(region));
  return graph_.op(graph_.append(std::move(op), unique_names(graph_, names), std::move(types)));
}

// Sources have no operands to infer from: their type is given.
ValueId Builder::input(std::string_view name, Type type) {
  Op op;
  op.def = &op_def("input");
  op.phase = phase_;
  op.loc = loc_;
  return graph_.op(graph_.append(std::move(op), {std::string(name)}, {std::move(type)})).results[0];
}

ValueId Builder::variable(const Variable& variable) {
  const ValueId existing = graph_.find(variable.name);
  if (existing != kNone && graph_.maker(existing).name() == "variable") return existing;
  Op op;
  op.def = &op_def("variable");
  op.attrs.set("name", variable.name);
  op.attrs.set("role", std::string(variable_role_name(variable.role)));
  op.phase = Phase::forward;
  op.loc = variable.loc;
  return graph_.op(graph_.append(std::move(op), {variable.name}, {variable.type})).results[0];
}

ValueId Builder::constant(double value, DType dtype) {
  Attrs attrs;
  attrs.set("value", value);
  attrs.set("dtype", dtype);
  return op("constant", {}, std::move(attrs), {""}).results[0];
}

ValueId Builder::full(double value, Type type) { return broadcast(constant(value, type.dtype), type.shape); }

ValueId Builder::cast(ValueId a, DType dtype) {
  if (type(a).dtype == dtype) return a;
  Attrs attrs;
  attrs.set("dtype", dtype);
  return make("cast", {a}, std::move(attrs));
}

namespace {
Attrs with(std::string_view name, Attr value) {
  Attrs attrs;
  attrs.set(name, std::move(value));
  return attrs;
}
Attrs reduce_attrs(std::vector<int64_t> axes, bool keep) {
  Attrs attrs = with("axes", std::move(axes));
  attrs.set("keep", keep);
  return attrs;
}
}  // namespace

ValueId Builder::reshape(ValueId a, Shape to) { return shape(a) == to ? a : make("reshape", {a}, with("shape", std::move(to))); }

ValueId Builder::broadcast(ValueId a, Shape to) {
  return shape(a) == to ? a : make("broadcast", {a}, with("shape", std::move(to)));
}

ValueId Builder::transpose(ValueId a, std::vector<int64_t> perm) { return make("transpose", {a}, with("perm", std::move(perm))); }

ValueId Builder::slice(ValueId a, std::vector<int64_t> starts, std::vector<int64_t> sizes) {
  Attrs attrs = with("starts", std::move(starts));
  attrs.set("sizes", std::move(sizes));
  return make("slice", {a}, std::move(attrs));
}

ValueId Builder::sum(ValueId a, std::vector<int64_t> axes, bool keep) {
  return make("sum", {a}, reduce_attrs(std::move(axes), keep));
}

ValueId Builder::sum(ValueId a, std::vector<int64_t> axes, bool keep, DType dtype) {
  Attrs attrs = reduce_attrs(std::move(axes), keep);
  if (dtype != type(a).dtype) attrs.set("dtype", dtype);
  return make("sum", {a}, std::move(attrs));
}

ValueId Builder::mean(ValueId a, std::vector<int64_t> axes, bool keep) {
  return make("mean", {a}, reduce_attrs(std::move(axes), keep));
}

ValueId Builder::max(ValueId a, std::vector<int64_t> axes, bool keep) {
  return make("max", {a}, reduce_attrs(std::move(axes), keep));
}

ValueId Builder::matmul(ValueId a, ValueId b, bool ta, bool tb) {
  Attrs attrs = with("ta", ta);
  attrs.set("tb", tb);
  return make("matmul", {a, b}, std::move(attrs));
}

ValueId Builder::matmul(ValueId a, ValueId b, bool ta, bool tb, DType dtype) {
  Attrs attrs = with("ta", ta);
  attrs.set("tb", tb);
  if (dtype != promote({type(a), type(b)})) attrs.set("dtype", dtype);
  return make("matmul", {a, b}, std::move(attrs));
}

ValueId Builder::concat(std::vector<ValueId> parts, int64_t axis) { return make("concat", std::move(parts), with("axis", axis)); }

// ---------------------------------------------------------------- Rewriter

Rewriter::Rewriter(const Graph& from, Graph& to) : from_(from), builder_(to), map_(from.values().size(), kNone) {}

ValueId Rewriter::operator()(ValueId old) const {
  if (old == kNone) return kNone;
  check(map_[old] != kNone, [&] { return "rewriter: %" + from_.value(old).name + " was dropped but is still used"; });
  return map_[old];
}

void Rewriter::copy(const Op& op) {
  std::vector<ValueId> operands;
  for (ValueId operand : op.operands) operands.push_back((*this)(operand));
  copy_on(op, std::move(operands));
}

void Rewriter::copy_on(const Op& op, std::vector<ValueId> operands) {
  Op made;
  made.def = op.def;
  made.operands = std::move(operands);
  made.attrs = op.attrs;
  made.region = op.region;
  made.phase = op.phase;
  made.loc = op.loc;
  std::vector<std::string> names;
  std::vector<Type> types;
  for (ValueId result : op.results) {
    names.push_back(builder_.graph().unique_name(from_.value(result).name));
    types.push_back(from_.type(result));
  }
  const Op& placed = builder_.graph().op(builder_.graph().append(std::move(made), std::move(names), std::move(types)));
  for (size_t i = 0; i < op.results.size(); ++i) map_[op.results[i]] = placed.results[i];
}

const Op& Rewriter::copy_with(const Op& op, std::vector<ValueId> operands, Attrs attrs) {
  at(op);
  std::vector<std::string> names;
  for (ValueId result : op.results) names.push_back(from_.value(result).name);
  const Op& placed = builder_.op(*op.def, std::move(operands), std::move(attrs), std::move(names));
  for (size_t i = 0; i < op.results.size(); ++i) map_[op.results[i]] = placed.results[i];
  return placed;
}

void Rewriter::at(const Op& op) {
  builder_.set_loc(op.loc);
  builder_.set_phase(op.phase);
  builder_.set_name(op.results.empty() ? "" : from_.value(op.results[0]).name);
}

void Rewriter::finish() {
  for (const Output& output : from_.outputs()) builder_.graph().add_output({output.name, (*this)(output.value), output.loc});
  for (const Update& update : from_.updates()) builder_.graph().add_update({update.variable, (*this)(update.value), update.loc});
}

}  // namespace ingot::ir
