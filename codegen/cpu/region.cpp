// Host code for a fused row region (passes/region.h says what the steps, sweeps and leads mean).
//
//   void KERNEL(args, sizes, task):              sizes: rows, rows a task takes, rows a sequence has
//     columns and scalars that every row shares, once; scalars that are outputs are stored by the first task
//     for each row i of the tile (and the few before it that computed neighbours need)
//       for each loop (sweep, lead), in order    r = i + lead
//         values per row; per head; then one vectorised run over the columns, then the reductions of what it made
//     partial column sums of the tile
//
// Values of a row that another loop reads stand in row buffers that fit the first level cache; a value read at a neighbour row
// has a buffer of `depth` rows used in turn. Reads outside a sequence see a row of zeros, so no inner loop has a branch. A column
// is read before anything of it is stored: an output may stand on an input.
#include "codegen/cpu/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "codegen/cpu/emit.h"
#include "ir/base/error.h"
#include "passes/region.h"

namespace ingot::codegen::cpu {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::ValueId;
using passes::RegionPlan;
using passes::RegionStep;
using passes::RowAccess;
using passes::RowClass;
using passes::StepKind;

constexpr int64_t kTileWork = 1 << 17;  // element steps a task should hold, so that its start is free
constexpr int64_t kMostTiles = 64, kMostSummingTiles = 32;
constexpr int64_t kSummingSteps = 16;  // what a region that sums rows is taken to do per element

bool per_row(RowClass c) { return c == RowClass::full || c == RowClass::head || c == RowClass::row; }

class RegionEmitter {
 public:
  RegionEmitter(const OpSite& site, RegionPlan plan) : site_(site), body_(*site.op.region), plan_(std::move(plan)) {
    for (const Op& op : body_.ops()) {
      if (op.name() == "input") inputs_[op.results[0]] = static_cast<int>(inputs_.size());
    }
    find_buffers();
    choose_tiles();
  }

  OpLaunches run() {
    OpLaunches launches;
    Launch walk;
    walk.stem = "rows";
    walk.text = text();
    walk.sizes = {plan_.rows, rows_per_task_, plan_.period};
    walk.tasks = tasks_;
    for (size_t i = 0; i < site_.op.operands.size(); ++i) walk.args.push_back(operand_arg(static_cast<int>(i)));
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      if (tasks_ > 1 && sums_rows(static_cast<int>(i))) {
        walk.args.push_back(leave_sum(static_cast<int>(i), launches));
      } else {
        walk.args.push_back(result_arg(static_cast<int>(i)));
      }
    }
    launches.launches.push_back(std::move(walk));
    for (const auto& [operand, rows] : site_.partials) launches.added.push_back(operand);
    return launches;
  }

 private:
  // ---------------------------------------------------------------- decisions

  const RegionStep& step_of(ValueId value) const { return plan_.steps[static_cast<size_t>(plan_.step_of[value])]; }
  bool computed(ValueId value) const { return plan_.step_of[value] >= 0; }
  bool sums_rows(int output) const { return step_of(plan_.outputs[static_cast<size_t>(output)]).kind == StepKind::column_sum; }
  static bool same_loop(const RegionStep& a, const RegionStep& b) { return a.sweep == b.sweep && a.lead == b.lead; }

  /// Elements per row of a value (of a column sum: elements in all).
  int64_t width(ValueId value) const {
    const RegionStep& step = step_of(value);
    if (step.kind == StepKind::column_sum) return body_.type(value).elements();
    switch (step.result) {
      case RowClass::full:
      case RowClass::column:
        return plan_.columns();
      case RowClass::head:
        return plan_.groups;
      default:
        return 1;
    }
  }

  /// Where the tiles leave their partial sums, to be added in the order of the tiles.
  LaunchArg leave_sum(int output, OpLaunches& launches) const {
    const ValueId value = plan_.outputs[static_cast<size_t>(output)];
    const RowSum sum{tasks_, width(value), body_.type(value).dtype};
    const int workspace = static_cast<int>(launches.workspace_bytes.size());
    launches.workspace_bytes.push_back(sum.bytes());
    if (!site_.is_dead(output)) launches.sums.push_back({workspace, output, sum});
    return workspace_arg(workspace, ir::AccessMode::write);
  }

  // A full value needs a row buffer when anything but its own loop reads it, or a reduction does. Row and head values always have
  // one.
  void find_buffers() {
    for (const RegionStep& step : plan_.steps) {
      for (const RowAccess& read : step.reads) {
        if (read.base == kNone || !computed(read.base)) continue;
        const RegionStep& maker = step_of(read.base);
        if (!same_loop(maker, step) || read.shift != 0 || step.kind == StepKind::reduce_columns) buffered_.insert(read.base);
        if (step.kind == StepKind::column_sum && step.result == RowClass::scalar) buffered_.insert(read.base);
      }
    }
    for (const RegionStep& step : plan_.steps) {
      for (ValueId value : body_.op(step.op).results) {
        if (step.kind == StepKind::column_sum) continue;
        if (step.kind == StepKind::reduce_columns || step.result != RowClass::full) buffered_.insert(value);
      }
    }
  }

  /// Is the step's loop also run for rows that belong to another tile? Such rows are neither stored nor summed.
  bool leaves_tile(const RegionStep& step) const { return first_ < 0 || step.lead != 0; }

  bool stores_aside(const RegionStep& step) const { return leaves_tile(step) || step.first_rows > 0; }

  void choose_tiles() {
    const bool sums =
        std::any_of(plan_.steps.begin(), plan_.steps.end(), [](const RegionStep& s) { return s.kind == StepKind::column_sum; });
    const int64_t work = plan_.rows * plan_.columns() * static_cast<int64_t>(plan_.steps.size());
    // Tiles decide the order in which rows are added: they depend on shapes, never on what else the region makes or stores.
    const int64_t even = plan_.rows * plan_.columns() * kSummingSteps;
    const int64_t wanted = std::clamp<int64_t>((sums ? even : work) / kTileWork, 1, sums ? kMostSummingTiles : kMostTiles);
    rows_per_task_ = (plan_.rows + wanted - 1) / wanted;
    tasks_ = (plan_.rows + rows_per_task_ - 1) / rows_per_task_;
    for (const RegionStep& step : plan_.steps) first_ = std::min(first_, step.low - step.lead);
  }

  // ---------------------------------------------------------------- the function

  std::string text() {
    out_.clear();
    line("const int64_t rows = sizes[0], begin = task * sizes[1], end = ig_least(begin + sizes[1], rows), period = sizes[2];");
    declare_arguments();
    declare_buffers();
    shared_values();
    line("for (int64_t i = begin{:+}; i < end; ++i) {{", first_);
    std::set<std::pair<int, int>> loops;
    for (const RegionStep& step : plan_.steps) {
      if (!shared(step)) loops.emplace(step.sweep, step.lead);
    }
    for (const auto& [sweep, lead] : loops) emit_loop(sweep, lead);
    line("}}");
    store_sums();
    return kernel_text({"reduce_cpu.inc"}, out_);
  }

  /// The same for every row: computed once per task.
  bool shared(const RegionStep& step) const { return step.kind != StepKind::column_sum && !per_row(step.result); }

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void declare_arguments() {
    int argument = 0;
    for (size_t i = 0; i < site_.op.operands.size(); ++i, ++argument) {
      const auto partials = site_.partials.find(static_cast<int>(i));
      if (partials != site_.partials.end()) {
        line(
            "float added{0} = 0;\nig_add_partials<float>(args[{1}], nullptr, &added{0}, {2}, 1);\nconst float* in{0} = "
            "&added{0};",
            i, argument, partials->second);
        continue;
      }
      const std::string_view type = storage_type(site_.graph.type(site_.op.operands[i]).dtype);
      line("const {0}*{2} in{1} = static_cast<const {0}*>(args[{1}]);", type, argument,
           site_.written_over(static_cast<int>(i)) ? "" : " __restrict");
    }
    for (size_t i = 0; i < plan_.outputs.size(); ++i, ++argument) {
      const bool partial = tasks_ > 1 && sums_rows(static_cast<int>(i));
      const std::string_view type = partial ? "float" : storage_type(body_.type(plan_.outputs[i]).dtype);
      line("{0}*{3} out{1} = static_cast<{0}*>(args[{2}]);", type, i, argument,
           site_.stands_on_operand(static_cast<int>(i)) ? "" : " __restrict");
      outputs_of_[plan_.outputs[i]].push_back(static_cast<int>(i));
    }
  }

  void declare_buffers() {
    for (const RegionStep& step : plan_.steps) {
      for (ValueId value : body_.op(step.op).results) {
        if (step.kind == StepKind::column_sum) {
          line("alignas(64) float sum{}[{}] = {{}};", value, width(value));
        } else if (buffered_.contains(value)) {
          line("alignas(64) {} v{}[{}][{}];", arithmetic_type(body_.type(value).dtype), value,
               per_row(step.result) ? step.depth : 1, width(value));
        }
      }
    }
    // What sums and stores of rows outside the tile, and reads outside the sequence, touch instead.
    int64_t dropped = 0;
    for (const RegionStep& step : plan_.steps) {
      if (step.kind == StepKind::column_sum && leaves_tile(step))
        dropped = std::max(dropped, width(body_.op(step.op).results[0]));
    }
    if (dropped > 0) line("alignas(64) float dropped[{}] = {{}};", dropped);
    for (ValueId value : plan_.outputs) {
      const RegionStep& step = step_of(value);
      if (step.kind != StepKind::column_sum && stores_aside(step) && !shared(step)) {
        line("{} aside{}[{}];", storage_type(body_.type(value).dtype), value, width(value));
      }
    }
    std::set<std::string> zeros;
    for (const RegionStep& step : plan_.steps) {
      for (const RowAccess& read : step.reads) {
        if (read.base == kNone || read.shift == 0) continue;
        const std::string type = read_type(read.base);
        if (zeros.insert(type).second) line("static const {0} zero_{0}[{1}] = {{}};", type, widest_shifted(type));
      }
    }
  }

  std::string read_type(ValueId base) const {
    return std::string(computed(base) ? arithmetic_type(body_.type(base).dtype) : storage_type(body_.type(base).dtype));
  }

  int64_t widest_shifted(const std::string& type) const {
    int64_t widest = 1;
    for (const RegionStep& step : plan_.steps) {
      for (const RowAccess& read : step.reads) {
        if (read.base == kNone || read.shift == 0 || read_type(read.base) != type) continue;
        widest = std::max(widest, 1 + (plan_.groups - 1) * read.head + (plan_.n - 1) * read.unit);
      }
    }
    return widest;
  }

  void shared_values() {
    for (const RegionStep& step : plan_.steps) {
      if (!shared(step)) continue;
      const Op& op = body_.op(step.op);
      const bool column = step.result == RowClass::column;
      line("for (int64_t c = 0; c < {}; ++c) {{", column ? plan_.columns() : 1);
      if (column) line("[[maybe_unused]] const int64_t g = c / {0}, n = c % {0};", plan_.n);
      for (size_t k = 0; k < op.results.size(); ++k) {
        out_ += value_text(step, k, [&](const RowAccess& read) { return shared_read(read); });
        line("v{0}[0][c] = x{0};", op.results[k]);
        const auto outputs = outputs_of_.find(op.results[k]);
        if (outputs == outputs_of_.end()) continue;
        for (int output : outputs->second) line("if (task == 0) out{}[c] = s{};", output, op.results[k]);
      }
      line("}}");
    }
  }

  std::string shared_read(const RowAccess& read) const {
    const std::string index = fmt::format("{}", read.offset) + (read.head ? fmt::format(" + g * {}", read.head) : "") +
                              (read.unit ? fmt::format(" + n * {}", read.unit) : "");
    return computed(read.base) ? fmt::format("v{}[0][{}]", read.base, index)
                               : fmt::format("ig_load(in{}[{}])", inputs_.at(read.base), index);
  }

  // ---------------------------------------------------------------- one loop

  /// Statements run once, per head, per column; and what is read before the loops over heads and over a head's columns.
  struct LoopText {
    std::string row, head, full, head_row, full_row, full_head;
    std::string full_stores;  ///< at the end of `full`
  };

  void emit_loop(int sweep, int lead) {
    pointers_.clear();
    pointer_lines_.clear();
    hoists_.clear();
    flat_ = true;
    std::vector<const RegionStep*> steps;
    for (const RegionStep& step : plan_.steps) {
      if (!shared(step) && step.sweep == sweep && step.lead == lead) steps.push_back(&step);
    }
    for (const RegionStep* step : steps) note_flatness(*step);
    LoopText text;
    std::string reductions;
    for (const RegionStep* step : steps) {
      switch (step->kind) {
        case StepKind::elementwise:
        case StepKind::generate:
          emit_values(*step, text);
          break;
        case StepKind::reduce_columns:
          reductions += reduction_text(*step, text);
          break;
        case StepKind::column_sum:
          reductions += column_sum_text(*step, text);
          break;
      }
    }
    line("{{");
    line("const int64_t r = i{:+};", lead);
    line("if (r >= 0 && r < rows) {{");
    line("[[maybe_unused]] const int64_t t = r % period;");
    line("[[maybe_unused]] const bool mine = r >= begin && r < end, before = t > 0, after = t + 1 < period;");
    out_ += pointer_lines_;
    out_ += text.row;
    if (!text.head.empty()) line("{}for (int64_t g = 0; g < {}; ++g) {{\n{}}}", text.head_row, plan_.groups, text.head);
    if (!text.full.empty()) {
      out_ += text.full_row;
      if (!flat_) line("for (int64_t g = 0; g < {}; ++g) {{\n{}", plan_.groups, text.full_head);
      line("#pragma GCC ivdep\nfor (int64_t n = 0; n < {}; ++n) {{\n{}}}", flat_ ? plan_.columns() : plan_.n,
           text.full + text.full_stores);
      if (!flat_) line("}}");
    }
    out_ += reductions;
    line("}}\n}}");
  }

  // One run over all columns does when no access treats heads apart.
  void note_flatness(const RegionStep& step) {
    const RowClass shape = step.kind == StepKind::elementwise || step.kind == StepKind::generate ? step.result : step.over;
    if (shape != RowClass::full) return;
    for (const RowAccess& read : step.reads) {
      if (read.base != kNone && plan_.groups > 1 && read.head != read.unit * plan_.n) flat_ = false;
    }
  }

  void emit_values(const RegionStep& step, LoopText& text) {
    const Op& op = body_.op(step.op);
    std::string& into = part(step.result, text);
    for (size_t k = 0; k < op.results.size(); ++k) {
      const ValueId value = op.results[k];
      into += value_text(step, k, [&](const RowAccess& read) { return read_text(step, step.result, read, text); });
      if (buffered_.contains(value)) into += fmt::format("{} = x{};\n", element(buffer_pointer(value, 0, "w"), value), value);
      const auto outputs = outputs_of_.find(value);
      if (outputs == outputs_of_.end()) continue;
      std::string& stores = step.result == RowClass::full ? text.full_stores : into;
      for (int output : outputs->second)
        stores += fmt::format("{} = s{};\n", element(output_pointer(value, output), value), value);
    }
  }

  static std::string& part(RowClass c, LoopText& text) {
    return c == RowClass::full ? text.full : c == RowClass::head ? text.head : text.row;
  }

  /// Declares x<value>: result k of an elementwise or generating op. A float stays f32 unless the op is a rounding the author
  /// wrote or the value is stored: its readers here see what its readers elsewhere see.
  template <class Read>
  std::string value_text(const RegionStep& step, size_t k, Read read) const {
    const Op& op = body_.op(step.op);
    const ir::DType dtype = body_.type(op.results[k]).dtype;
    std::string operands, body;
    if (step.kind == StepKind::generate) {
      body = shared(step) ? generate_text(op, "c", plan_.columns())
                          : generate_text(op, element_number(step.result), body_.type(op.results[k]).elements());
    } else {
      for (size_t i = 0; i < step.reads.size(); ++i) {
        const ValueId base = step.reads[i].base;
        if (base == kNone) continue;
        operands += fmt::format("const {} a{} = {};\n", arithmetic_type(body_.type(op.operands[i]).dtype), i,
                                is_literal(base) ? literal_text(base) : read(step.reads[i]));
      }
      body = substitute_attrs(std::get<ir::ScalarLowering>(op.def->lowering).bodies[k], op.attrs);
    }
    const std::string_view type = storage_type(dtype);
    const ValueId value = op.results[k];
    const bool stored = outputs_of_.contains(value);
    const bool rounds = !is_float(dtype) || (dtype != ir::DType::f32 && (op.attrs.has("dtype") || stored));
    // What is stored is rounded once: its readers here read the rounded bits.
    std::string made = fmt::format("x{} = {};\n", value, body);
    if (stored)
      made = fmt::format("s{0} = ig_store<{1}>::from({2});\nx{0} = ig_load(s{0});\n", value, type, body);
    else if (rounds)
      made = fmt::format("x{} = ig_load(ig_store<{}>::from({}));\n", value, type, body);
    return fmt::format("{} x{};\n{}{{\n{}{}}}\n", arithmetic_type(dtype), value,
                       stored ? fmt::format("{} s{};\n", type, value) : "", operands, made);
  }

  bool is_literal(ValueId base) const {
    return !computed(base) && std::holds_alternative<ir::GenerateLowering>(body_.maker(base).def->lowering);
  }
  std::string literal_text(ValueId base) const {
    const Op& op = body_.maker(base);
    return substitute_attrs(std::get<ir::GenerateLowering>(op.def->lowering).body(op.attrs), op.attrs,
                            !is_float(body_.type(base).dtype));
  }

  // A generated value: its body with i0, i1, ... as the indices that the column at hand, one of `numbers`, has along the value's
  // axes.
  std::string generate_text(const Op& op, const std::string& column, int64_t numbers) const {
    const ir::Type& type = body_.type(op.results[0]);
    std::string body =
        substitute_attrs(std::get<ir::GenerateLowering>(op.def->lowering).body(op.attrs), op.attrs, !is_float(type.dtype));
    int64_t inner = 1;
    std::string indices;
    for (size_t k = type.shape.size(); k-- > 0;) {
      indices += fmt::format("[[maybe_unused]] const int64_t i{} = {};\n", k, axis_index(column, inner, type.shape[k], numbers));
      inner *= type.shape[k];
    }
    return fmt::format("[&] {{\n{}return {};\n}}()", indices, body);
  }

  // ---------------------------------------------------------------- reads and writes

  // What does not change along the inner loop is read before it, into a variable of its own, so that the loop vectorises.
  std::string read_text(const RegionStep& step, RowClass reader, const RowAccess& read, LoopText& text) {
    if (computed(read.base)) {
      const RegionStep& maker = step_of(read.base);
      const bool here =
          same_loop(maker, step) && read.shift == 0 && per_row(maker.result) && maker.kind != StepKind::reduce_columns;
      if (here && (maker.result == reader || maker.result == RowClass::row)) return fmt::format("x{}", read.base);
      if (maker.result == RowClass::scalar) return fmt::format("v{}[0][0]", read.base);
      if (maker.result == RowClass::column) return fmt::format("v{}[0][{}]", read.base, column_index(reader));
      const std::string at = element(buffer_pointer(read.base, read.shift, "r"), read.base);
      return maker.result == reader ? at : hoisted(at, maker.result, reader, arithmetic_type(body_.type(read.base).dtype), text);
    }
    const std::string pointer = input_pointer(read);
    const std::string head = reader == RowClass::full || reader == RowClass::head ? scaled("g", read.head) : "";
    const std::string unit = reader == RowClass::full ? scaled("n", read.unit) : "";
    const std::string index = reader == RowClass::full && flat_ ? unit : join(head, unit);
    const std::string at = fmt::format("ig_load({}[{}])", pointer, index.empty() ? "0" : index);
    const RowClass moves = !unit.empty() ? RowClass::full : !head.empty() ? RowClass::head : RowClass::row;
    return moves == reader ? at : hoisted(at, moves, reader, arithmetic_type(body_.type(read.base).dtype), text);
  }

  std::string hoisted(const std::string& expression, RowClass moves, RowClass reader, std::string_view type, LoopText& text) {
    if (reader == RowClass::row) return expression;
    std::string& before = moves == RowClass::head ? text.full_head : reader == RowClass::head ? text.head_row : text.full_row;
    const std::string key = fmt::format("{} {} {}", static_cast<int>(reader), static_cast<int>(moves), expression);
    const auto [at, fresh] = hoists_.try_emplace(key, fmt::format("h{}", hoists_.size()));
    if (fresh) before += fmt::format("const {} {} = {};\n", type, at->second, expression);
    return at->second;
  }

  static std::string scaled(const char* name, int64_t by) {
    return by == 0 ? "" : by == 1 ? name : fmt::format("{} * {}", name, by);
  }
  static std::string join(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + " + " + b; }
  std::string column_index(RowClass reader) const {
    if (reader == RowClass::head) return "g";
    return flat_ ? "n" : fmt::format("g * {} + n", plan_.n);
  }

  /// Element of a computed value's row at the current head and column.
  std::string element(const std::string& pointer, ValueId value) const {
    switch (step_of(value).result) {
      case RowClass::full:
        return fmt::format("{}[{}]", pointer, flat_ ? "n" : fmt::format("g * {} + n", plan_.n));
      case RowClass::head:
        return fmt::format("{}[g]", pointer);
      default:
        return fmt::format("{}[0]", pointer);
    }
  }

  static const char* inside(int shift) { return shift < 0 ? "before" : "after"; }

  // Pointers to the row at hand, one declaration each per loop.
  std::string pointer(const std::string& name, const std::string& type, const std::string& value) {
    if (pointers_.insert(name).second) pointer_lines_ += fmt::format("{}* {} = {};\n", type, name, value);
    return name;
  }

  std::string input_pointer(const RowAccess& read) {
    const std::string type(storage_type(body_.type(read.base).dtype));
    const int input = inputs_.at(read.base);
    const std::string name = fmt::format("p{}_{}_{}_{}", input, read.offset, read.row, read.shift + 1);
    const std::string row = read.shift ? fmt::format("(r{:+})", read.shift) : "r";
    std::string place = fmt::format("in{}", input);
    if (read.offset) place += fmt::format(" + {}", read.offset);
    if (read.row) place += fmt::format(" + {} * {}", row, read.row);
    if (read.shift) place = fmt::format("{} ? {} : zero_{}", inside(read.shift), place, type);
    return pointer(name, "const " + type, place);
  }

  std::string buffer_pointer(ValueId value, int shift, const char* use) {
    const RegionStep& maker = step_of(value);
    const std::string type(arithmetic_type(body_.type(value).dtype));
    const std::string name = fmt::format("b{}_{}_{}", value, shift + 1, use);
    std::string place =
        maker.depth == 1 ? fmt::format("v{}[0]", value) : fmt::format("v{}[(r{:+}) % {}]", value, shift, maker.depth);
    if (shift) place = fmt::format("{} ? {} : zero_{}", inside(shift), place, type);
    return pointer(name, (*use == 'r' ? "const " : "") + type, place);
  }

  std::string output_pointer(ValueId value, int output) {
    const RegionStep& step = step_of(value);
    const std::string type(storage_type(body_.type(value).dtype));
    std::string place = fmt::format("out{} + r * {}", output, width(value));
    if (stores_aside(step)) {
      const std::string among = step.first_rows > 0 ? fmt::format(" && r < {}", step.first_rows) : "";
      place = fmt::format("mine{} ? {} : aside{}", among, place, value);
    }
    return pointer(fmt::format("o{}", output), type, place);
  }

  // ---------------------------------------------------------------- reductions

  int64_t width(RowClass c) const { return c == RowClass::full ? plan_.columns() : c == RowClass::head ? plan_.groups : 1; }
  std::string index_of(RowClass c) const {
    return c == RowClass::full ? column_index(RowClass::full) : c == RowClass::head ? "g" : "0";
  }

  std::string element_number(RowClass c) const { return fmt::format("r * {} + {}", width(c), index_of(c)); }

  /// The row a reduction runs over, as a pointer; an input is first read into a row beside.
  std::string operand_row(const RegionStep& step, LoopText& text) {
    const RowAccess& read = step.reads[0];
    if (computed(read.base)) return buffer_pointer(read.base, read.shift, "r");
    const ValueId result = body_.op(step.op).results[0];
    pointer_lines_ +=
        fmt::format("alignas(64) {} row{}[{}];\n", arithmetic_type(body_.type(read.base).dtype), result, width(step.over));
    part(step.over, text) +=
        fmt::format("row{}[{}] = {};\n", result, index_of(step.over), read_text(step, step.over, read, text));
    return fmt::format("row{}", result);
  }

  static std::string_view combiner(const Op& op) {
    static constexpr std::string_view kNames[] = {"ig_sum", "ig_maximum", "ig_minimum"};
    return kNames[static_cast<size_t>(std::get<ir::ReduceLowering>(op.def->lowering).combine)];
  }

  std::string reduction_text(const RegionStep& step, LoopText& text) {
    const Op& op = body_.op(step.op);
    const ValueId result = op.results[0];
    const ir::DType dtype = body_.type(result).dtype;
    const std::string row = operand_row(step, text), target = buffer_pointer(result, 0, "w");
    const int64_t heads = step.result == RowClass::head ? plan_.groups : 1, count = width(step.over) / heads;
    std::string made =
        fmt::format("for (int64_t g = 0; g < {}; ++g) {}[g] = ig_reduce_run<{}, {}>({} + g * {}, {});\n", heads, target,
                    combiner(op), accumulator_type(body_.type(op.operands[0]).dtype, dtype), row, count, count);
    const auto outputs = outputs_of_.find(result);
    if (outputs == outputs_of_.end()) return made;
    for (int output : outputs->second) {
      made += fmt::format("for (int64_t g = 0; g < {}; ++g) {}[g] = ig_store<{}>::from({}[g]);\n", heads,
                          output_pointer(result, output), storage_type(dtype), target);
    }
    return made;
  }

  // Adds this row to the tile's sums; rows outside the tile belong to another task.
  std::string column_sum_text(const RegionStep& step, LoopText& text) {
    const ValueId result = body_.op(step.op).results[0];
    if (step.result == RowClass::scalar && width(step.over) > 1) {
      const std::string row = operand_row(step, text);
      return fmt::format("if (mine) sum{}[0] += ig_reduce_run<ig_sum, float>({}, {});\n", result, row, width(step.over));
    }
    std::string sum = fmt::format("sum{}", result);
    if (leaves_tile(step)) sum = pointer(fmt::format("s{}", result), "float", fmt::format("mine ? {} : dropped", sum));
    const std::string value = read_text(step, step.over, step.reads[0], text);
    part(step.over, text) += fmt::format("{}[{}] += {};\n", sum, index_of(step.over), value);
    return "";
  }

  void store_sums() {
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      if (!sums_rows(static_cast<int>(i))) continue;
      const ValueId value = plan_.outputs[i];
      const bool partial = tasks_ > 1;
      line("for (int64_t c = 0; c < {0}; ++c) out{1}[{2}c] = ig_store<{3}>::from(sum{4}[c]);", width(value), i,
           partial ? fmt::format("task * {} + ", width(value)) : "", partial ? "float" : storage_type(body_.type(value).dtype),
           value);
    }
  }

  const OpSite& site_;
  const Graph& body_;
  RegionPlan plan_;
  std::map<ValueId, int> inputs_;
  std::map<ValueId, std::vector<int>> outputs_of_;
  std::set<ValueId> buffered_;
  int64_t tasks_ = 1, rows_per_task_ = 1;
  int first_ = 0;
  std::string out_;
  // State of the loop being written.
  std::set<std::string> pointers_;
  std::string pointer_lines_;
  std::map<std::string, std::string> hoists_;
  bool flat_ = true;
};

}  // namespace

OpLaunches lower_row_region(const OpSite& site) {
  std::string why;
  const int64_t rows = site.op.attrs.has("rows") ? site.op.attrs.integer("rows") : 0;
  auto plan = passes::plan_region(*site.op.region, rows, &why);
  ir::check(plan.has_value(), "a fused region is no row region: " + why);
  return RegionEmitter(site, std::move(*plan)).run();
}

}  // namespace ingot::codegen::cpu
