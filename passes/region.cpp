#include "passes/region.h"

#include <algorithm>
#include <set>

#include "ir/base/error.h"
#include "passes/storage.h"

namespace ingot::passes {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::Shape;
using ir::ValueId;

std::string_view row_class_name(RowClass c) {
  static constexpr std::string_view kNames[] = {"scalar", "column", "row", "head", "full"};
  return kNames[static_cast<size_t>(c)];
}

namespace {

struct Refusal {
  std::string why;
};
[[noreturn]] void refuse(std::string why) { throw Refusal{std::move(why)}; }

// How many leading axes make up the rows; nullopt when no prefix has exactly R elements.
std::optional<size_t> row_axes(const Shape& shape, int64_t rows) {
  int64_t product = 1;
  for (size_t p = 0;; ++p) {
    if (product == rows) return p;
    if (p == shape.size() || product > rows) return std::nullopt;
    product *= shape[p];
  }
}

int64_t tail_product(const Shape& shape, size_t from) {
  int64_t product = 1;
  for (size_t i = from; i < shape.size(); ++i) product *= shape[i];
  return product;
}

// Adjacent dims as one stride, or nullopt when they are not evenly spaced.
std::optional<int64_t> collapse(const Shape& dims, const std::vector<int64_t>& strides) {
  int64_t stride = 0, size = 1;
  for (size_t k = dims.size(); k-- > 0;) {
    if (dims[k] == 1) continue;
    if (size == 1) {
      stride = strides[k];
    } else if (strides[k] != stride * size) {
      return std::nullopt;
    }
    size *= dims[k];
  }
  return stride;
}

// Splits a list of dims where the product of the outer ones reaches `outer`; may cut one dim in two.
bool take_outer(Shape& dims, std::vector<int64_t>& strides, int64_t outer, Shape& outer_dims,
                std::vector<int64_t>& outer_strides) {
  size_t k = 0;
  for (; outer > 1 && k < dims.size(); ++k) {
    if (outer % dims[k] == 0) {
      outer /= dims[k];
      outer_dims.push_back(dims[k]);
      outer_strides.push_back(strides[k]);
      continue;
    }
    if (dims[k] % outer != 0) return false;
    const int64_t inner = dims[k] / outer;
    outer_dims.push_back(outer);
    outer_strides.push_back(strides[k] * inner);
    dims[k] = inner;
    outer = 1;
    break;
  }
  dims.erase(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(k));
  strides.erase(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(k));
  return outer == 1;
}

class RegionPlanner {
 public:
  RegionPlanner(const Graph& body, int64_t rows) : body_(body) {
    plan_.rows = rows > 0 ? rows : default_rows();
    reader_rows_ = plan_.rows;
    plan_.classes.assign(body.values().size(), RowClass::scalar);
    plan_.step_of.assign(body.values().size(), -1);
  }

  RegionPlan run() {
    find_space();
    find_period();
    for (ir::OpId id = 0; id < body_.ops().size(); ++id) add_op(id);
    if (plan_.rows > 1 && !any_rows()) refuse("nothing in it has rows");
    add_outputs();
    find_leads();
    find_sweeps();
    return std::move(plan_);
  }

 private:
  // All but the last axis of the largest value any op that computes makes or reads: a view may show it in other axes than it is
  // stored in.
  int64_t default_rows() const {
    const ir::Type* largest = nullptr;
    const auto meet = [&](ValueId value) {
      const ir::Type& type = body_.type(value);
      if (!largest || type.elements() > largest->elements()) largest = &type;
    };
    for (const Op& op : body_.ops()) {
      if (!is_step(op)) continue;
      for (const ValueId operand : op.operands) {
        if (operand != kNone) meet(operand);
      }
      for (const ValueId result : op.results) meet(result);
    }
    return !largest || largest->rank() == 0 ? 1 : largest->elements() / largest->shape.back();
  }

  // A cast to a wider float shows its operand as a view does, unless it is what the region stores: every read ends in f32 anyway.
  bool is_view(const Op& op) const {
    return std::holds_alternative<ir::ViewLowering>(op.def->lowering) || (widens(body_, op) && !yielded(op.results[0]));
  }
  bool yielded(ValueId value) const {
    return std::any_of(body_.outputs().begin(), body_.outputs().end(), [&](const ir::Output& o) { return o.value == value; });
  }
  static bool is_source(const Op& op) { return std::holds_alternative<ir::SourceLowering>(op.def->lowering); }
  bool is_literal(const Op& op) const {
    return std::holds_alternative<ir::GenerateLowering>(op.def->lowering) && body_.type(op.results[0]).rank() == 0;
  }
  bool is_step(const Op& op) const { return !is_view(op) && !is_source(op) && !is_literal(op); }

  // C is the widest row any computing op makes or reduces; G the one other width that occurs, if any.
  void find_space() {
    std::set<int64_t> widths;
    int64_t columns = 1;
    const auto note = [&](const Shape& shape) {
      const auto p = row_axes(shape, plan_.rows);
      if (!p) return;
      const int64_t width = tail_product(shape, *p);
      widths.insert(width);
      columns = std::max(columns, width);
    };
    bool any = false;
    for (const Op& op : body_.ops()) {
      if (!is_step(op)) continue;
      any = true;
      const bool reduces = std::holds_alternative<ir::ReduceLowering>(op.def->lowering);
      note(reduces ? body_.type(op.operands[0]).shape : body_.type(op.results[0]).shape);
      // Results of column reductions: row or head wide. Of column sums: no prefix of R elements, or noted harmlessly below.
      if (reduces && !sums_rows(op)) note(body_.type(op.results[0]).shape);
      // A value per head that meets the heads' elements: [.., G, 1] against [.., G, N].
      for (ValueId operand : op.operands) {
        if (!reduces && operand != kNone && body_.type(operand).rank() > 0 && body_.type(operand).shape.back() == 1)
          note(body_.type(operand).shape);
      }
    }
    if (!any) refuse("nothing in it computes");
    widths.erase(1);
    widths.erase(columns);
    if (widths.size() > 1) refuse("values of more than two widths per row meet");
    plan_.groups = widths.empty() ? 1 : *widths.begin();
    if (columns % plan_.groups != 0) {
      refuse("rows of " + std::to_string(plan_.groups) + " and of " + std::to_string(columns) + " elements do not nest");
    }
    plan_.n = columns / plan_.groups;
  }

  bool any_rows() const {
    return std::any_of(plan_.steps.begin(), plan_.steps.end(), [](const RegionStep& step) {
      return step.kind == StepKind::reduce_columns || step.kind == StepKind::column_sum ||
             (step.result != RowClass::scalar && step.result != RowClass::column);
    });
  }

  bool sums_rows(const Op& op) const {
    const Shape& shape = body_.type(op.operands[0]).shape;
    const auto p = row_axes(shape, plan_.rows);
    if (!p || plan_.rows == 1) return false;
    for (int64_t axis : op.attrs.integers("axes")) {
      if (axis < static_cast<int64_t>(*p) && shape[static_cast<size_t>(axis)] > 1) return true;
    }
    return false;
  }

  void find_period() {
    plan_.period = plan_.rows;
    for (const Op& op : body_.ops()) {
      const auto* lowering = std::get_if<ir::ViewLowering>(&op.def->lowering);
      if (!lowering) continue;
      const ir::View view = lowering->map(body_.type(op.operands[0]), body_.type(op.results[0]), op.attrs);
      if (view.guard_axis < 0) continue;
      const int64_t period = view.dims[static_cast<size_t>(view.guard_axis)];
      if (plan_.rows % period != 0) refuse("a shift along an axis that is not the rows'");
      if (plan_.period != plan_.rows && plan_.period != period) refuse("shifts over sequences of different lengths");
      plan_.period = period;
    }
  }

  RowClass class_of(const Shape& shape) const {
    const int64_t elements = ir::element_count(shape), columns = plan_.columns();
    if (elements == 1) return plan_.rows > 1 ? RowClass::scalar : columns == 1 ? RowClass::full : RowClass::row;
    if (const auto p = row_axes(shape, plan_.rows)) {
      const int64_t width = tail_product(shape, *p);
      if (width == columns) return RowClass::full;
      if (width == 1) return RowClass::row;
      if (width == plan_.groups) return RowClass::head;
    }
    if (elements == columns) return RowClass::column;
    refuse("a value of shape " + ir::shape_text(shape) + " does not fit " + std::to_string(plan_.rows) + " rows of " +
           std::to_string(plan_.groups) + " x " + std::to_string(plan_.n));
  }

  void add_op(ir::OpId id) {
    const Op& op = body_.op(id);
    if (!is_step(op)) return;
    RegionStep step;
    step.op = id;
    if (std::holds_alternative<ir::ScalarLowering>(op.def->lowering)) {
      elementwise(op, step);
    } else if (const auto* reduce = std::get_if<ir::ReduceLowering>(&op.def->lowering)) {
      reduction(op, *reduce, step);
    } else if (std::holds_alternative<ir::GenerateLowering>(op.def->lowering)) {
      step.kind = StepKind::generate;
      step.result = class_of(body_.type(op.results[0]).shape);
    } else {
      refuse("'" + op.def->name + "' is no row op");
    }
    for (ValueId result : op.results) {
      plan_.classes[result] = step.result;
      plan_.step_of[result] = static_cast<int>(plan_.steps.size());
    }
    plan_.steps.push_back(std::move(step));
  }

  void elementwise(const Op& op, RegionStep& step) {
    const Shape& shape = body_.type(op.results[0]).shape;
    step.first_rows = fewer_rows(shape);
    step.result = step.first_rows > 0 ? RowClass::full : class_of(shape);
    reader_rows_ = step.first_rows > 0 ? step.first_rows : plan_.rows;
    for (ValueId operand : op.operands) {
      if (operand == kNone) {
        step.reads.emplace_back();
        continue;
      }
      step.reads.push_back(access(operand, broadcast_map(body_.type(operand).shape, shape), step.result));
      if (step.first_rows > 0 && plan_.step_of[step.reads.back().base] < 0 && !is_literal(body_.maker(step.reads.back().base)))
        refuse("an input has fewer rows");
    }
    reader_rows_ = plan_.rows;
  }

  // Whole rows, but not all of them: how many; else 0.
  int64_t fewer_rows(const Shape& shape) const {
    const int64_t columns = plan_.columns(), rows = ir::element_count(shape) / columns;
    const bool whole = ir::element_count(shape) == rows * columns && rows > 1 && rows < plan_.rows && columns > 1;
    return whole && !row_axes(shape, plan_.rows) && row_axes(shape, rows) ? rows : 0;
  }

  void reduction(const Op& op, const ir::ReduceLowering& lowering, RegionStep& step) {
    const Shape& shape = body_.type(op.operands[0]).shape;
    step.over = class_of(shape);
    step.reads.push_back(access(op.operands[0], broadcast_map(shape, shape), step.over));
    std::vector<bool> reduced(shape.size(), false);
    for (int64_t axis : op.attrs.integers("axes")) reduced[static_cast<size_t>(axis)] = true;
    const size_t p = row_axes(shape, plan_.rows).value_or(0);
    if (sums_rows(op)) {
      if (lowering.combine != ir::Combine::sum) refuse("only sums run over the rows");
      for (size_t i = 0; i < p; ++i) {
        if (!reduced[i] && shape[i] > 1) refuse("a sum over part of the row axes");
      }
      const int64_t kept = ir::element_count(body_.type(op.results[0]).shape);
      if (kept != 1 && kept != tail_product(shape, p)) refuse("a sum over the rows and part of the columns");
      step.kind = StepKind::column_sum;
      step.result = kept == 1 ? RowClass::scalar : RowClass::column;
      return;
    }
    if (step.over != RowClass::full && step.over != RowClass::head)
      refuse("a reduction of a " + std::string(row_class_name(step.over)) + " value");
    // Kept columns must lie outside the reduced ones.
    bool seen = false;
    for (size_t i = p; i < shape.size(); ++i) {
      if (shape[i] == 1) continue;
      if (!reduced[i] && seen) refuse("a reduction over columns that are not the innermost");
      seen = seen || reduced[i];
    }
    step.kind = StepKind::reduce_columns;
    const int64_t kept = ir::element_count(body_.type(op.results[0]).shape) / plan_.rows;
    step.result = kept == 1 ? (plan_.columns() == 1 ? RowClass::full : RowClass::row) : RowClass::head;
    if (kept != 1 && kept != plan_.groups) refuse("a reduction to another number of groups");
    if (kept != 1 && step.over == RowClass::head) refuse("a reduction that keeps every head");
  }

  // Follows views down to what is stored or computed, composing their index maps.
  RowAccess access(ValueId value, IndexMap map, RowClass reader) {
    while (is_view(body_.maker(value))) {
      const Op& op = body_.maker(value);
      value = op.operands[0];
      const auto* lowering = std::get_if<ir::ViewLowering>(&op.def->lowering);
      if (!lowering) continue;
      const auto composed = compose(map, lowering->map(body_.type(value), body_.type(op.results[0]), op.attrs));
      if (!composed) refuse("the view '" + op.def->name + "' of %" + body_.value(value).name + " is not a plain stride");
      map = *composed;
    }
    return to_access(value, std::move(map), reader);
  }

  RowAccess to_access(ValueId base, IndexMap map, RowClass reader) {
    RowAccess access;
    access.base = base;
    access.offset = map.offset;
    access.shift = map.shift;
    const bool has_rows = reader == RowClass::full || reader == RowClass::head || reader == RowClass::row;
    if (has_rows) {
      Shape row_dims;
      std::vector<int64_t> row_strides;
      if (!take_outer(map.dims, map.strides, reader_rows_, row_dims, row_strides)) refuse("rows do not line up");
      const auto row = collapse(row_dims, row_strides);
      if (!row) refuse("%" + body_.value(base).name + " is read in another order of rows");
      access.row = reader_rows_ == 1 ? 0 : *row;
    }
    if (map.shift != 0) {
      const int64_t width = reader == RowClass::full ? plan_.columns() : reader == RowClass::head ? plan_.groups : 1;
      if (!has_rows || (map.period > 1 && map.inner != width) || map.period != plan_.period)
        refuse("a shift along another axis than the rows");
      if (std::abs(map.shift) > 1) refuse("a shift by more than one row");
    }
    const int64_t heads = reader == RowClass::row || reader == RowClass::scalar ? 1 : plan_.groups;
    Shape head_dims;
    std::vector<int64_t> head_strides;
    if (!take_outer(map.dims, map.strides, heads, head_dims, head_strides)) refuse("heads do not line up");
    const auto head = collapse(head_dims, head_strides);
    const auto unit = collapse(map.dims, map.strides);
    if (!head || !unit) refuse("%" + body_.value(base).name + " is read in another order of columns");
    access.head = *head;
    access.unit = *unit;
    if (plan_.step_of[base] >= 0) check_computed(base, access);
    return access;
  }

  // A value computed in the region is only read in the order it is computed in.
  void check_computed(ValueId base, const RowAccess& access) {
    const auto& maker = plan_.steps[static_cast<size_t>(plan_.step_of[base])];
    if (maker.kind == StepKind::column_sum) refuse("the column sum %" + body_.value(base).name + " is used inside the region");
    if (maker.first_rows > 0) refuse("the first rows %" + body_.value(base).name + " are read inside the region");
    int64_t row = 0, head = 0, unit = 0;
    switch (maker.result) {
      case RowClass::full:
        row = plan_.columns(), head = plan_.n, unit = 1;
        break;
      case RowClass::head:
        row = plan_.groups, head = 1;
        break;
      case RowClass::row:
        row = 1;
        break;
      case RowClass::column:
        head = plan_.n, unit = 1;
        break;
      case RowClass::scalar:
        break;
    }
    if (plan_.rows == 1) row = 0;
    if (plan_.groups == 1) head = 0;
    if (plan_.n == 1) unit = 0;
    const bool same =
        access.offset == 0 && access.row == row && (access.head == head || plan_.groups == 1) && access.unit == unit;
    if (!same) refuse("the computed value %" + body_.value(base).name + " is read in another order");
  }

  void add_outputs() {
    for (const ir::Output& output : body_.outputs()) {
      ValueId value = output.value;
      while (is_view(body_.maker(value))) {
        const Op& op = body_.maker(value);
        const auto* lowering = std::get_if<ir::ViewLowering>(&op.def->lowering);
        if (!lowering) refuse("the output %" + body_.value(output.value).name + " is stored in another dtype");
        const ir::View view = lowering->map(body_.type(op.operands[0]), body_.type(value), op.attrs);
        if (!view.contiguous() || view.offset != 0 || body_.type(op.operands[0]).elements() != body_.type(value).elements()) {
          refuse("the output %" + body_.value(output.value).name + " is a view in another order");
        }
        value = op.operands[0];
      }
      if (plan_.step_of[value] < 0) refuse("the output %" + body_.value(output.value).name + " is not computed here");
      const RegionStep& step = plan_.steps[static_cast<size_t>(plan_.step_of[value])];
      if (step.result == RowClass::column && step.kind != StepKind::column_sum && plan_.rows > 1) {
        refuse("%" + body_.value(value).name + " is the same for every row but is stored");
      }
      plan_.outputs.push_back(value);
    }
  }

  // From the outputs backwards: how far ahead each value must be computed, and how many of its rows stay alive.
  void find_leads() {
    constexpr int kFar = 1000;
    struct Need {
      int lead = -kFar, low = kFar, least = kFar;
    };
    std::vector<Need> needs(plan_.steps.size());
    const auto need = [&](int step, int lead, int low) {
      Need& n = needs[static_cast<size_t>(step)];
      n.lead = std::max(n.lead, lead);
      n.least = std::min(n.least, lead);
      n.low = std::min(n.low, low);
    };
    for (ValueId output : plan_.outputs) need(plan_.step_of[output], 0, 0);
    for (size_t s = plan_.steps.size(); s-- > 0;) {
      RegionStep& step = plan_.steps[s];
      if (needs[s].lead == -kFar) needs[s] = {0, 0, 0};
      step.lead = needs[s].lead;
      step.low = needs[s].low;
      step.depth = step.lead - needs[s].least + 1;
      if (step.lead > 2 || step.low < -2) refuse("values are needed more than two rows away");
      for (const RowAccess& read : step.reads) {
        if (read.base == kNone || plan_.step_of[read.base] < 0) continue;
        need(plan_.step_of[read.base], step.lead + read.shift, step.low + read.shift);
      }
    }
  }

  void find_sweeps() {
    for (RegionStep& step : plan_.steps) {
      for (const RowAccess& read : step.reads) {
        if (read.base == kNone || plan_.step_of[read.base] < 0) continue;
        const RegionStep& maker = plan_.steps[static_cast<size_t>(plan_.step_of[read.base])];
        if (maker.result == RowClass::scalar || (maker.result == RowClass::column && plan_.rows > 1)) continue;
        const bool later = maker.kind == StepKind::reduce_columns || maker.lead != step.lead;
        step.sweep = std::max(step.sweep, maker.sweep + (later ? 1 : 0));
      }
    }
  }

  const Graph& body_;
  RegionPlan plan_;
  int64_t reader_rows_ = 1;  ///< of the step being planned
};

}  // namespace

std::optional<RegionPlan> plan_region(const Graph& body, int64_t rows, std::string* why) {
  try {
    return RegionPlanner(body, rows).run();
  } catch (const Refusal& refusal) {
    if (why) *why = refusal.why;
    return std::nullopt;
  }
}

}  // namespace ingot::passes
