#include "runtime/ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/convert.h"

namespace ingot::runtime {
namespace {

[[noreturn]] void unknown(const std::string& what, const std::string& name, const std::vector<std::string>& names) {
  const std::string near = ir::nearest_name(name, names);
  throw ir::UserError(ir::Loc{}, fmt::format("the plan has no {} '{}'{}", what, name,
                                             near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

const ir::Buffer& port(const ir::Plan& plan, const std::string& program, const std::vector<ir::Port>& ports,
                       const std::string& name, const char* what) {
  std::vector<std::string> names;
  for (const ir::Port& p : ports) {
    if (p.name == name) return plan.buffers[p.buffer];
    names.push_back(p.name);
  }
  unknown(fmt::format("{} of program {} named", what, program), name, names);
}

void check_shape(const std::string& what, const ir::Type& want, const ir::Type& got) {
  if (want.shape == got.shape) return;
  throw ir::UserError(ir::Loc{}, fmt::format("{} is {}, the value given is {}", what, want.text(), got.text()));
}

std::string position(const ir::Shape& shape, int64_t index) {
  ir::Shape at(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; index /= shape[axis]) at[axis] = index % shape[axis];
  return ir::shape_text(at);
}

}  // namespace

const ir::Program& Ports::program(const std::string& name) const {
  if (const ir::Program* found = plan_.find_program(name)) return *found;
  std::vector<std::string> names;
  for (const ir::Program& program : plan_.programs) names.push_back(program.name);
  unknown("program", name, names);
}

const ir::Buffer& Ports::input(const std::string& name, const std::string& input) const {
  return port(plan_, name, program(name).inputs, input, "input");
}

const ir::Buffer& Ports::output(const std::string& name, const std::string& output) const {
  return port(plan_, name, program(name).outputs, output, "output");
}

const ir::Buffer& Ports::variable(const std::string& name) const {
  if (const ir::Binding* found = plan_.find_binding(name)) return plan_.buffers[found->buffer];
  std::vector<std::string> names;
  for (const ir::Binding& b : plan_.bindings) names.push_back(b.variable.name);
  unknown("variable", name, names);
}

void Ports::check_input(const std::string& program, const std::string& name, const HostTensor& value) const {
  const ir::Buffer& b = input(program, name);
  const std::string what = fmt::format("input {} of program {}", name, program);
  check_shape(what, b.type, value.type);
  check_range(what, name, b.type.dtype, value);
}

void Ports::check_variable(const std::string& name, const HostTensor& value) const {
  check_shape("variable " + name, variable(name).type, value.type);
}

void Ports::check_range(const std::string& what, const std::string& name, ir::DType dtype, const HostTensor& value) const {
  if (ir::is_float(dtype)) return;
  double lo = dtype == ir::DType::i32 ? std::numeric_limits<int32_t>::min() : -0x1p63;
  double hi = dtype == ir::DType::i32 ? std::numeric_limits<int32_t>::max() : 0x1p63;
  std::vector<int64_t> also;
  for (const ir::InputRange& range : plan_.ranges) {
    if (range.input != name) continue;
    lo = static_cast<double>(range.lo);
    hi = static_cast<double>(range.hi);
    also = range.also;
  }
  const int64_t width = ir::dtype_bytes(value.type.dtype);
  for (int64_t i = 0; i < value.type.elements(); ++i) {
    const double x = load_double(value.type.dtype, value.bytes.data() + i * width);
    if (x >= lo && x <= hi && x == std::floor(x)) continue;
    if (std::find(also.begin(), also.end(), static_cast<int64_t>(x)) != also.end()) continue;
    throw ir::UserError(ir::Loc{},
                        fmt::format("{}: {} at position {} is outside {} .. {}", what, x, position(value.type.shape, i), lo, hi));
  }
}

void convert_elements(const HostTensor& from, ir::DType dtype, std::byte* to) {
  if (from.type.dtype == dtype) {
    std::memcpy(to, from.bytes.data(), from.bytes.size());
    return;
  }
  const int64_t in = ir::dtype_bytes(from.type.dtype), out = ir::dtype_bytes(dtype);
  for (int64_t i = 0; i < from.type.elements(); ++i) {
    store_double(dtype, load_double(from.type.dtype, from.bytes.data() + i * in), to + i * out);
  }
}

}  // namespace ingot::runtime
