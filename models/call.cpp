#include "models/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/text.h"
#include "models/report.h"

namespace ingot::models {
namespace {

bool is_source(const ir::OpDef& def) {
  return std::holds_alternative<ir::SourceLowering>(def.lowering) || std::holds_alternative<ir::RegionLowering>(def.lowering);
}

/// Parameter names in positional order, ports left out.
std::vector<std::string> positional_names(const ir::OpDef& def) {
  std::vector<std::string> out;
  for (const std::string& name : def.positional) {
    const int operand = def.operand_index(name);
    if (operand < 0 || !def.operands[static_cast<size_t>(operand)].port) out.push_back(name);
  }
  return out;
}

std::vector<std::string> argument_names(const ir::OpDef& def) {
  std::vector<std::string> out;
  for (const ir::OperandDef& operand : def.operands) out.push_back(operand.name);
  for (const ir::AttrDef& attr : def.attrs) {
    out.push_back(attr.name);
    if (!attr.alias.empty()) out.push_back(attr.alias);
  }
  return out;
}

class Binder {
 public:
  Binder(const ir::OpDef& def, const ir::Expr& call) : def_(def), call_(call) { bound_.def = &def; }

  BoundCall run() {
    bound_.operands.resize(def_.operands.size());
    given_.resize(def_.operands.size(), false);
    positional();
    for (size_t i = 0; i < call_.keywords.size(); ++i)
      keyword(call_.keywords[i].first, call_.keywords[i].second, call_.keyword_locs[i]);
    missing();
    return std::move(bound_);
  }

 private:
  [[noreturn]] void fail(ir::Loc loc, const std::string& message) const {
    throw ir::UserError(loc, fmt::format("{}: {}", def_.name, message));
  }

  void positional() {
    const std::vector<std::string> names = positional_names(def_);
    size_t at = 0;
    for (const ir::ExprPtr& arg : call_.args) {
      if (at >= names.size()) {
        fail(arg->loc, fmt::format("takes {} positional argument{} ({}), not {}", names.size(), names.size() == 1 ? "" : "s",
                                   fmt::join(names, ", "), call_.args.size()));
      }
      const int operand = def_.operand_index(names[at]);
      if (operand >= 0 && def_.operands[static_cast<size_t>(operand)].variadic) {
        variadic(static_cast<size_t>(operand), arg);
        continue;
      }
      assign(names[at++], arg, arg->loc);
    }
  }

  /// Any number of values; a list stands for its items.
  void variadic(size_t operand, const ir::ExprPtr& arg) {
    if (!given_[operand]) bound_.operands.resize(operand);
    given_[operand] = true;
    if (arg->kind == ir::ExprKind::list) {
      bound_.operands.insert(bound_.operands.end(), arg->args.begin(), arg->args.end());
    } else {
      bound_.operands.push_back(arg);
    }
  }

  void keyword(const std::string& name, const ir::ExprPtr& value, ir::Loc loc) {
    if (def_.operand_index(name) < 0 && !def_.find_attr(name)) {
      const std::vector<std::string> names = argument_names(def_);
      std::string hint = did_you_mean(name, names);
      if (hint.empty()) hint = fmt::format(" (it takes {})", fmt::join(names, ", "));
      fail(loc, fmt::format("has no argument `{}`{}", name, hint));
    }
    assign(name, value, loc);
  }

  void assign(const std::string& name, const ir::ExprPtr& value, ir::Loc loc) {
    const int index = def_.operand_index(name);
    if (index >= 0) {
      const auto operand = static_cast<size_t>(index);
      if (given_[operand]) fail(loc, fmt::format("`{}` is given twice", name));
      if (def_.operands[operand].variadic) return variadic(operand, value);
      given_[operand] = true;
      if (value->kind == ir::ExprKind::none) {
        if (!def_.operands[operand].optional) fail(value->loc, fmt::format("`{}` cannot be none", name));
        return;
      }
      bound_.operands[operand] = value;
      return;
    }
    const ir::AttrDef* attr = def_.find_attr(name);
    for (const auto& [other, expr] : bound_.attrs) {
      if (other == attr) fail(loc, fmt::format("`{}` is given twice", name));
    }
    bound_.attrs.emplace_back(attr, value);
  }

  void missing() {
    for (size_t i = 0; i < def_.operands.size(); ++i) {
      const ir::OperandDef& operand = def_.operands[i];
      if (!given_[i] && !operand.optional) fail(call_.loc, fmt::format("`{}` is missing ({})", operand.name, operand.doc));
    }
    for (const ir::AttrDef& attr : def_.attrs) {
      const bool given = std::any_of(bound_.attrs.begin(), bound_.attrs.end(), [&](const auto& a) { return a.first == &attr; });
      if (attr.required && !given)
        fail(call_.loc, fmt::format("`{}` is missing ({})", attr.alias.empty() ? attr.name : attr.alias, attr.doc));
    }
    std::erase_if(bound_.attrs, [&](const auto& a) { return a.second->kind == ir::ExprKind::none && !a.first->required; });
  }

  const ir::OpDef& def_;
  const ir::Expr& call_;
  BoundCall bound_;
  std::vector<bool> given_;
};

/// Attributes stay far from where arithmetic on them overflows.
int64_t integer(const ir::OpDef& def, const ir::AttrDef& attr, const ir::Constant& value, ir::Loc loc) {
  const double n = value.is_number() ? value.number() : NAN;
  if (n != std::floor(n) || std::fabs(n) > 1099511627776.0) {
    throw ir::UserError(
        loc, fmt::format("{}: `{}` is a whole number of at most 2^40, not {}", def.name, attr.name, ir::constant_text(value)));
  }
  return static_cast<int64_t>(n);
}

}  // namespace

const ir::OpDef* find_callable(std::string_view name) {
  const ir::OpDef* def = ir::op_table().find(name);
  return def && def->levels.model && !is_source(*def) ? def : nullptr;
}

std::vector<std::string> callable_names() {
  std::vector<std::string> out;
  for (const ir::OpDef* def : ir::op_table().all()) {
    if (find_callable(def->name)) out.push_back(def->name);
  }
  return out;
}

std::string_view operator_op(const ir::Expr& expr) {
  static constexpr std::pair<std::string_view, std::string_view> kBinary[] = {
      {"+", "add"}, {"-", "sub"}, {"*", "mul"}, {"/", "div"}, {"%", "mod"}, {"@", "matmul"},        {"<", "lt"},
      {"<=", "le"}, {">", "gt"},  {">=", "ge"}, {"==", "eq"}, {"!=", "ne"}, {"and", "logical_and"}, {"or", "logical_or"}};
  if (expr.kind == ir::ExprKind::unary) return expr.text == "not" ? "logical_not" : "neg";
  for (const auto& [text, op] : kBinary) {
    if (text == expr.text) return op;
  }
  throw ir::InternalError("no op for the operator " + expr.text);
}

BoundCall bind_call(const ir::OpDef& def, const ir::Expr& call) {
  const bool binary = !def.binary_form.empty() && call.args.size() == 2 && call.keywords.empty();
  return Binder(binary ? ir::op_def(def.binary_form) : def, call).run();
}

ir::Attr attr_value(const ir::OpDef& def, const ir::AttrDef& attr, const ir::Expr& expr, const ir::ConstantScope& scope) {
  if (attr.kind == ir::AttrKind::dtype) {
    const auto dtype = expr.kind == ir::ExprKind::name ? ir::dtype_from_name(expr.text) : std::nullopt;
    if (!dtype)
      throw ir::UserError(expr.loc, fmt::format("{}: `{}` is one of f32, bf16, f16, i32, i64, bool", def.name, attr.name));
    return *dtype;
  }
  const ir::Constant value = ir::evaluate(expr, scope);
  const auto wrong = [&]() -> ir::UserError {
    return {expr.loc,
            fmt::format("{}: `{}` is {}, not {}", def.name, attr.name, ir::attr_kind_text(attr.kind), ir::constant_text(value))};
  };
  const ir::ConstantList* list = std::get_if<ir::ConstantList>(&value.value);
  const ir::ConstantList items = list ? *list : ir::ConstantList{value};
  switch (attr.kind) {
    case ir::AttrKind::boolean:
      if (!std::holds_alternative<bool>(value.value)) throw wrong();
      return std::get<bool>(value.value);
    case ir::AttrKind::integer:
      return integer(def, attr, value, expr.loc);
    case ir::AttrKind::real:
      if (!value.is_number()) throw wrong();
      return value.number();
    case ir::AttrKind::text:
      if (!std::holds_alternative<std::string>(value.value)) throw wrong();
      return std::get<std::string>(value.value);
    case ir::AttrKind::integers: {
      std::vector<int64_t> out;
      for (size_t i = 0; i < items.size(); ++i) {
        const bool in_list = expr.kind == ir::ExprKind::list;
        out.push_back(integer(def, attr, items[i], in_list ? expr.args[i]->loc : expr.loc));
      }
      return out;
    }
    case ir::AttrKind::reals: {
      std::vector<double> out;
      for (const ir::Constant& item : items) {
        if (!item.is_number()) throw wrong();
        out.push_back(item.number());
      }
      return out;
    }
    case ir::AttrKind::dtype:
      break;
  }
  throw ir::InternalError("unknown attribute kind");
}

size_t visible_results(const ir::OpDef& def) {
  const auto hidden = std::find_if(def.results.begin(), def.results.end(), [](const ir::ResultDef& r) { return r.hidden; });
  return static_cast<size_t>(hidden - def.results.begin());
}

bool is_constant(const ir::Expr& expr, const std::function<bool(const std::string&)>& is_constant_name) {
  switch (expr.kind) {
    case ir::ExprKind::none:
      return false;
    case ir::ExprKind::name:
      return is_constant_name(expr.text);
    case ir::ExprKind::call: {
      const std::vector<std::string>& known = ir::evaluator_functions();
      if (!expr.keywords.empty() || !std::binary_search(known.begin(), known.end(), expr.text)) return false;
      break;
    }
    default:
      break;
  }
  return std::all_of(expr.args.begin(), expr.args.end(),
                     [&](const ir::ExprPtr& arg) { return is_constant(*arg, is_constant_name); });
}

}  // namespace ingot::models
