#include "codegen/cpu/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace ingot::codegen::cpu {

using ir::DType;

std::string_view storage_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::bf16:
      return "ig_bf16";
    case DType::f16:
      return "ig_f16";
    case DType::i32:
      return "int32_t";
    case DType::i64:
      return "int64_t";
    case DType::boolean:
      return "uint8_t";
  }
  throw ir::InternalError("storage_type: no such dtype");
}

std::string_view arithmetic_type(DType dtype) {
  if (is_float(dtype)) return "float";
  return dtype == DType::boolean ? "bool" : storage_type(dtype);
}

DType accumulator_dtype(DType operand, DType result) { return is_float(operand) || is_float(result) ? DType::f32 : DType::i64; }

std::string_view accumulator_type(DType operand, DType result) { return storage_type(accumulator_dtype(operand, result)); }

std::string literal(double value, bool integer) {
  if (integer) {
    const auto whole = static_cast<int64_t>(value);
    const char* suffix = whole >= INT32_MIN && whole <= INT32_MAX ? "" : "ll";
    return whole < 0 ? fmt::format("({}{})", whole, suffix) : fmt::format("{}{}", whole, suffix);
  }
  const auto rounded = static_cast<float>(value);
  if (std::isnan(rounded)) return "IG_NAN";
  if (std::isinf(rounded)) return rounded < 0 ? "(-IG_INF)" : "IG_INF";
  std::string text = fmt::format("{:.9g}", rounded);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  text += "f";
  return std::signbit(rounded) ? "(" + text + ")" : text;
}

namespace {

std::string attr_literal(const ir::Attr& attr, bool integer) {
  switch (ir::attr_kind(attr)) {
    case ir::AttrKind::boolean:
      return std::get<bool>(attr) ? "true" : "false";
    case ir::AttrKind::integer:
      return literal(static_cast<double>(std::get<int64_t>(attr)), true);
    case ir::AttrKind::real:
      return literal(std::get<double>(attr), integer);
    default:
      throw ir::InternalError("a body mentions an attribute that is not a number: " + ir::attr_text(attr));
  }
}

bool part_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

std::string substitute_attrs(const std::string& body, const ir::Attrs& attrs, bool integer) {
  std::string out;
  size_t at = 0;
  while (at < body.size()) {
    const bool mention = body.compare(at, 2, "p.") == 0 && (at == 0 || !part_of_name(body[at - 1]));
    if (!mention) {
      out += body[at++];
      continue;
    }
    size_t end = at + 2;
    while (end < body.size() && part_of_name(body[end])) ++end;
    const std::string name = body.substr(at + 2, end - at - 2);
    const ir::Attr* attr = attrs.find(name);
    ir::check(attr != nullptr, fmt::format("body \"{}\" mentions the absent attribute {}", body, name));
    out += attr_literal(*attr, integer);
    at = end;
  }
  return out;
}

Tiling tile(int64_t rows, int64_t columns, int64_t elements) {
  Tiling out;
  rows = std::max<int64_t>(rows, 1);
  columns = std::max<int64_t>(columns, 1);
  out.columns_per_task = columns <= 2 * elements ? columns : elements;
  out.rows_per_task = std::max<int64_t>(1, std::min(rows, elements / out.columns_per_task));
  const int64_t down = (rows + out.rows_per_task - 1) / out.rows_per_task;
  out.tasks = down * ((columns + out.columns_per_task - 1) / out.columns_per_task);
  return out;
}

LaunchArg operand_arg(int index) { return {LaunchArg::Kind::operand, index, ir::AccessMode::read}; }
LaunchArg result_arg(int index, ir::AccessMode mode) { return {LaunchArg::Kind::result, index, mode}; }
LaunchArg workspace_arg(int index, ir::AccessMode mode) { return {LaunchArg::Kind::workspace, index, mode}; }

std::string kernel_text(const std::vector<std::string_view>& includes, const std::string& body) {
  std::string out;
  for (std::string_view name : includes) out += fmt::format("#include \"{}\"\n", name);
  return out + "extern \"C\" void KERNEL(void* const* args, const int64_t* sizes, int64_t task) {\n" + body + "}\n";
}

std::string input_pointer(std::string_view type, int arg) { return fmt::format("static_cast<const {}*>(args[{}])", type, arg); }
std::string output_pointer(std::string_view type, int arg) { return fmt::format("static_cast<{}*>(args[{}])", type, arg); }

}  // namespace ingot::codegen::cpu
