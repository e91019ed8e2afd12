// A fused row region whose rows are too long for registers (a vocabulary): a block takes a row at a time and its threads step
// through the columns, once for every loop (sweep, lead). What a loop needs of earlier loops' columns is made anew from the
// region's inputs, at the neighbour's row too; only values per row stay in registers. Sums over rows are added up in the block's
// own row of partial sums in memory.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/cuda/region_text.h"
#include "ir/base/error.h"

namespace ingot::codegen::cuda {
namespace {

using ir::Op;
using ir::ValueId;
using passes::RegionStep;
using passes::RowAccess;
using passes::RowClass;
using passes::StepKind;

class LoopedRegion final : public RegionText {
 public:
  LoopedRegion(const Site& site, passes::RegionPlan plan, const RowLayout& layout)
      : RegionText(site, std::move(plan)), layout_(layout) {
    for (const RegionStep& step : plan_.steps) {
      ir::check(step.result != RowClass::head && step.over != RowClass::head, "a looped region with values per head");
      first_ = std::min(first_, step.low - step.lead);
      if (step.result == RowClass::row && step.kind != StepKind::column_sum) {
        for (const ValueId value : body_.op(step.op).results) depths_[value] = step.depth;
      }
    }
  }

  OpLaunches run() {
    OpLaunches launches;
    KernelBuilder kernel = open_kernel(layout_, true, launches);
    std::string loops;
    std::set<std::pair<int, int>> order;
    for (const RegionStep& step : plan_.steps) {
      if (!shared(step) || step.result == RowClass::column) order.emplace(step.sweep, step.lead);
    }
    for (const auto& [sweep, lead] : order) emit_loop(sweep, lead);
    loops.swap(out_);
    open_body();
    out_ += loops + "  }\n";
    store_scalar_sums();
    launches.launches.push_back(kernel.finish(out_));
    if (!launches.workspace_bytes.empty()) launches.launches.push_back(add_partials(layout_.ranges, layout_.blocks()));
    return launches;
  }

 private:
  // ---------------------------------------------------------------- the frame

  void open_body() {
    line("  constexpr int E = {}, W = {}, lanes = W * IG_WARP;", layout_.at_once, layout_.warps);
    line("  typedef {} row_t;\n  typedef {} column_t;", index_type(plan_.rows), index_type(plan_.columns() + layout_.slab()));
    line("  [[maybe_unused]] constexpr column_t C = {}, N = {};", plan_.columns(), plan_.n);
    line("  const int lane = static_cast<int>(threadIdx.x);");
    line(
        "  const row_t rows = static_cast<row_t>(rows_size), each = static_cast<row_t>(each_size), period = "
        "static_cast<row_t>(period_size);");
    line("  const row_t begin = static_cast<row_t>(blockIdx.x) * each, end = begin + each < rows ? begin + each : rows;");
    for (const RegionStep& step : plan_.steps) {
      const Op& op = body_.op(step.op);
      if (step.kind == StepKind::column_sum) {
        if (step.result == RowClass::scalar) line("  float sum{} = 0.0f;", op.results[0]);
      } else if (step.result == RowClass::scalar) {
        for (size_t r = 0; r < op.results.size(); ++r) {
          out_ += "  " + value_text(
                             step, r, [&](const RowAccess& read) { return scalar_read(read); }, "0");
          line("  const {0} v{1} = x{1};", type_of(op.results[r]), op.results[r]);
          out_ += store_scalar(op.results[r]);
        }
      } else if (step.result == RowClass::row) {
        for (const ValueId value : op.results)
          line("  {} v{}[{}];\n  ig_clear(v{});", type_of(value), value, depths_.at(value), value);
      }
    }
    line("  for (row_t i = begin{:+}; i < end; ++i) {{", first_);
    for (const auto& [value, depth] : depths_) {
      if (depth > 1) line("    ig_rotate(v{});", value);
    }
  }

  std::string scalar_read(const RowAccess& read) const {
    return computed(read.base) ? fmt::format("v{}", read.base)
                               : fmt::format("ig_load(in{}[{}])", inputs_.at(read.base), read.offset);
  }

  // ---------------------------------------------------------------- rows at a distance

  static std::string at(int delta) {
    return delta == 0 ? "" : delta < 0 ? fmt::format("_m{}", -delta) : fmt::format("_p{}", delta);
  }

  /// Row r + delta, whether it exists, and where it lies in its sequence.
  void need_row(int delta) {
    if (!rows_.insert(delta).second) return;
    const std::string s = at(delta);
    if (delta != 0)
      row_lines_ +=
          fmt::format("      const row_t r{0} = r{1:+};\n      const bool there{0} = r{0} >= 0 && r{0} < rows;\n", s, delta);
    row_lines_ += fmt::format(
        "      [[maybe_unused]] const row_t t{0} = r{0} % period;\n"
        "      [[maybe_unused]] const bool before{0} = t{0} > 0, after{0} = t{0} + 1 < period;\n",
        s);
  }

  std::string guarded(const RowAccess& read, int delta, const std::string& text, std::string_view type) {
    if (read.shift == 0) return text;
    return fmt::format("({}{} ? {} : {}(0))", read.shift < 0 ? "before" : "after", at(delta), text, type);
  }

  // ---------------------------------------------------------------- reads

  /// What a step at row r + delta reads. Values per column are made first, in columns_.
  std::string read_text(const RowAccess& read, RowClass reader, int delta) {
    need_row(delta);
    const int row = delta + read.shift;
    if (!computed(read.base))
      return guarded(read, delta, input_text(read, reader, row), arithmetic_type(body_.type(read.base).dtype));
    const RegionStep& maker = step_of(read.base);
    if (maker.result == RowClass::scalar) return fmt::format("v{}", read.base);
    if (maker.result == RowClass::row) {
      const int slot = maker.lead - (lead_ + row);
      ir::check(slot >= 0, "a looped region reads a row's value before it is made");
      int& depth = depths_.at(read.base);
      depth = std::max(depth, slot + 1);
      return guarded(read, delta, fmt::format("v{}[{}]", read.base, slot), type_of(read.base));
    }
    return guarded(read, delta, column_value(read.base, maker.result == RowClass::column ? 0 : row), type_of(read.base));
  }

  std::string input_text(const RowAccess& read, RowClass reader, int delta) {
    const Stream& s = streams_[static_cast<size_t>(stream_of(read, reader))];
    need_row(delta);
    const std::string row = s.row == 0 ? "" : fmt::format(" + static_cast<int64_t>({}) * {}", clamped(delta), s.row);
    if (s.kind == Stream::Kind::uniform) {
      const std::string name = fmt::format("h{}_{}{}", s.input, s.offset, s.row == 0 ? "" : at(delta));
      if (names_.insert(name + std::to_string(s.row)).second) {
        name_of_[name + std::to_string(s.row)] = fmt::format("u{}", name_of_.size());
        row_lines_ += fmt::format("      const {} {} = ig_load(in{}[{}{}]);\n", arithmetic_type(s.dtype),
                                  name_of_[name + std::to_string(s.row)], s.input, s.offset, row);
      }
      return name_of_[name + std::to_string(s.row)];
    }
    const std::string key = fmt::format("s {} {} {} {} {} {}", s.input, s.offset, s.row, s.head, s.unit, s.row == 0 ? 0 : delta);
    if (names_.insert(key).second) {
      const std::string name = fmt::format("s{}", name_of_.size());
      name_of_[key] = name;
      const std::string place = fmt::format("in{}{} + {}", s.input, row, element_offset(s, "c"));
      if (s.kind == Stream::Kind::vector) {
        loads_ += fmt::format("        const auto {} = ig_read<{}, E, {}{}>({});\n", name, storage_type(s.dtype),
                              alignment(s, layout_.at_once), site_.written_over(s.input) ? ", false" : "", place);
      } else if (s.kind == Stream::Kind::strided) {
        loads_ +=
            fmt::format("        const auto {} = ig_read_strided<{}, E>({}, {});\n", name, storage_type(s.dtype), place, s.unit);
      } else {
        loads_ += fmt::format("        const {} {} = ig_load(*({}));\n", arithmetic_type(s.dtype), name, place);
      }
    }
    return s.full() ? fmt::format("ig_get({}, j)", name_of_[key]) : name_of_[key];
  }

  /// A row that exists, for reads whose answer is thrown away where it does not.
  std::string clamped(int delta) const { return delta == 0 ? "r" : fmt::format("(there{0} ? r{0} : r)", at(delta)); }

  std::string column_value(ValueId value, int delta) {
    const std::string name = fmt::format("x{}{}", value, at(delta));
    if (!names_.insert(name).second) return name;
    const RegionStep& step = step_of(value);
    const Op& op = body_.op(step.op);
    const auto k = static_cast<size_t>(std::find(op.results.begin(), op.results.end(), value) - op.results.begin());
    std::string text = value_text(
        step, k, [&](const RowAccess& read) { return read_text(read, step.result, delta); },
        element_number(step.result, "r" + at(delta), "c + j"));
    if (delta != 0) {
      // The same value of another row goes by another name.
      const std::string plain = fmt::format("x{}", value);
      for (const std::string& word : {plain + ";", plain + " ="}) {
        const size_t hit = text.find(word);
        text.replace(hit, plain.size(), name);
      }
    }
    columns_ += "          " + text;
    return name;
  }

  // ---------------------------------------------------------------- one loop

  void emit_loop(int sweep, int lead) {
    lead_ = lead;
    const bool outside = first_ < 0 || lead != 0;
    mine_ = outside ? "mine" : "true";
    rows_.clear(), names_.clear(), name_of_.clear();
    row_lines_.clear(), loads_.clear(), columns_.clear(), stores_.clear(), arrays_.clear();
    std::string rows, declared, settled;
    std::vector<const RegionStep*> reductions;
    need_row(0);
    for (const RegionStep& step : plan_.steps) {
      if (step.sweep != sweep || step.lead != lead || step.result == RowClass::scalar) {
        if (step.kind != StepKind::column_sum || step.sweep != sweep || step.lead != lead) continue;
      }
      emit_step(step, rows, declared, reductions);
    }
    line("    {}{{  // sweep {}{}", outside ? fmt::format("if (i{0:+} >= 0 && i{0:+} < rows) ", lead) : "", sweep,
         lead != 0 ? fmt::format(", {} rows ahead", lead) : "");
    line("      const row_t r = i{:+};\n      [[maybe_unused]] const bool mine = r >= begin && r < end;", lead);
    out_ += row_lines_ + rows + declared;
    if (!columns_.empty()) {
      line("      for (column_t c = lane * E; c < C; c += lanes * E) {{");
      out_ += loads_ + arrays_ + "#pragma unroll\n        for (int j = 0; j < E; ++j) {\n" + columns_ + "        }\n" + stores_;
      line("      }}");
    }
    for (const RegionStep* step : reductions) settle(*step);
    line("    }}");
  }

  void emit_step(const RegionStep& step, std::string& rows, std::string& declared, std::vector<const RegionStep*>& reductions) {
    const Op& op = body_.op(step.op);
    if (step.kind == StepKind::column_sum) return add_sum(step, rows);
    if (step.kind == StepKind::reduce_columns) {
      reductions.push_back(&step);
      const std::string acc = accumulator(op), p = fmt::format("p{}", op.results[0]);
      declared += fmt::format("      {} {} = {}::start({}());\n", acc, p, combiner(op), acc);
      const std::string x = read_text(step.reads[0], step.over, 0);
      columns_ += fmt::format("          {0} = {1}::of({0}, static_cast<{2}>({3}));\n", p, combiner(op), acc, x);
      return;
    }
    for (size_t r = 0; r < op.results.size(); ++r) {
      const ValueId value = op.results[r];
      if (step.result == RowClass::row) {
        std::string text = "      " + value_text(
                                          step, r, [&](const RowAccess& read) { return read_text(read, RowClass::row, 0); },
                                          element_number(RowClass::row, "r", "0"));
        rows += text + fmt::format("      v{0}[0] = x{0};\n", value) + store_row(value);
      } else {
        store_full(value);
      }
    }
  }

  void store_full(ValueId value) {
    const auto outputs = outputs_of_.find(value);
    if (outputs == outputs_of_.end()) return;
    const std::string x = column_value(value, 0);
    for (const int output : outputs->second) {
      arrays_ += fmt::format("        {} y{}[E];\n", type_of(value), output);
      columns_ += fmt::format("          y{}[j] = {};\n", output, x);
      stores_ += fmt::format("        if ({}{}) ig_write<E>(out{} + static_cast<int64_t>(r) * C + c, y{});\n", mine_,
                             among_first_rows(step_of(value)), output, output);
    }
  }

  std::string store_row(ValueId value) const {
    std::string out;
    const auto outputs = outputs_of_.find(value);
    if (outputs == outputs_of_.end()) return out;
    for (const int output : outputs->second) {
      out += fmt::format("      if (lane == 0 && {}) out{}[r] = ig_store<{}>::from(v{}[0]);\n", mine_, output,
                         storage_type(body_.type(value).dtype), value);
    }
    return out;
  }

  void settle(const RegionStep& step) {
    const Op& op = body_.op(step.op);
    const ValueId value = op.results[0];
    line("      __shared__ {} m{}[2][W];", accumulator(op), value);
    line("      v{0}[0] = static_cast<{1}>(ig_combine_team<{2}>(p{0}, 0, W, m{0}[static_cast<int>(i & 1)]));", value,
         type_of(value), combiner(op));
    out_ += store_row(value);
  }

  // ---------------------------------------------------------------- sums over the rows

  void add_sum(const RegionStep& step, std::string& rows) {
    const ValueId value = body_.op(step.op).results[0];
    if (step.over != RowClass::full) {
      const std::string x = read_text(step.reads[0], step.over, 0);
      rows += fmt::format("      if ({} && lane == 0) sum{} += {};\n", mine_, value, x);
      return;
    }
    const std::string x = read_text(step.reads[0], step.over, 0);
    if (step.result == RowClass::scalar) {
      columns_ += fmt::format("          if ({}) sum{} += {};\n", mine_, value, x);
      return;
    }
    const auto outputs = outputs_of_.find(value);
    if (outputs == outputs_of_.end()) return;
    for (const int output : outputs->second) {
      // The block's row of partial sums: written by its first row, added to by the others.
      const std::string place = fmt::format("out{} + static_cast<int64_t>(blockIdx.x) * C + c", output);
      loads_ +=
          fmt::format("        const auto z{} = r > begin && {} ? ig_read<float, E, E, false>({}) : ig_zeros<float, E>();\n",
                      output, mine_, place);
      arrays_ += fmt::format("        float y{}[E];\n", output);
      columns_ += fmt::format("          y{0}[j] = ig_get(z{0}, j) + {1};\n", output, x);
      stores_ += fmt::format("        if ({}) ig_write<E>({}, y{});\n", mine_, place, output);
    }
  }

  void store_scalar_sums() {
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const ValueId value = plan_.outputs[i];
      if (!sums_rows(i) || !stored(i) || step_of(value).result != RowClass::scalar) continue;
      line("  {{\n    __shared__ float warps[W];\n    const float s = ig_combine_team<ig_sum>(sum{}, 0, W, warps);", value);
      line("    if (lane == 0) out{}[blockIdx.x] = s;\n  }}", i);
    }
  }

  RowLayout layout_;
  int first_ = 0;                  ///< iteration, relative to the range's first row, that the walk begins with
  std::map<ValueId, int> depths_;  ///< rows that are kept of each value per row
  // State of the loop being written.
  int lead_ = 0;
  std::string mine_, row_lines_, loads_, columns_, stores_, arrays_;
  std::set<int> rows_;
  std::set<std::string> names_;
  std::map<std::string, std::string> name_of_;
};

}  // namespace

OpLaunches emit_looped(const Site& site, const passes::RegionPlan& plan, const RowLayout& layout) {
  return LoopedRegion(site, plan, layout).run();
}

}  // namespace ingot::codegen::cuda
