#include "codegen/cuda/region_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ir/base/error.h"

namespace ingot::codegen::cuda {

using ir::kNone;
using ir::Op;
using ir::ValueId;
using passes::RegionStep;
using passes::RowAccess;
using passes::RowClass;
using passes::StepKind;

RegionText::RegionText(const Site& site, passes::RegionPlan plan) : site_(site), body_(*site.op.region), plan_(std::move(plan)) {
  for (const Op& op : body_.ops()) {
    if (op.name() == "input") inputs_[op.results[0]] = static_cast<int>(inputs_.size());
  }
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    if (stored(i)) outputs_of_[plan_.outputs[i]].push_back(static_cast<int>(i));
  }
  find_streams();
}

bool RegionText::is_literal(ValueId value) const {
  return !computed(value) && std::holds_alternative<ir::GenerateLowering>(body_.maker(value).def->lowering);
}

bool RegionText::read_inside(ValueId value) const {
  return std::any_of(plan_.steps.begin(), plan_.steps.end(), [&](const RegionStep& step) {
    return std::any_of(step.reads.begin(), step.reads.end(), [&](const RowAccess& read) { return read.base == value; });
  });
}

bool RegionText::per_row(RowClass c) { return c == RowClass::full || c == RowClass::head || c == RowClass::row; }

RowClass RegionText::reader_of(const RegionStep& step) {
  return step.kind == StepKind::elementwise || step.kind == StepKind::generate ? step.result : step.over;
}

int RegionText::stream_of(const RowAccess& read, RowClass reader) {
  Stream stream;
  const bool has_columns = reader == RowClass::full || reader == RowClass::column;
  stream.input = inputs_.at(read.base);
  stream.offset = read.offset;
  stream.row = per_row(reader) ? read.row : 0;
  stream.unit = has_columns ? read.unit : 0;
  stream.head = (has_columns || reader == RowClass::head) && plan_.groups > 1 ? read.head : 0;
  stream.dtype = body_.type(read.base).dtype;
  using K = Stream::Kind;
  stream.kind = stream.unit == 1 ? K::vector : stream.unit != 0 ? K::strided : stream.head != 0 ? K::per_head : K::uniform;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const Stream& s = streams_[i];
    if (s.input == stream.input && s.offset == stream.offset && s.row == stream.row && s.head == stream.head &&
        s.unit == stream.unit)
      return static_cast<int>(i);
  }
  streams_.push_back(stream);
  return static_cast<int>(streams_.size()) - 1;
}

void RegionText::find_streams() {
  for (const RegionStep& step : plan_.steps) {
    for (const RowAccess& read : step.reads) {
      if (read.base == kNone || computed(read.base) || is_literal(read.base)) continue;
      Stream& stream = streams_[static_cast<size_t>(stream_of(read, reader_of(step)))];
      stream.lead = std::max(stream.lead, step.lead + read.shift);
      stream.least = std::min(stream.least, step.lead + read.shift);
      stream.low = std::min(stream.low, step.low + read.shift);
      stream.early = stream.early || shared(step);
    }
  }
}

bool RegionText::heads_matter() const {
  if (plan_.groups == 1) return false;
  for (const RegionStep& step : plan_.steps) {
    if (step.result == RowClass::head || step.over == RowClass::head) return true;
  }
  return std::any_of(streams_.begin(), streams_.end(), [&](const Stream& s) { return s.head != s.unit * plan_.n; });
}

bool RegionText::outlives_loop(ValueId value) const {
  const RegionStep& maker = step_of(value);
  for (const RegionStep& step : plan_.steps) {
    for (const RowAccess& read : step.reads) {
      if (read.base == value && (read.shift != 0 || !same_loop(maker, step))) return true;
    }
  }
  return false;
}

RowDemand RegionText::demand() const {
  RowDemand out;
  out.heads = heads_matter();
  out.registers = 2;
  for (const Stream& s : streams_) {
    const auto bytes = static_cast<double>(ir::dtype_bytes(s.dtype));
    if (s.full()) out.registers += s.depth() * bytes / 4;
    out.halo = out.halo || s.depth() > 1;
    if (!s.can_wait()) continue;
    if (s.full()) {
      out.waiting += s.depth() * bytes / 4;
      (s.row == 0 ? out.parameter_bytes : out.row_bytes) += bytes;
      out.aligned = std::min(out.aligned, alignment(s, 8));
      out.narrowest = std::min(out.narrowest, static_cast<int>(bytes));
    } else {
      ++out.small;
    }
    out.depth = std::max(out.depth, s.depth());
  }
  for (const RegionStep& step : plan_.steps) {
    const auto beside = [](const RowAccess& read) { return read.shift != 0; };
    out.halo = out.halo || step.depth > 1 || step.lead != 0 || std::any_of(step.reads.begin(), step.reads.end(), beside);
    if (step.kind == StepKind::column_sum) {
      out.sums = true;
      if (step.result == RowClass::column) out.lasting += 1;
      continue;
    }
    if (step.kind == StepKind::reduce_columns && step.result == RowClass::row) out.whole_rows = true;
    for (ValueId value : body_.op(step.op).results) {
      if (step.result == RowClass::column) out.lasting += 1;
      if (step.result == RowClass::full && outlives_loop(value)) out.lasting += step.depth;
    }
  }
  for (const auto& [value, outputs] : outputs_of_) {
    if (step_of(value).result == RowClass::full)
      out.registers += static_cast<double>(ir::dtype_bytes(body_.type(value).dtype)) / 4;
  }
  out.registers += out.lasting;
  return out;
}

std::string RegionText::literal_text(ValueId value) const {
  const Op& op = body_.maker(value);
  return substitute_attrs(std::get<ir::GenerateLowering>(op.def->lowering).body(op.attrs), op.attrs,
                          !is_float(body_.type(value).dtype));
}

namespace {

/// A generated value: its body with i0, i1, ... as the indices that the column at hand, of `columns`, has along the value's axes.
std::string generated_text(const Op& op, const ir::Type& type, const std::string& column, int64_t columns) {
  const std::string body =
      substitute_attrs(std::get<ir::GenerateLowering>(op.def->lowering).body(op.attrs), op.attrs, !is_float(type.dtype));
  std::string indices;
  int64_t inner = 1;
  for (size_t k = type.shape.size(); k-- > 0;) {
    indices += fmt::format("[[maybe_unused]] const int64_t i{} = {}; ", k, axis_index(column, inner, type.shape[k], columns));
    inner *= type.shape[k];
  }
  return fmt::format("[&] {{ {}return {}; }}()", indices, body);
}

}  // namespace

std::string RegionText::value_text(const RegionStep& step, size_t k, const std::function<std::string(const RowAccess&)>& read,
                                   const std::string& column) const {
  const Op& op = body_.op(step.op);
  const ValueId result = op.results[k];
  const ir::Type& type = body_.type(result);
  std::string operands, body;
  if (step.kind == StepKind::generate) {
    body = generated_text(op, type, column, per_row(step.result) ? type.elements() : plan_.columns());
  } else {
    for (size_t i = 0; i < step.reads.size(); ++i) {
      const ValueId base = step.reads[i].base;
      if (base == kNone) continue;
      operands += fmt::format("const {} a{} = {}; ", type_of(op.operands[i]), i,
                              is_literal(base) ? literal_text(base) : read(step.reads[i]));
    }
    // A reduction gets here when its rows have one element.
    const auto* scalar = std::get_if<ir::ScalarLowering>(&op.def->lowering);
    body = scalar ? substitute_attrs(scalar->bodies[k], op.attrs) : "a0";
  }
  // What nothing here reads is rounded as it is written, two by one instruction.
  const bool narrow = type.dtype != ir::DType::f32 && (op.attrs.has("dtype") || outputs_of_.contains(result));
  const bool rounds = !is_float(type.dtype) || (narrow && read_inside(result));
  if (rounds) body = fmt::format("ig_load(ig_store<{}>::from({}))", storage_type(type.dtype), body);
  return fmt::format("{} x{}; {{ {}x{} = {}; }}\n", type_of(result), result, operands, result, body);
}

std::string RegionText::accumulator(const Op& op) const {
  const ir::DType from = body_.type(op.operands[0]).dtype;
  const bool adds = std::get<ir::ReduceLowering>(op.def->lowering).combine == ir::Combine::sum;
  // The largest of 32-bit numbers is one of them; their sum may not be.
  if (!adds && from == ir::DType::i32) return std::string(storage_type(from));
  return std::string(accumulator_type(from, body_.type(op.results[0]).dtype));
}

std::string RegionText::store_scalar(ValueId value) const {
  std::string out;
  const auto outputs = outputs_of_.find(value);
  if (outputs == outputs_of_.end()) return out;
  for (const int output : outputs->second) {
    out += fmt::format("  if (blockIdx.x == 0 && threadIdx.x == 0) out{}[0] = ig_store<{}>::from(x{});\n", output,
                       storage_type(body_.type(value).dtype), value);
  }
  return out;
}

std::string RegionText::element_number(RowClass c, const std::string& row, const std::string& column) const {
  const std::string before = fmt::format("static_cast<int64_t>({}) * ", row);
  if (c == RowClass::full) return before + fmt::format("{} + {}", plan_.columns(), column);
  if (c == RowClass::head) return before + fmt::format("{} + ({}) / {}", plan_.groups, column, plan_.n);
  return c == RowClass::row ? before + "1" : column;
}

std::string RegionText::combiner(const Op& op) {
  static constexpr const char* kNames[] = {"ig_sum", "ig_maximum", "ig_minimum"};
  return kNames[static_cast<size_t>(std::get<ir::ReduceLowering>(op.def->lowering).combine)];
}

std::string RegionText::element_offset(const Stream& stream, const std::string& column) const {
  std::string out = std::to_string(stream.offset);
  if (stream.unit != 0 && (plan_.groups == 1 || stream.head == stream.unit * plan_.n)) {
    return out + (stream.unit == 1 ? " + " + column : fmt::format(" + ({}) * {}ll", column, stream.unit));
  }
  if (stream.head != 0) out += fmt::format(" + ({}) / {} * {}ll", column, plan_.n, stream.head);
  if (stream.unit != 0) out += fmt::format(" + ({}) % {} * {}ll", column, plan_.n, stream.unit);
  return out;
}

int64_t RegionText::alignment(const Stream& stream, int at_once) const {
  int64_t unit = std::gcd(std::gcd<int64_t>(at_once, stream.offset), stream.row);
  if (plan_.groups > 1 && stream.head != stream.unit * plan_.n) unit = std::gcd(unit, stream.head);
  return unit;
}

int64_t RegionText::partial_rows(ValueId value, const RowLayout& layout) const {
  return step_of(value).result == RowClass::scalar ? layout.blocks() : layout.ranges;
}

KernelBuilder RegionText::open_kernel(const RowLayout& layout, bool partials, OpLaunches& launches) const {
  KernelBuilder kernel("rows", layout.threads());
  kernel.include(layout.ahead > 0 || layout.slots > 0 ? "ring_cuda.inc" : "rows_cuda.inc");
  kernel.resident(layout.resident);
  kernel.blocks(layout.blocks());
  for (size_t i = 0; i < site_.op.operands.size(); ++i) {
    const auto added = site_.partials.find(static_cast<int>(i));
    if (added != site_.partials.end()) {
      kernel.argument(operand_arg(static_cast<int>(i)), "float", fmt::format("partials{}", i), true);
      kernel.before(
          fmt::format("  __shared__ float added{0};\n  ig_add_number(partials{0}, {1}, added{0});\n"
                      "  const float* const in{0} = &added{0};\n",
                      i, added->second));
      launches.added.push_back(static_cast<int>(i));
      continue;
    }
    kernel.argument(operand_arg(static_cast<int>(i)), storage_type(site_.graph.type(site_.op.operands[i]).dtype),
                    fmt::format("in{}", i), !site_.written_over(static_cast<int>(i)));
  }
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    const ValueId value = plan_.outputs[i];
    if (partials && sums_rows(i) && stored(i)) {
      kernel.argument(workspace_arg(static_cast<int>(launches.workspace_bytes.size()), ir::AccessMode::write), "float",
                      fmt::format("out{}", i), true);
      launches.workspace_bytes.push_back(partial_rows(value, layout) * sum_width(value) * 4);
    } else {
      kernel.argument(result_arg(static_cast<int>(i)), storage_type(body_.type(value).dtype), fmt::format("out{}", i),
                      !site_.stands_on_operand(static_cast<int>(i)));
    }
  }
  kernel.size(plan_.rows, "rows_size");
  kernel.size(layout.spread ? layout.row_teams() : layout.rows_each, "each_size");
  kernel.size(plan_.period, "period_size");
  return kernel;
}

std::vector<PendingSum> RegionText::pending_sums(const RowLayout& layout) const {
  std::vector<PendingSum> sums;
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    if (!sums_rows(i) || !stored(i)) continue;
    const ValueId value = plan_.outputs[i];
    sums.push_back({static_cast<int>(sums.size()),
                    static_cast<int>(i),
                    {partial_rows(value, layout), sum_width(value), body_.type(value).dtype}});
  }
  return sums;
}

}  // namespace ingot::codegen::cuda
