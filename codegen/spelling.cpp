#include "codegen/spelling.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

#include "ir/base/error.h"

namespace ingot::codegen {

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

std::string_view bits_type(ir::DType dtype) {
  switch (ir::dtype_bytes(dtype)) {
    case 1:
      return "uint8_t";
    case 2:
      return "uint16_t";
    case 4:
      return "uint32_t";
    default:
      return "uint64_t";
  }
}

std::string_view arithmetic_type(DType dtype) {
  if (is_float(dtype)) return "float";
  return dtype == DType::boolean ? "bool" : storage_type(dtype);
}

DType accumulator_dtype(DType operand, DType result) { return is_float(operand) || is_float(result) ? DType::f32 : DType::i64; }

std::string_view accumulator_type(DType operand, DType result) { return storage_type(accumulator_dtype(operand, result)); }

std::string axis_index(const std::string& column, int64_t inner, int64_t size, int64_t columns) {
  if (size == 1) return "0";
  std::string text = "(" + column + ")";
  if (inner > 1) text += fmt::format(" / {}", inner);
  if (inner * size < columns) text += fmt::format(" % {}", size);
  return text;
}

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
    ir::check(attr != nullptr, [&] { return fmt::format("body \"{}\" mentions the absent attribute {}", body, name); });
    out += attr_literal(*attr, integer);
    at = end;
  }
  return out;
}

LaunchArg operand_arg(int index) { return {LaunchArg::Kind::operand, index, ir::AccessMode::read}; }
LaunchArg result_arg(int index, ir::AccessMode mode) { return {LaunchArg::Kind::result, index, mode}; }
LaunchArg workspace_arg(int index, ir::AccessMode mode) { return {LaunchArg::Kind::workspace, index, mode}; }

}  // namespace ingot::codegen
