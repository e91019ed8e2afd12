// A fused row region whose rows fit the registers of a team (layout.h; passes/region.h says what steps, sweeps and leads mean).
//
//   a thread's columns: chunks k < K of E neighbours, j < E
//   what every row shares (parameters, scalars), once: registers
//   for each row i of the team's range (and the few before it that neighbours' values need), or every row_teams-th row
//     windows move on by a row, by taking rows with as many copies of this text in turn as windows are deep; the rows that are
//     new are read, all streams at once, or copied to shared memory for an iteration to come (ring.h)
//     for each loop (sweep, lead), in order        r = i + lead
//       values per row; for each chunk: values per head, values per column, stores; then what they were reduced to
//     loops of a sweep that read the same of the ring are one, with each lead's part in it
//   sums over the rows: teams of a block one after the other, then a row of partial sums per block
//
// A value read at a neighbour row, or in a later loop, stays in registers v<value>[rows back][k][j]. Reads outside a sequence see
// zero. What a thread does once a row costs as much as several elements: conditions are asked a warp, not an element, and what
// seldom holds is a branch (sums are cleared at the range's first row instead of asking for every row whether it counts).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "codegen/cuda/resident_streams.h"
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

constexpr int kKept = 16;  // registers for elements that are read from the ring once for several sweeps

class ResidentRegion final : public ResidentStreams {
 public:
  ResidentRegion(const Site& site, passes::RegionPlan plan, const RowLayout& layout)
      : ResidentStreams(site, std::move(plan), layout) {
    find_cleared();
    find_phases();
  }

  OpLaunches run() {
    OpLaunches launches;
    const bool partials = layout_.blocks() > 1;
    KernelBuilder kernel = open_kernel(layout_, partials, launches);
    if (ring_.used()) kernel.shared(ring_.bytes());
    write_body();
    store_sums(partials);
    launches.launches.push_back(kernel.finish(out_));
    if (!launches.workspace_bytes.empty()) launches.sums = pending_sums(layout_);
    return launches;
  }

 private:
  std::string element_array(int depth) const { return fmt::format("[{}][{}][{}]", depth, k(), e()); }

  // ---------------------------------------------------------------- the frame

  void write_body() {
    out_.clear();
    const std::string row(index_type(plan_.rows));
    line("  constexpr int E = {}, K = {}, W = {}, teams = {}, lanes = W * IG_WARP;", e(), k(), layout_.warps, layout_.teams);
    line("  typedef {} row_t;\n  typedef {} column_t;", row, index_type(plan_.columns() + layout_.slab()));
    line("  constexpr column_t C = {}, N = {};", plan_.columns(), plan_.n);
    if (layout_.teams > 1) {
      line("  const int lane = static_cast<int>(threadIdx.x) % lanes, team = ig_of_warp(static_cast<int>(threadIdx.x) / lanes);");
    } else {
      line(
          "  const int lane = static_cast<int>(threadIdx.x);\n  constexpr int team = 0;  // so that rows are known to be all "
          "threads'");
    }
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
    walk_rows();
  }

  void walk_rows() {
    line("  [[maybe_unused]] int turn = 0;");
    if (layout_.spread) {
      line("  constexpr row_t now = 0;  // nothing asks for a row's place in its sequence");
    } else {
      // Counted along: a remainder costs some twenty instructions a row.
      line("  row_t now = ((begin{:+}) % period + period) % period;  // i's place in its sequence", earliest_);
    }
    line("  row_t i = begin < end ? begin{:+} : end;", earliest_);
    line("  const auto take = [&]([[maybe_unused]] const int phase) IG_INLINED {{");
    if (ring_.used()) move_ring();
    move_windows();
    fills_ = ring_.used();
    if (earliest_ < first_) {
      fill_ring("    ");
      line("    if (i < begin{:+}) return;", first_);
    }
    clear_windows();
    emit_loops();
    line("  }};");
    line("  const auto next_row = [&] {{ i += step, turn ^= 1{}; }};",
         layout_.spread ? "" : ", now = now + 1 < period ? now + 1 : 0");
    line("  for (; i < end; next_row()) {{");
    for (int phase = phases_ - 1; phase > 0; --phase) {
      line("    take({});\n    next_row();\n    if (i >= end) break;", phase);
    }
    line("    take(0);\n  }}");
  }

  /// Where all windows are as deep, rows are taken by as many copies of the text in turn, and what was the newest row is the one
  /// before it without a move.
  void find_phases() {
    std::set<int> depths;
    for (const RegionStep& step : plan_.steps) {
      if (!shared(step) && step.kind != StepKind::column_sum && step.depth > 1) depths.insert(step.depth);
    }
    if (depths.size() == 1) phases_ = *depths.begin();
  }

  /// Which part of a value's window holds the row `back` rows before the newest.
  std::string row_of_window(ValueId value, int back) const {
    if (phases_ == 1 || step_of(value).depth == 1) return fmt::format("[{}]", back);
    return back == 0 ? "[phase]" : fmt::format("[(phase + {}) % {}]", back, phases_);
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
        if (step.depth > 1 && phases_ == 1) rotating_.push_back(value);
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

  /// Steps that share a loop over the columns, as text.
  struct Loop {
    int sweep = 0, lead = 0, low = 0;
    std::vector<const RegionStep*> steps;
    std::string rows, heads, columns, declared, stores, arrays, places;
    RingReads waited;

    bool along_row() const { return !rows.empty() || !declared.empty(); }
    bool over_columns() const { return !heads.empty() || !columns.empty() || !stores.empty(); }
  };

  void emit_loops() {
    std::map<std::pair<int, int>, Loop> all;
    for (const RegionStep& step : plan_.steps) {
      if (shared(step)) continue;
      Loop& loop = all[{step.sweep, step.lead}];
      loop.low = loop.steps.empty() ? step.low : std::min(loop.low, step.low);
      loop.sweep = step.sweep, loop.lead = step.lead;
      loop.steps.push_back(&step);
    }
    for (auto& [place, loop] : all) write_loop(loop);
    keep_streams(all);
    const Loop& first = all.begin()->second;
    if (!first.over_columns() || !needed(first).empty()) fill_ring("    ");
    std::vector<Loop> sweep;
    for (auto at = all.begin(); at != all.end(); ++at) {
      sweep.push_back(std::move(at->second));
      const auto next = std::next(at);
      if (next != all.end() && next->first.first == sweep.back().sweep) continue;
      if (mergeable(sweep)) {
        emit_merged(sweep);
      } else {
        for (const Loop& loop : sweep) emit_loop(loop);
      }
      sweep.clear();
    }
  }

  /// What several sweeps read of the ring is read once where that takes few registers.
  void keep_streams(const std::map<std::pair<int, int>, Loop>& loops) {
    std::map<std::pair<int, int>, std::set<int>> sweeps;
    for (const auto& [place, loop] : loops) {
      for (const auto& read : loop.waited) sweeps[read].insert(loop.sweep);
    }
    kept_.clear();
    for (const auto& [read, in] : sweeps) {
      const Stream& s = streams_[static_cast<size_t>(read.first)];
      if (in.size() < 2 || s.row == 0 || s.kind != Stream::Kind::vector) continue;
      if ((static_cast<int>(kept_.size()) + 1) * e() * k() > kKept) continue;
      kept_.insert(read);
      line("    ig_raw<{}, E> kept{}_{}[K];", storage_type(s.dtype), read.first, read.second);
      line("#pragma unroll\n    for (int k = 0; k < K; ++k) kept{0}_{1}[k] = {2};", read.first, read.second,
           ring_.read(s, static_cast<size_t>(read.first), read.second));
    }
  }

  /// Copies of a row to come stand behind the first reads of the present one, which take a while.
  void fill_ring(const char* before) {
    if (fills_) line("{}fill(i + ahead * step, filled);", before);
    fills_ = false;
  }

  void write_loop(Loop& loop) {
    mine_ = mine(loop);
    for (const RegionStep* step : loop.steps) emit_step(*step, loop.rows, loop.heads, loop.columns, loop.declared, loop.stores);
    std::swap(loop.arrays, store_arrays_);
    std::swap(loop.places, places_);
    std::swap(loop.waited, waited_);
  }

  /// When the loop runs: where anything needs its row, and there is one. Floats may as well be made of whatever stands in the
  /// ring beside the first and the last row: no reader looks beyond its sequence, and a condition costs copies of all that it
  /// changes.
  std::string needed(const Loop& loop) const {
    std::string out;
    if (first_ + loop.lead < loop.low) out += fmt::format(" && i{:+} >= begin{:+}", loop.lead, loop.low);
    if (!floats_only(loop) && loop.low < 0) out += fmt::format(" && i{:+} >= 0", loop.lead);
    if (!floats_only(loop) && loop.lead > 0) out += fmt::format(" && i{:+} < rows", loop.lead);
    return out.empty() ? out : out.substr(4);
  }
  bool floats_only(const Loop& loop) const {
    return std::all_of(loop.steps.begin(), loop.steps.end(), [&](const RegionStep* step) {
      const Op& op = body_.op(step->op);
      const auto is_f32 = [&](ValueId value) { return type_of(value) == "float"; };
      return step->kind != StepKind::generate && std::all_of(op.results.begin(), op.results.end(), is_f32) &&
             std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId value) { return value == kNone || is_f32(value); });
    });
  }
  /// Whether the row is the team's own: others are neither stored nor summed.
  static std::string mine(const Loop& loop) {
    if (loop.low < 0 && loop.lead > 0) return "mine";
    return loop.low < 0 ? "begins" : loop.lead > 0 ? "ends" : "true";
  }

  /// Sums begin with the team's first row: what rows before it left there is forgotten.
  void begin_sums(const Loop& loop) {
    if (loop.low >= 0) return;
    std::string clear;
    for (const RegionStep* step : loop.steps) {
      if (step->kind == StepKind::column_sum) clear += fmt::format(" ig_clear_apart(sum{});", result(*step));
    }
    if (!clear.empty()) line("    if (ig_seldom(i == begin)) {{{} }}", clear);
  }

  void place_row(int lead) {
    line("      const row_t r = i{:+};", lead);
    line("      [[maybe_unused]] const row_t t = {};", place_in_sequence(lead));
    line("      [[maybe_unused]] const bool begins = r >= begin, ends = r < end, mine = begins && ends;");
    line("      [[maybe_unused]] const bool before = t > 0, after = t + 1 < period;");
  }

  void place_chunk() {
    line("        [[maybe_unused]] const column_t c = column(k);\n        [[maybe_unused]] const bool inside = {};",
         inside_row("k"));
  }

  /// What a loop does with a chunk of columns.
  void write_chunk(const Loop& loop) {
    out_ += loop.arrays + loop.heads;
    if (!loop.columns.empty()) out_ += "#pragma unroll\n        for (int j = 0; j < E; ++j) {\n" + loop.columns + "        }\n";
    out_ += loop.stores;
  }

  void emit_loop(const Loop& loop) {
    const std::string condition = needed(loop);
    begin_sums(loop);
    line("    {}{{  // sweep {}{}", condition.empty() ? "" : fmt::format("if ({}) ", condition), loop.sweep,
         loop.lead != 0 ? fmt::format(", {} rows ahead", loop.lead) : "");
    place_row(loop.lead);
    out_ += waited_text(loop.waited, true) + loop.rows + loop.declared + loop.places;
    if (loop.over_columns()) {
      line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{");
      place_chunk();
      out_ += waited_text(loop.waited, false);
      fill_ring("        if (k == 0) ");
      write_chunk(loop);
      line("      }}");
    }
    finish_reductions(loop);
    line("    }}");
  }

  /// May the loops of a sweep be one? They depend on each other by earlier iterations only, or in the order of their leads; what
  /// runs along a row stands outside the conditions of the others, so that at most one loop has that. It is worth it where they
  /// read the same: parameters, most of all.
  static bool mergeable(const std::vector<Loop>& sweep) {
    if (sweep.size() < 2) return false;
    const auto along = [](const Loop& loop) { return loop.along_row(); };
    const auto idle = [](const Loop& loop) { return !loop.over_columns(); };
    if (std::count_if(sweep.begin(), sweep.end(), along) > 1 || std::any_of(sweep.begin(), sweep.end(), idle)) return false;
    RingReads read;
    size_t reads = 0;
    for (const Loop& loop : sweep) {
      read.insert(loop.waited.begin(), loop.waited.end());
      reads += loop.waited.size();
    }
    return read.size() < reads;
  }

  void emit_merged(const std::vector<Loop>& sweep) {
    for (const Loop& loop : sweep) begin_sums(loop);
    line("    {{  // sweep {}, all rows", sweep[0].sweep);
    RingReads once, shared;
    for (const Loop& loop : sweep) {
      for (const auto& read : loop.waited) {
        if (!once.insert(read).second) shared.insert(read);
      }
    }
    out_ += waited_text(once, true);
    for (const Loop& loop : sweep) {
      if (!loop.along_row()) continue;
      place_row(loop.lead);
      out_ += loop.rows + loop.declared;
    }
    line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{");
    place_chunk();
    out_ += waited_text(shared, false);
    fill_ring("        if (k == 0) ");
    for (const Loop& loop : sweep) {
      const std::string condition = needed(loop);
      line("      {}{{  // {} rows ahead", condition.empty() ? "" : fmt::format("if ({}) ", condition), loop.lead);
      place_row(loop.lead);
      out_ += loop.places;
      RingReads own;
      std::set_difference(loop.waited.begin(), loop.waited.end(), shared.begin(), shared.end(), std::inserter(own, own.end()));
      out_ += waited_text(own, false);
      write_chunk(loop);
      line("      }}");
    }
    line("      }}");
    for (const Loop& loop : sweep) finish_reductions(loop);
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
      start_reduction(step, declared, into, stores, indent);
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
      into += fmt::format("{}v{}{}[k][j] = x{};\n", indent, value, row_of_window(value, 0), value);
    if (step.result == RowClass::head) into += fmt::format("{}v{}{}[k] = x{};\n", indent, value, row_of_window(value, 0), value);
    if (step.result == RowClass::row) into += fmt::format("{}v{}{} = x{};\n", indent, value, row_of_window(value, 0), value);
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
        places_ += fmt::format("      auto* const to{0} = out{0} + (static_cast<int64_t>(r) * C + first_column);\n", output);
        stores += fmt::format("        if (inside && {}{}) ig_write<E>(to{} + k * lanes * E, y{});\n", mine_,
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
    std::string at = fmt::format("v{}{}", read.base, row_of_window(read.base, maker.lead - (step.lead + read.shift)));
    if (maker.result == RowClass::head) at += "[k]";
    if (maker.result == RowClass::full) at += "[k][j]";
    const bool plain = read.shift == 0 || (cleared_.contains(read.base) && oldest(maker, step, read));
    return plain ? at : fmt::format("({} ? {} : {}(0))", inside, at, type_of(read.base));
  }

  bool oldest(const RegionStep& maker, const RegionStep& reader, const RowAccess& read) const {
    return maker.depth > 1 && maker.lead - (reader.lead + read.shift) == maker.depth - 1;
  }

  /// Full values whose oldest row all its readers see as the row before theirs, and at the same lead: where a sequence begins it
  /// is cleared, once for all of them.
  void find_cleared() {
    std::map<ValueId, std::set<std::pair<int, int>>> readers;  // of the oldest row: lead and shift
    for (const RegionStep& step : plan_.steps) {
      for (const RowAccess& read : step.reads) {
        if (read.base == kNone || !computed(read.base) || step_of(read.base).result != RowClass::full) continue;
        if (oldest(step_of(read.base), step, read)) readers[read.base].emplace(step.lead, read.shift);
      }
    }
    for (const auto& [value, leads] : readers) {
      if (leads.size() == 1 && leads.begin()->second == -1) cleared_[value] = leads.begin()->first;
    }
  }

  void clear_windows() {
    for (const auto& [value, lead] : cleared_) {
      line("    if (ig_seldom(({}) == 0)) ig_clear_apart(v{}{});", place_in_sequence(lead), value,
           row_of_window(value, step_of(value).depth - 1));
    }
  }

  // ---------------------------------------------------------------- reductions along a row

  /// Every head has one value in these chunks: combined by lanes, or through shared memory where its lanes are no power of two.
  bool by_lanes() const {
    const int64_t lanes = plan_.n / e();
    return lanes <= 32 && (lanes & (lanes - 1)) == 0;
  }

  /// Along a row, chunks are summed up by themselves, so that a thread's sum is no single chain of instructions.
  void start_reduction(const RegionStep& step, std::string& declared, std::string& into, std::string& after, const char* indent) {
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
    const std::string x = fmt::format("static_cast<{}>({})", acc, read_text(step, step.over, step.reads[0]));
    if (!head && step.over == RowClass::full) {
      store_arrays_ += fmt::format("        {} chunk{} = {};\n", acc, value, start);
      into += fmt::format("{0}chunk{1} = j == 0 ? {2} : {3}::of(chunk{1}, {2});\n", indent, value, x, combine);
      after += guard.empty() ? fmt::format("        {0} = k == 0 ? chunk{1} : {2}::of({0}, chunk{1});\n", p, value, combine)
                             : fmt::format("        if ({3}) {0} = {2}::of({0}, chunk{1});\n", p, value, combine, guard);
      return;
    }
    const std::string taken = fmt::format("{0} = {1}::of({0}, {2});", p, combine, x);
    into += indent + (guard.empty() ? taken : fmt::format("if ({}) {}", guard, taken)) + "\n";
  }

  void finish_reductions(const Loop& loop) {
    mine_ = mine(loop);
    std::vector<const RegionStep*> rows, heads;
    for (const RegionStep* step : loop.steps) {
      if (step->kind != StepKind::reduce_columns || step->result == RowClass::full) continue;
      (step->result == RowClass::row ? rows : heads).push_back(step);
    }
    if (rows.empty() && heads.empty()) return;
    const bool through_memory = (!rows.empty() && layout_.warps > 1) || (!heads.empty() && !by_lanes());
    const std::vector<Pair> pairs = pair_up(rows);
    for (const auto& [one, other] : pairs) {
      const std::string combine = combiner(body_.op(one->op));
      if (other == nullptr) {
        line("      p{0} = ig_combine_lanes<{1}>(p{0}, IG_WARP);", result(*one), combine);
      } else {
        line("      p{0} = ig_combine_halves<{2}>(p{0}, p{1});", result(*one), result(*other), combine);
        if (layout_.warps == 1) line("      ig_part_halves(p{0}, p{1});", result(*one), result(*other));
      }
    }
    if (!heads.empty() && by_lanes()) {
      line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{");
      for (const RegionStep* step : heads)
        line("        p{0}[k] = ig_combine_lanes<{1}>(p{0}[k], N / E);", result(*step), combiner(body_.op(step->op)));
      line("      }}");
    }
    if (through_memory) exchange(pairs, heads);
    for (const RegionStep* step : rows) settle_row(*step);
    if (heads.empty()) return;
    line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{");
    line("        [[maybe_unused]] const column_t c = column(k);\n        [[maybe_unused]] const bool inside = {};",
         inside_row("k"));
    for (const RegionStep* step : heads) settle_head(*step);
    line("      }}");
  }

  ValueId result(const RegionStep& step) const { return body_.op(step.op).results[0]; }

  /// Two reductions that combine alike go through a warp together, each in half of the lanes; the second may be absent.
  using Pair = std::pair<const RegionStep*, const RegionStep*>;

  std::vector<Pair> pair_up(const std::vector<const RegionStep*>& rows) const {
    std::vector<Pair> pairs;
    for (const RegionStep* step : rows) {
      const Op& op = body_.op(step->op);
      const auto alike = [&](const Pair& pair) {
        const Op& one = body_.op(pair.first->op);
        return pair.second == nullptr && combiner(one) == combiner(op) && accumulator(one) == accumulator(op);
      };
      const auto at = std::find_if(pairs.begin(), pairs.end(), alike);
      if (at == pairs.end()) {
        pairs.emplace_back(step, nullptr);
      } else {
        at->second = step;
      }
    }
    return pairs;
  }

  /// One meeting for all reductions of a loop; scratch is used in turn, so that the next row need not wait for slow readers.
  void exchange(const std::vector<Pair>& rows, const std::vector<const RegionStep*>& heads) {
    const bool warps = layout_.warps > 1;
    for (const auto& [step, other] : rows) {
      if (!warps) continue;
      const int values = other == nullptr ? 1 : 2;
      line("      __shared__ {} m{}[teams][2][{}][W];", accumulator(body_.op(step->op)), result(*step), values);
      line("      if (lane % (IG_WARP / {1}) == 0) m{0}[team][turn][lane % IG_WARP * {1} / IG_WARP][lane / IG_WARP] = p{0};",
           result(*step), values);
    }
    for (const RegionStep* step : heads) {
      if (by_lanes()) continue;
      line("      __shared__ {} m{}[teams][2][K * lanes];", accumulator(body_.op(step->op)), result(*step));
      line("#pragma unroll\n      for (int k = 0; k < K; ++k) m{0}[team][turn][k * lanes + lane] = p{0}[k];", result(*step));
    }
    line("      ig_meet(team, lanes);");
    for (const auto& [step, other] : rows) {
      if (!warps) continue;
      const std::string combine = combiner(body_.op(step->op));
      line("      p{0} = ig_combine_array<{1}, W>(m{0}[team][turn][0]);", result(*step), combine);
      if (other != nullptr)
        line("      p{} = ig_combine_array<{}, W>(m{}[team][turn][1]);", result(*other), combine, result(*step));
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
    const std::string at = fmt::format("v{}{}", value, row_of_window(value, 0));
    line("      {} = static_cast<{}>(p{});", at, type_of(value), value);
    const auto outputs = outputs_of_.find(value);
    if (outputs == outputs_of_.end()) return;
    for (const int output : outputs->second) out_ += store_row(output, value, at);
  }
  void settle_head(const RegionStep& step) {
    const ValueId value = result(step);
    const std::string at = fmt::format("v{}{}[k]", value, row_of_window(value, 0));
    line("        {} = static_cast<{}>(p{}[k]);", at, type_of(value), value);
    const auto outputs = outputs_of_.find(value);
    if (outputs == outputs_of_.end()) return;
    for (const int output : outputs->second) out_ += store_head(output, value, at);
  }

  // ---------------------------------------------------------------- sums over the rows

  std::string sum_text(const RegionStep& step) {
    const ValueId value = result(step);
    const std::string x = read_text(step, step.over, step.reads[0]);
    std::string to = fmt::format("sum{}", value), guard = "true";
    if (step.result == RowClass::column) {
      to += step.over == RowClass::full ? "[k][j]" : "[k]";
    } else if (step.over == RowClass::full) {
      if (ragged_) guard = "inside";
    } else {
      guard = step.over == RowClass::head ? "inside && c % N == 0" : "lane == 0 && slab == 0";
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

  bool fills_ = false;  ///< the row's copies are still to be written
  std::vector<ValueId> rotating_;
  int phases_ = 1;                  ///< copies of the text for rows in turn
  std::map<ValueId, int> cleared_;  ///< values of find_cleared, and their readers' lead
  // State of the loop being written.
  std::string mine_, store_arrays_, places_;
};

}  // namespace

OpLaunches emit_resident(const Site& site, const passes::RegionPlan& plan, const RowLayout& layout) {
  return ResidentRegion(site, plan, layout).run();
}

}  // namespace ingot::codegen::cuda
