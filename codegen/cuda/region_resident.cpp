// A fused row region whose rows fit the registers of a team (layout.h; passes/region.h says what steps, sweeps and leads mean).
//
//   a thread's columns: chunks k < K of E neighbours, j < E
//   what every row shares (parameters, scalars), once: registers
//   for each row i of the team's range (and the few before it that neighbours' values need), or every row_teams-th row
//     windows move on by a row; the rows that are new are read, all streams at once, or copied to shared memory for an iteration
//     to come (ring.h)
//     for each loop (sweep, lead), in order        r = i + lead
//       values per row; for each chunk: values per head, values per column, stores; then what they were reduced to
//   sums over the rows: teams of a block one after the other, then a row of partial sums per block
//
// A value read at a neighbour row, or in a later loop, stays in registers v<value>[rows back][k][j]. Reads outside a sequence see
// zero.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/cuda/region_text.h"
#include "codegen/cuda/ring.h"
#include "ir/base/error.h"

namespace ingot::codegen::cuda {
namespace {

using ir::kNone;
using ir::Op;
using ir::ValueId;
using passes::RegionStep;
using passes::RowAccess;
using passes::RowClass;
using passes::StepKind;

class ResidentRegion final : public RegionText {
 public:
  ResidentRegion(const Site& site, passes::RegionPlan plan, const RowLayout& layout)
      : RegionText(site, std::move(plan)), layout_(layout), ring_(streams_, layout) {
    for (const RegionStep& step : plan_.steps) first_ = std::min(first_, step.low - step.lead);
    earliest_ = first_;
    for (const Stream& s : streams_) {
      if (s.row != 0) earliest_ = std::min(earliest_, s.low - s.lead);
    }
    const int64_t pieces = plan_.columns() / layout_.at_once;
    ragged_ = pieces % (int64_t{1} * layout_.lanes() * layout_.chunks) != 0;
  }

  OpLaunches run() {
    OpLaunches launches;
    const bool partials = layout_.blocks() > 1;
    KernelBuilder kernel = open_kernel(layout_, partials, launches);
    if (ring_.used()) kernel.shared(ring_.bytes());
    write_body();
    store_sums(partials);
    launches.launches.push_back(kernel.finish(out_));
    if (!launches.workspace_bytes.empty()) launches.launches.push_back(add_partials(layout_.ranges, layout_.blocks()));
    return launches;
  }

 private:
  int e() const { return layout_.at_once; }
  int k() const { return layout_.chunks; }
  std::string element_array(int depth) const { return fmt::format("[{}][{}][{}]", depth, k(), e()); }

  // ---------------------------------------------------------------- the frame

  void write_body() {
    out_.clear();
    const std::string row(index_type(plan_.rows));
    line("  constexpr int E = {}, K = {}, W = {}, teams = {}, lanes = W * IG_WARP;", e(), k(), layout_.warps, layout_.teams);
    line("  typedef {} row_t;\n  typedef {} column_t;", row, index_type(plan_.columns() + layout_.slab()));
    line("  constexpr column_t C = {}, N = {};", plan_.columns(), plan_.n);
    line("  const int lane = static_cast<int>(threadIdx.x) % lanes, team = static_cast<int>(threadIdx.x) / lanes;");
    line(
        "  const row_t rows = static_cast<row_t>(rows_size), each = static_cast<row_t>(each_size), period = "
        "static_cast<row_t>(period_size);");
    if (layout_.slabs > 1) {
      line("  const int slab = static_cast<int>(blockIdx.x % {0}), range = static_cast<int>(blockIdx.x / {0});", layout_.slabs);
    } else {
      line("  constexpr int slab = 0;\n  const int range = static_cast<int>(blockIdx.x);");
    }
    const std::string_view each = layout_.spread ? "" : " * each";
    line("  const row_t from = (static_cast<row_t>(range) * teams + team){}, begin = from < rows ? from : rows;", each);
    if (layout_.spread) {
      line("  const row_t end = rows, step = each;");
    } else {
      line("  const row_t end = begin + each < rows ? begin + each : rows;\n  [[maybe_unused]] constexpr row_t step = 1;");
    }
    line("  const column_t first_column = (static_cast<column_t>(slab) * K * lanes + lane) * E;");
    line("  const auto column = [&](int k) {{ return first_column + k * lanes * E; }};");
    if (layout_.teams > 1 && sums_columns()) line("  __shared__ float fold[K * lanes * E];");
    if (ring_.used()) declare_ring();
    declare_shared();
    declare_windows();
    if (ring_.used()) start_ring();
    line("  [[maybe_unused]] int turn = 0;");
    if (layout_.spread) {
      line("  constexpr row_t now = 0;  // nothing asks for a row's place in its sequence");
      line("  for (row_t i = begin; i < end; i += step, turn ^= 1) {{");
    } else {
      // Counted along: a remainder costs some twenty instructions a row.
      line("  row_t now = ((begin{:+}) % period + period) % period;  // i's place in its sequence", earliest_);
      line("  for (row_t i = begin{:+}; i < end; ++i, turn ^= 1, now = now + 1 < period ? now + 1 : 0) {{", earliest_);
    }
    if (ring_.used()) move_ring();
    move_windows();
    if (earliest_ < first_) line("    if (i < begin{:+}) continue;", first_);
    std::set<std::pair<int, int>> loops;
    for (const RegionStep& step : plan_.steps) {
      if (!shared(step)) loops.emplace(step.sweep, step.lead);
    }
    for (const auto& [sweep, lead] : loops) emit_loop(sweep, lead);
    line("  }}");
  }

  bool sums_columns() const {
    return std::any_of(plan_.steps.begin(), plan_.steps.end(), [](const RegionStep& step) {
      return step.kind == StepKind::column_sum && step.result == RowClass::column;
    });
  }

  std::string inside_row(const std::string& k) const { return ragged_ ? fmt::format("column({}) < C", k) : "true"; }

  // ---------------------------------------------------------------- what every row shares

  void declare_shared() {
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].row == 0 && !ring_.has(s)) {
        declare_stream(s);
        load_stream(s, "0", "  ");
      }
    }
    for (const RegionStep& step : plan_.steps) {
      if (!shared(step)) continue;
      const Op& op = body_.op(step.op);
      const bool column = step.result == RowClass::column;
      for (size_t r = 0; r < op.results.size(); ++r) {
        const ValueId value = op.results[r];
        const auto read = [&](const RowAccess& access) { return shared_read(access, step.result); };
        if (!column) {
          out_ += "  " + value_text(step, r, read, "0");
          line("  const {} v{} = x{};", type_of(value), value, value);
          out_ += store_scalar(value);
          continue;
        }
        line("  {} v{}[K][E];", type_of(value), value);
        out_ += "#pragma unroll\n  for (int k = 0; k < K; ++k) {\n#pragma unroll\n  for (int j = 0; j < E; ++j) {\n    ";
        out_ += value_text(step, r, read, "column(k) + j");
        line("    v{0}[k][j] = x{0};\n  }}\n  }}", value);
      }
    }
    for (const RegionStep& step : plan_.steps) {
      if (step.kind != StepKind::column_sum) continue;
      const ValueId value = body_.op(step.op).results[0];
      if (step.result == RowClass::column) {
        line("  float sum{}[K]{};\n  ig_clear(sum{});", value, step.over == RowClass::head ? "" : "[E]", value);
      } else {
        line("  float sum{} = 0.0f;", value);
      }
    }
  }

  std::string shared_read(const RowAccess& read, RowClass reader) {
    if (!computed(read.base)) return stream_text(read, reader, 0, "true");
    return step_of(read.base).result == RowClass::column ? fmt::format("v{}[k][j]", read.base) : fmt::format("v{}", read.base);
  }

  // ---------------------------------------------------------------- streams

  void declare_stream(size_t index) {
    const Stream& s = streams_[index];
    const std::string window = s.row == 0 ? "" : fmt::format("[{}]", s.depth());
    if (s.full()) {
      line("  ig_raw<{}, E> s{}{}[K];", storage_type(s.dtype), index, window);
    } else {
      line("  {} s{}{}{};", arithmetic_type(s.dtype), index, window, s.kind == Stream::Kind::per_head ? "[K]" : "");
    }
    line("  ig_clear(s{});", index);
  }

  void load_stream(size_t index, const std::string& row, const char* indent) {
    const Stream& s = streams_[index];
    const std::string to = fmt::format("s{}{}", index, s.row == 0 ? "" : "[0]");
    const std::string place = s.row == 0 ? "" : fmt::format(" + static_cast<int64_t>({}) * {}", row, s.row);
    const std::string pointer = fmt::format("in{}{}", s.input, place);
    if (s.kind == Stream::Kind::uniform) {
      line("{}{} = ig_load(in{}[{}{}]);", indent, to, s.input, s.offset, place);
      return;
    }
    line("#pragma unroll\n{}for (int k = 0; k < K; ++k) {{", indent);
    const std::string guard = ragged_ ? "if (column(k) < C) " : "";
    const std::string at = fmt::format("{} + {}", pointer, element_offset(s, "column(k)"));
    if (s.kind == Stream::Kind::vector) {
      line("{}  {}{}[k] = ig_read<{}, E, {}{}>({});", indent, guard, to, storage_type(s.dtype), alignment(s, e()),
           site_.written_over(s.input) ? ", false" : "", at);
    } else if (s.kind == Stream::Kind::strided) {
      line("{}  {}{}[k] = ig_read_strided<{}, E>({}, {});", indent, guard, to, storage_type(s.dtype), at, s.unit);
    } else {
      line("{}  {}{}[k] = ig_load(*({}));", indent, guard, to, at);
    }
    line("{}}}", indent);
  }

  /// Element of a stream for the reader at hand; zero where `inside` is false.
  std::string stream_text(const RowAccess& read, RowClass reader, int lead, const std::string& inside) {
    const int index = stream_of(read, reader);
    const Stream& s = streams_[static_cast<size_t>(index)];
    std::string at = fmt::format("s{}", index);
    if (ring_.has(static_cast<size_t>(index))) {
      const int back = s.row == 0 ? 0 : s.lead - (lead + read.shift);
      waited_.emplace(index, back);
      at = fmt::format("q{}_{}", index, back);
      if (s.full()) at = fmt::format("ig_get({}, j)", at);
      return read.shift == 0 ? at : fmt::format("({} ? {} : {}(0))", inside, at, arithmetic_type(s.dtype));
    }
    if (s.row != 0) at += fmt::format("[{}]", s.lead - (lead + read.shift));
    if (s.kind != Stream::Kind::uniform) at += "[k]";
    if (s.full()) at = fmt::format("ig_get({}, j)", at);
    return read.shift == 0 ? at : fmt::format("({} ? {} : {}(0))", inside, at, arithmetic_type(s.dtype));
  }

  // ---------------------------------------------------------------- streams that wait in shared memory

  std::string element_pointer(const Stream& s, const std::string& row) const {
    const std::string place = s.row == 0 ? "" : fmt::format(" + static_cast<int64_t>({}) * {}", row, s.row);
    return s.kind == Stream::Kind::uniform ? fmt::format("in{} + {}{}", s.input, s.offset, place)
                                           : fmt::format("in{}{} + {}", s.input, place, element_offset(s, "column(k)"));
  }

  void fill_stream(size_t index, const std::string& base, const std::string& row) {
    const Stream& s = streams_[index];
    const std::string fill = fmt::format("ig_ring_fill<{}, {}, lanes>({}, lane, {});", storage_type(s.dtype),
                                         s.full() ? "E" : "1", ring_.place(s, index, base), element_pointer(s, row));
    if (s.kind == Stream::Kind::uniform) return line("      {}", fill);
    line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{\n        {}{}\n      }}", ragged_ ? "if (column(k) < C) " : "",
         fill);
  }

  void declare_ring() {
    line("  constexpr int slots = {}, ahead = {}, row_bytes = {};", ring_.slots(), layout_.ahead, ring_.row_bytes());
    line("  IG_DYNAMIC_SHARED(memory);\n  const ig_address ring = memory + team * (slots * row_bytes);");
    line("  [[maybe_unused]] const ig_address parameters = memory + {};", ring_.parameters_at());
    line("  // What iteration i finds new, to the slot `to` of the ring.\n  const auto fill = [&](row_t i, int slot) {{");
    line("    const ig_address to = ring + slot * row_bytes;");
    std::set<int> leads;
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (ring_.has(s) && streams_[s].row != 0) leads.insert(streams_[s].lead);
    }
    for (const int lead : leads) {
      line("    if (i < end && i{0:+} >= 0 && i{0:+} < rows) {{", lead);
      for (size_t s = 0; s < streams_.size(); ++s) {
        if (ring_.has(s) && streams_[s].row != 0 && streams_[s].lead == lead) fill_stream(s, "to", fmt::format("(i{:+})", lead));
      }
      line("    }}");
    }
    line("    ig_copy_commit();\n  }};");
  }

  void start_ring() {
    line("  if (team == 0) {{");
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (ring_.has(s) && streams_[s].row == 0) fill_stream(s, "parameters", "");
    }
    line("  }}\n  ig_copy_commit();");
    if (layout_.teams > 1) line("  ig_ring_wait<0>();\n  __syncthreads();");
    line("  for (int a = 0; a < ahead; ++a) fill(begin{:+} + a * step, a);\n  int slot = slots - 1;", earliest_);
  }

  void move_ring() {
    line("    slot = slot + 1 < slots ? slot + 1 : 0;");
    line("    fill(i + ahead * step, slot + ahead < slots ? slot + ahead : slot + ahead - slots);\n    ig_ring_wait<ahead>();");
    for (int d = 0; d < ring_.depth(); ++d) {
      line("    [[maybe_unused]] const ig_address row{0} = ring + (slot >= {0} ? slot - {0} : slot - {0} + slots) * row_bytes;",
           d);
    }
  }

  /// The loop's reads of the ring: those of one element a row, or the others.
  std::string waited_text(bool uniform) const {
    std::string out;
    for (const auto& [index, back] : waited_) {
      const Stream& s = streams_[static_cast<size_t>(index)];
      if ((s.kind == Stream::Kind::uniform) != uniform) continue;
      out += fmt::format("      {}const auto q{}_{} = {};\n", uniform ? "" : "  ", index, back,
                         ring_.read(s, static_cast<size_t>(index), back));
    }
    return out;
  }

  void declare_windows() {
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].row != 0 && !ring_.has(s)) declare_stream(s);
    }
    for (const RegionStep& step : plan_.steps) {
      if (shared(step) || step.kind == StepKind::column_sum) continue;
      for (const ValueId value : body_.op(step.op).results) {
        if (step.result == RowClass::full && !outlives_loop(value)) continue;
        const std::string shape = step.result == RowClass::full   ? element_array(step.depth)
                                  : step.result == RowClass::head ? fmt::format("[{}][{}]", step.depth, k())
                                                                  : fmt::format("[{}]", step.depth);
        line("  {0} v{1}{2};\n  ig_clear(v{1});", type_of(value), value, shape);
        if (step.depth > 1) rotating_.push_back(value);
      }
    }
  }

  void move_windows() {
    for (const ValueId value : rotating_) line("    ig_rotate(v{});", value);
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].depth() > 1 && !ring_.has(s)) line("    ig_rotate(s{});", s);
    }
    for (size_t s = 0; s < streams_.size(); ++s) {
      const Stream& stream = streams_[s];
      if (stream.row == 0 || ring_.has(s)) continue;
      // The window's newest row is this far ahead, and may lie outside.
      const bool always = earliest_ == 0 && stream.lead == 0;
      if (!always) line("    if (i{0:+} >= 0 && i{0:+} < rows) {{", stream.lead);
      load_stream(s, fmt::format("(i{:+})", stream.lead), always ? "    " : "      ");
      if (!always) line("    }}");
    }
  }

  // ---------------------------------------------------------------- one loop

  /// Is the loop also run for rows that belong to another team? Such rows are neither stored nor summed.
  bool leaves_range(int lead) const { return first_ < 0 || lead != 0; }

  void emit_loop(int sweep, int lead) {
    mine_ = leaves_range(lead) ? "mine" : "true";
    std::vector<const RegionStep*> steps;
    for (const RegionStep& step : plan_.steps) {
      if (!shared(step) && step.sweep == sweep && step.lead == lead) steps.push_back(&step);
    }
    std::string rows, heads, columns, declared, stores;
    for (const RegionStep* step : steps) emit_step(*step, rows, heads, columns, declared, stores);
    const bool outside = first_ < 0 || lead != 0;
    line("    {}{{  // sweep {}{}", outside ? fmt::format("if (i{0:+} >= 0 && i{0:+} < rows) ", lead) : "", sweep,
         lead != 0 ? fmt::format(", {} rows ahead", lead) : "");
    line("      const row_t r = i{:+};", lead);
    line("      [[maybe_unused]] const row_t t = {};", place_in_sequence(lead));
    line("      [[maybe_unused]] const bool mine = r >= begin && r < end, before = t > 0, after = t + 1 < period;");
    out_ += waited_text(true) + rows + declared;
    if (!heads.empty() || !columns.empty() || !stores.empty()) {
      line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{");
      line("        [[maybe_unused]] const column_t c = column(k);\n        [[maybe_unused]] const bool inside = {};",
           inside_row("k"));
      out_ += store_arrays_ + waited_text(false) + heads;
      if (!columns.empty()) out_ += "#pragma unroll\n        for (int j = 0; j < E; ++j) {\n" + columns + "        }\n";
      out_ += stores;
      line("      }}");
    }
    store_arrays_.clear();
    waited_.clear();
    finish_reductions(steps);
    line("    }}");
  }

  /// Of the row `lead` ahead of i.
  std::string place_in_sequence(int lead) const {
    if (lead == 0) return "now";
    if (std::abs(lead) > plan_.period) return fmt::format("((now{:+}) % period + period) % period", lead);
    return lead > 0 ? fmt::format("now + {0} < period ? now + {0} : now + {0} - period", lead)
                    : fmt::format("now >= {0} ? now - {0} : now - {0} + period", -lead);
  }

  void emit_step(const RegionStep& step, std::string& rows, std::string& heads, std::string& columns, std::string& declared,
                 std::string& stores) {
    const RowClass reader = reader_of(step);
    std::string& into = reader == RowClass::full ? columns : reader == RowClass::head ? heads : rows;
    const char* indent = reader == RowClass::full ? "          " : reader == RowClass::head ? "        " : "      ";
    const Op& op = body_.op(step.op);
    const bool copies = step.kind == StepKind::reduce_columns && step.result == RowClass::full;  // rows of one element
    if (step.kind == StepKind::column_sum) {
      into += indent + sum_text(step) + "\n";
    } else if (step.kind == StepKind::reduce_columns && !copies) {
      start_reduction(step, declared, into, indent);
    } else {
      for (size_t r = 0; r < op.results.size(); ++r) {
        into += indent + value_text(
                             step, r, [&](const RowAccess& access) { return read_text(step, reader, access); },
                             element_number(reader, "r", reader == RowClass::full ? "c + j" : "c"));
        keep(step, op.results[r], into, indent);
        store(step, op.results[r], into, stores);
      }
    }
  }

  void keep(const RegionStep& step, ValueId value, std::string& into, const char* indent) const {
    if (step.result == RowClass::full && outlives_loop(value))
      into += fmt::format("{}v{}[0][k][j] = x{};\n", indent, value, value);
    if (step.result == RowClass::head) into += fmt::format("{}v{}[0][k] = x{};\n", indent, value, value);
    if (step.result == RowClass::row) into += fmt::format("{}v{}[0] = x{};\n", indent, value, value);
  }

  std::string store_row(int output, ValueId value, const std::string& from) const {
    return fmt::format("      if (lane == 0 && slab == 0 && {}) out{}[r] = ig_store<{}>::from({});\n", mine_, output,
                       storage_type(body_.type(value).dtype), from);
  }
  std::string store_head(int output, ValueId value, const std::string& from) const {
    return fmt::format(
        "        if (inside && c % N == 0 && {}) out{}[static_cast<int64_t>(r) * (C / N) + c / N] = ig_store<{}>::from({});\n",
        mine_, output, storage_type(body_.type(value).dtype), from);
  }

  void store(const RegionStep& step, ValueId value, std::string& into, std::string& stores) {
    const auto outputs = outputs_of_.find(value);
    if (outputs == outputs_of_.end()) return;
    for (const int output : outputs->second) {
      if (step.result == RowClass::row) {
        into += store_row(output, value, fmt::format("x{}", value));
      } else if (step.result == RowClass::head) {
        into += store_head(output, value, fmt::format("x{}", value));
      } else {
        store_arrays_ += fmt::format("        {} y{}[E];\n", type_of(value), output);
        into += fmt::format("          y{}[j] = x{};\n", output, value);
        stores += fmt::format("        if (inside && {}{}) ig_write<E>(out{} + static_cast<int64_t>(r) * C + c, y{});\n", mine_,
                              among_first_rows(step), output, output);
      }
    }
  }

  std::string read_text(const RegionStep& step, RowClass reader, const RowAccess& read) {
    const std::string inside = read.shift < 0 ? "before" : "after";
    if (!computed(read.base)) return stream_text(read, reader, step.lead, inside);
    const RegionStep& maker = step_of(read.base);
    if (maker.result == RowClass::scalar) return fmt::format("v{}", read.base);
    if (maker.result == RowClass::column) return fmt::format("v{}[k][j]", read.base);
    const bool fresh = same_loop(maker, step) && read.shift == 0;
    if (fresh && maker.result == RowClass::full) return fmt::format("x{}", read.base);
    std::string at = fmt::format("v{}[{}]", read.base, maker.lead - (step.lead + read.shift));
    if (maker.result == RowClass::head) at += "[k]";
    if (maker.result == RowClass::full) at += "[k][j]";
    return read.shift == 0 ? at : fmt::format("({} ? {} : {}(0))", inside, at, type_of(read.base));
  }

  // ---------------------------------------------------------------- reductions along a row

  /// Every head has one value in these chunks: combined by lanes, or through shared memory where its lanes are no power of two.
  bool by_lanes() const {
    const int64_t lanes = plan_.n / e();
    return lanes <= 32 && (lanes & (lanes - 1)) == 0;
  }

  void start_reduction(const RegionStep& step, std::string& declared, std::string& into, const char* indent) {
    const Op& op = body_.op(step.op);
    const ValueId value = op.results[0];
    const std::string acc = accumulator(op), combine = combiner(op);
    const bool head = step.result == RowClass::head;
    declared += fmt::format("      {} p{}{};\n", acc, value, head ? "[K]" : "");
    const std::string start = fmt::format("{}::start({}())", combine, acc);
    declared += head ? fmt::format("#pragma unroll\n      for (int k = 0; k < K; ++k) p{} [k] = {};\n", value, start)
                     : fmt::format("      p{} = {};\n", value, start);
    const std::string p = fmt::format("p{}{}", value, head ? "[k]" : "");
    // A head's value stands in each of its chunks; the first one counts.
    const std::string guard = step.over == RowClass::head ? "inside && c % N == 0" : ragged_ ? "inside" : "";
    const std::string taken =
        fmt::format("{0} = {1}::of({0}, static_cast<{2}>({3}));", p, combine, acc, read_text(step, step.over, step.reads[0]));
    into += indent + (guard.empty() ? taken : fmt::format("if ({}) {}", guard, taken)) + "\n";
  }

  void finish_reductions(const std::vector<const RegionStep*>& steps) {
    std::vector<const RegionStep*> rows, heads;
    for (const RegionStep* step : steps) {
      if (step->kind != StepKind::reduce_columns || step->result == RowClass::full) continue;
      (step->result == RowClass::row ? rows : heads).push_back(step);
    }
    if (rows.empty() && heads.empty()) return;
    const bool through_memory = (!rows.empty() && layout_.warps > 1) || (!heads.empty() && !by_lanes());
    for (const RegionStep* step : rows) {
      line("      p{0} = ig_combine_lanes<{1}>(p{0}, IG_WARP);", result(*step), combiner(body_.op(step->op)));
    }
    if (!heads.empty() && by_lanes()) {
      line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{");
      for (const RegionStep* step : heads)
        line("        p{0}[k] = ig_combine_lanes<{1}>(p{0}[k], N / E);", result(*step), combiner(body_.op(step->op)));
      line("      }}");
    }
    if (through_memory) exchange(rows, heads);
    for (const RegionStep* step : rows) settle_row(*step);
    if (heads.empty()) return;
    line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{");
    line("        [[maybe_unused]] const column_t c = column(k);\n        [[maybe_unused]] const bool inside = {};",
         inside_row("k"));
    for (const RegionStep* step : heads) settle_head(*step);
    line("      }}");
  }

  ValueId result(const RegionStep& step) const { return body_.op(step.op).results[0]; }

  /// One meeting for all reductions of a loop; scratch is used in turn, so that the next row need not wait for slow readers.
  void exchange(const std::vector<const RegionStep*>& rows, const std::vector<const RegionStep*>& heads) {
    const bool warps = layout_.warps > 1;
    for (const RegionStep* step : rows) {
      if (!warps) continue;
      line("      __shared__ {} m{}[teams][2][W];", accumulator(body_.op(step->op)), result(*step));
      line("      if (lane % IG_WARP == 0) m{0}[team][turn][lane / IG_WARP] = p{0};", result(*step));
    }
    for (const RegionStep* step : heads) {
      if (by_lanes()) continue;
      line("      __shared__ {} m{}[teams][2][K * lanes];", accumulator(body_.op(step->op)), result(*step));
      line("#pragma unroll\n      for (int k = 0; k < K; ++k) m{0}[team][turn][k * lanes + lane] = p{0}[k];", result(*step));
    }
    line("      ig_meet(team, lanes);");
    for (const RegionStep* step : rows) {
      if (!warps) continue;
      line(
          "      p{0} = m{0}[team][turn][0];\n#pragma unroll\n      for (int w = 1; w < W; ++w) p{0} = {1}::of(p{0}, "
          "m{0}[team][turn][w]);",
          result(*step), combiner(body_.op(step->op)));
    }
    for (const RegionStep* step : heads) {
      if (by_lanes()) continue;
      line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{");
      line("        const int first = (k * lanes + lane) / (N / E) * (N / E);");
      line("        p{0}[k] = m{0}[team][turn][first];", result(*step));
      line(
          "        for (int h = 1; h < N / E; ++h) p{0}[k] = {1}::of(p{0}[k], first + h < K * lanes ? m{0}[team][turn][first + "
          "h] : "
          "{1}::start({2}()));",
          result(*step), combiner(body_.op(step->op)), accumulator(body_.op(step->op)));
      line("      }}");
    }
  }

  void settle_row(const RegionStep& step) {
    const ValueId value = result(step);
    line("      v{0}[0] = static_cast<{1}>(p{0});", value, type_of(value));
    const auto outputs = outputs_of_.find(value);
    if (outputs == outputs_of_.end()) return;
    for (const int output : outputs->second) out_ += store_row(output, value, fmt::format("v{}[0]", value));
  }
  void settle_head(const RegionStep& step) {
    const ValueId value = result(step);
    line("        v{0}[0][k] = static_cast<{1}>(p{0}[k]);", value, type_of(value));
    const auto outputs = outputs_of_.find(value);
    if (outputs == outputs_of_.end()) return;
    for (const int output : outputs->second) out_ += store_head(output, value, fmt::format("v{}[0][k]", value));
  }

  // ---------------------------------------------------------------- sums over the rows

  std::string sum_text(const RegionStep& step) {
    const ValueId value = result(step);
    const std::string x = read_text(step, step.over, step.reads[0]);
    std::string to = fmt::format("sum{}", value), guard = mine_;
    if (step.result == RowClass::column) {
      to += step.over == RowClass::full ? "[k][j]" : "[k]";
    } else if (step.over == RowClass::full) {
      if (ragged_) guard += " && inside";
    } else {
      guard += step.over == RowClass::head ? " && inside && c % N == 0" : " && lane == 0 && slab == 0";
    }
    return guard == "true" ? fmt::format("{} += {};", to, x) : fmt::format("{0} = {1} ? {0} + {2} : {0};", to, guard, x);
  }

  void store_sums(bool partials) {
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      if (!sums_rows(i) || !stored(i)) continue;
      const ValueId value = plan_.outputs[i];
      const RegionStep& step = step_of(value);
      const std::string type(partials ? "float" : storage_type(body_.type(value).dtype));
      if (step.result == RowClass::scalar) {
        line("  {{\n    __shared__ float warps[teams][W];\n    const float s = ig_combine_lanes<ig_sum>(sum{}, IG_WARP);", value);
        line("    if (lane % IG_WARP == 0) warps[team][lane / IG_WARP] = s;\n    __syncthreads();");
        line("    if (threadIdx.x == 0) {{\n      float total = 0.0f;");
        line("      for (int m = 0; m < teams; ++m) {{\n        for (int w = 0; w < W; ++w) total += warps[m][w];\n      }}");
        line("      out{}[{}] = ig_store<{}>::from(total);\n    }}\n  }}", i, partials ? "blockIdx.x" : "0", type);
        continue;
      }
      const bool head = step.over == RowClass::head;
      const std::string width = head ? "(C / N)" : "C";
      const std::string place = fmt::format(
          "out{}{} + {}", i, partials ? fmt::format(" + static_cast<int64_t>(range) * {}", width) : "", head ? "c / N" : "c");
      line("  {{  // teams in turn");
      if (layout_.teams > 1) {
        line(
            "    for (int m = 0; m < teams; ++m) {{\n      if (team == m) {{\n#pragma unroll\n        for (int k = 0; k < K; "
            "++k) {{");
        if (head) {
          line("          float& to = fold[k * lanes + lane];\n          to = sum{0}[k] += m > 0 ? to : 0.0f;", value);
        } else {
          line(
              "#pragma unroll\n          for (int j = 0; j < E; ++j) {{\n            float& to = fold[(k * E + j) * lanes + "
              "lane];\n"
              "            to = sum{0}[k][j] += m > 0 ? to : 0.0f;\n          }}",
              value);
        }
        line("        }}\n      }}\n      __syncthreads();\n    }}");
      }
      line(
          "    if (team == teams - 1) {{\n#pragma unroll\n      for (int k = 0; k < K; ++k) {{\n        const column_t c = "
          "column(k);");
      const std::string guard = head ? "c < C && c % N == 0" : ragged_ ? "c < C" : "true";
      if (head) {
        line("        if ({}) *({}) = ig_store<{}>::from(sum{}[k]);", guard, place, type, value);
      } else {
        line("        if ({}) ig_write<E>({}, sum{}[k]);", guard, place, value);
      }
      line("      }}\n    }}\n  }}");
    }
  }

  RowLayout layout_;
  RowRing ring_;
  bool ragged_ = false;  ///< some of the team's columns lie beyond the row
  int first_ = 0;        ///< iteration, relative to the range's first row, from which values are computed
  int earliest_ = 0;     ///< from which streams are read
  std::vector<ValueId> rotating_;
  // State of the loop being written.
  std::string mine_, store_arrays_;
  std::set<std::pair<int, int>> waited_;  ///< streams it reads from the ring, and how many rows back
};

}  // namespace

OpLaunches emit_resident(const Site& site, const passes::RegionPlan& plan, const RowLayout& layout) {
  return ResidentRegion(site, plan, layout).run();
}

}  // namespace ingot::codegen::cuda
