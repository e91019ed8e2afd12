// How generated code spells types, literals and bodies, the same for every target whose kernels are C++; and a launch's
// arguments.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "codegen/target.h"
#include "ir/graph/op_def.h"

namespace ingot::codegen {

/// What a buffer of this dtype holds: "float", "ig_bf16", "int32_t", ... (bool is uint8_t).
std::string_view storage_type(ir::DType dtype);
/// "uint16_t" for two bytes, ...: for moving elements unseen.
std::string_view bits_type(ir::DType dtype);
/// In which the elements of an operand take part in arithmetic: "float", "int32_t", "int64_t" or "bool".
std::string_view arithmetic_type(ir::DType dtype);
/// "float" or "int64_t": what a reduction of these adds in.
std::string_view accumulator_type(ir::DType operand, ir::DType result);
ir::DType accumulator_dtype(ir::DType operand, ir::DType result);

/// The index along an axis of `size` places, each of them `inner` columns wide, of a column among `columns`: with neither a
/// division nor a remainder where there is nothing to leave out.
std::string axis_index(const std::string& column, int64_t inner, int64_t size, int64_t columns);

/// A C++ literal in parentheses where needed: an f32, or a whole number when `integer`.
std::string literal(double value, bool integer);
/// The body with every p.NAME replaced by that attribute's literal. Reals are whole numbers when `integer`.
std::string substitute_attrs(const std::string& body, const ir::Attrs& attrs, bool integer = false);

LaunchArg operand_arg(int index);
LaunchArg result_arg(int index, ir::AccessMode mode = ir::AccessMode::write);
LaunchArg workspace_arg(int index, ir::AccessMode mode);

}  // namespace ingot::codegen
