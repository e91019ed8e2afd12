// A fused row region whose rows are too long for registers (a vocabulary): a block takes a row at a time and its threads step
// through the columns, once for every loop (sweep, lead). What a loop needs of earlier loops' columns is made anew from the
// region's inputs, at the neighbour's row too; only values per row stay in registers. Sums over rows are added up in the block's
// own row of partial sums in memory.
//
// Where shared memory has room for a row (held.h), memory is read once: the first loop finds the row there, the last one sends
// for what comes after it. What is seldom true (a column's number is the row's target, a logit its largest) is asked for a piece
// of columns at once, and a piece for which it is not is worked through without.
//
// The loss of 4096 rows of 65536 bf16 logits, gradient over them, on an H200 (sm_90, 132 multiprocessors, copies move 4.27 TB/s):
//   bytes          1.07 GB read and written: 0.252 ms. Under way: 128 KiB a multiprocessor, where 56 keep memory busy: what the
//                  last loop will send for is announced to the second-level cache by the first.
//   instructions   14 in the gradient's loop, 11 in the sums', 1.5 in the maximum's: 26 for an element, at 128 lanes a cycle and
//                  1.98 GHz 0.21 ms; 2 of them are powers of two, at 16 lanes a cycle 0.13 ms.
//   rows           32 for a block, 128 blocks: 4 multiprocessors idle
// Ladder: three sweeps over memory, 512 threads, 45 instructions: 0.54 ms; a row held, 1024 threads: 0.35 ms (ebea205).
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/cuda/held.h"
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
      : RegionText(site, std::move(plan)), layout_(layout), held_(streams_, layout) {
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
    if (held_.used()) kernel.shared(held_.bytes());
    emit_loops();
    if (held_.used()) {  // now that it is known which loops read what is held
      out_.clear();
      emit_loops();
    }
    std::string loops;
    loops.swap(out_);
    open_body();
    out_ += loops;
    if (held_.used()) line("    first += first + K * slot_bytes < ring_end ? K * slot_bytes : (K - slots) * slot_bytes;");
    line("  }}");
    store_scalar_sums();
    launches.launches.push_back(kernel.finish(out_));
    if (!launches.workspace_bytes.empty()) launches.sums = pending_sums(layout_);
    return launches;
  }

 private:
  // ---------------------------------------------------------------- the frame

  void emit_loops() {
    loop_ = 0;
    std::set<std::pair<int, int>> order;
    for (const RegionStep& step : plan_.steps) {
      if (!shared(step) || step.result == RowClass::column) order.emplace(step.sweep, step.lead);
    }
    for (const auto& [sweep, lead] : order) emit_loop(sweep, lead);
  }

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
    if (held_.used()) start_held();
    line("  for (row_t i = begin{:+}; i < end; ++i) {{", first_);
    for (const auto& [value, depth] : depths_) {
      if (depth > 1) line("    ig_rotate(v{});", value);
    }
    if (held_.used()) line("    ig_ring_wait<slots - K>();");
    out_ += once_a_row_;
  }

  std::string scalar_read(const RowAccess& read) const {
    return computed(read.base) ? fmt::format("v{}", read.base)
                               : fmt::format("ig_load(in{}[{}])", inputs_.at(read.base), read.offset);
  }

  // ---------------------------------------------------------------- rows that shared memory holds

  bool ragged() const { return plan_.columns() % layout_.slab() != 0; }

  /// What is held of a row lies beside what is held of the next one: where the next chunk lies is told by one addition.
  bool contiguous() const {
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (held_.has(s) && streams_[s].row != layout_.slab()) return false;
    }
    return !ragged();
  }

  void start_held() {
    line("  constexpr int K = {}, slots = {}, slot_bytes = {};", layout_.chunks, layout_.slots, held_.slot_bytes());
    line("  IG_DYNAMIC_SHARED(ring);\n  const ig_address ring_end = ring + slots * slot_bytes;");
    line("  int left = static_cast<int>(end - begin) * K;  // chunks on no way yet");
    if (!contiguous()) line("  int next = 0;  // of them the first, in its row");
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (held_.has(s)) line("  const {}* from{} = {};", storage_type(streams_[s].dtype), s, held_pointer(streams_[s]));
    }
    line("  const auto fill = [&](ig_address slot) {{\n    if ({}) {{",
         ragged() ? "left > 0 && (next * lanes + lane) * E < C" : "left > 0");
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (held_.has(s)) line("      {};", held_.fill(streams_[s], s, "slot", fmt::format("from{}", s)));
    }
    line("    }}\n    ig_copy_commit();\n    --left;");
    if (!contiguous()) line("    const bool turns = next + 1 == K;\n    next = turns ? 0 : next + 1;");
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (!held_.has(s)) continue;
      const int64_t jump = streams_[s].row - int64_t{1} * (layout_.chunks - 1) * layout_.lanes() * layout_.at_once;
      line("    from{} += {};", s, contiguous() ? "lanes * E" : fmt::format("turns ? {} : lanes * E", jump));
    }
    line("  }};\n  for (int a = 0; a < slots; ++a) fill(ring + a * slot_bytes);\n  ig_address first = ring;");
  }

  std::string held_pointer(const Stream& s) const {
    return fmt::format("in{} + static_cast<int64_t>(begin) * {} + {}", s.input, s.row, element_offset(s, "lane * E"));
  }

  /// Has the chunk that the last loop will send for in its turn k brought to the second-level cache: so memory reads while the
  /// first loops compute, and writes while the last one does.
  void announce() {
    std::string condition = "left > k", turn;
    if (!contiguous()) line("        const bool turned = next + k >= K;");
    if (ragged()) condition += " && ((next + k - (turned ? K : 0)) * lanes + lane) * E < C";
    line("        if ({}) {{", condition);
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (!held_.has(s)) continue;
      if (!contiguous()) turn = fmt::format(" + (turned ? {} : 0)", streams_[s].row - layout_.slab());
      line("          ig_announce(from{} + k * lanes * E{});", s, turn);
    }
    line("        }}");
  }

  /// A loop over a row's chunks. The first one that finds them in shared memory announces, the last one fills their slots.
  void emit_held_columns() {
    const int loop = loop_++;
    if (!held_loads_.empty()) readers_.insert(loop);
    const bool reads = readers_.contains(loop);
    out_ += rows_at_;
    line("      ig_address at = first;");
    line("      for (int k = 0; k < K; ++k) {{\n        const column_t c = (static_cast<column_t>(k) * lanes + lane) * E;");
    out_ += held_loads_;
    if (reads && loop == *readers_.begin() && !held_.whole_row_ahead()) announce();
    if (reads && loop == *readers_.rbegin()) line("        fill(at);");
    if (reads) line("        at = at + slot_bytes < ring_end ? at + slot_bytes : ring;");
    if (ragged()) line("        if (c < C) {{");
    write_columns();
    if (ragged()) line("        }}");
    line("      }}");
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
    if (held_.used() && s.kind == Stream::Kind::uniform && s.row != 0) return once_a_row(s);
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
      const auto index = static_cast<size_t>(&s - streams_.data());
      if (held_.has(index)) {
        held_loads_ += fmt::format("        const auto {} = {};\n", name, held_.read(s, index, "at"));
      } else if (s.kind == Stream::Kind::vector) {
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

  /// Read before the first loop, so that the loops after it need not wait.
  std::string once_a_row(const Stream& s) {
    const std::string name = fmt::format("w{}", &s - streams_.data());
    if (asked_.insert(name).second) {
      once_a_row_ += fmt::format("    const {} {} = ig_load(in{}[{} + static_cast<int64_t>(i) * {}]);\n",
                                 arithmetic_type(s.dtype), name, s.input, s.offset, s.row);
    }
    return name;
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
    const bool rare = delta == 0 && seldom(step);
    add_columns("          " + text,
                "          [[maybe_unused]] " + (rare ? fmt::format("constexpr bool {} = false;\n", name) : text));
    return name;
  }

  // ---------------------------------------------------------------- what is seldom true

  /// Text for every element of the piece at hand; `usual`, where not empty, instead of it where nothing seldom is true.
  void add_columns(const std::string& text, const std::string& usual = "") {
    columns_ += text;
    usual_ += usual.empty() ? text : usual;
  }

  /// Is the value a comparison that few columns of a row pass: of a column's number, or of what is read, with what the row has
  /// one of? Then `seldom_` learns when it has to be made: for the piece at hand at once.
  bool seldom(const RegionStep& step) {
    const auto* scalar = std::get_if<ir::ScalarLowering>(&body_.op(step.op).def->lowering);
    if (scalar == nullptr || scalar->bodies.size() != 1 || scalar->bodies[0] != "a0 == a1" || step.reads.size() != 2)
      return false;
    for (const size_t k : {size_t{0}, size_t{1}}) {
      const RowAccess &columns = step.reads[k], &row = step.reads[1 - k];
      if (columns.base == ir::kNone || columns.shift != 0 || row.shift != 0 || !one_a_row(row)) continue;
      const std::string value = read_text(row, step.result, 0);
      if (counts_columns(columns.base)) {
        seldom_.insert(fmt::format("ig_among<E>({}, c)", value));
      } else if (reads_piece(columns, step.result)) {
        seldom_.insert(fmt::format("ig_any_equal({}, {})", piece_of(input_text(columns, step.result, 0)), value));
      } else {
        continue;
      }
      return true;
    }
    return false;
  }

  bool one_a_row(const RowAccess& read) const {
    if (read.base == ir::kNone || is_literal(read.base)) return false;
    if (computed(read.base)) return step_of(read.base).result == RowClass::row;
    return read.unit == 0 && read.row != 0 && plan_.groups == 1;
  }
  /// "ig_get(PIECE, j)" -> "PIECE"
  static std::string piece_of(const std::string& element) { return element.substr(7, element.find(',') - 7); }
  bool reads_piece(const RowAccess& read, RowClass reader) {
    return !computed(read.base) && !is_literal(read.base) && streams_[static_cast<size_t>(stream_of(read, reader))].full();
  }
  bool counts_columns(ValueId value) const {
    if (!computed(value) || step_of(value).kind != StepKind::generate) return false;
    const Op& op = body_.op(step_of(value).op);
    const ir::Type& type = body_.type(value);
    if (is_float(type.dtype) || type.shape.empty() || type.shape.back() != plan_.columns()) return false;
    return std::get<ir::GenerateLowering>(op.def->lowering).body(op.attrs) == fmt::format("i{}", type.shape.size() - 1);
  }

  // ---------------------------------------------------------------- one loop

  void emit_loop(int sweep, int lead) {
    lead_ = lead;
    const bool outside = first_ < 0 || lead != 0;
    mine_ = outside ? "mine" : "true";
    rows_.clear(), names_.clear(), name_of_.clear(), seldom_.clear();
    for (std::string* text : {&row_lines_, &loads_, &held_loads_, &pieces_, &columns_, &usual_, &rows_at_, &stores_, &arrays_})
      text->clear();
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
    const bool steps = !columns_.empty() || !pieces_.empty();
    if (steps && held_.used()) {
      emit_held_columns();
    } else if (steps) {
      line("      for (column_t c = lane * E; c < C; c += lanes * E) {{");
      write_columns();
      line("      }}");
    }
    settle(reductions);
    line("    }}");
  }

  void write_columns() {
    out_ += loads_ + arrays_ + pieces_;
    const auto elements = [&](const std::string& text) {
      out_ += "#pragma unroll\n        for (int j = 0; j < E; ++j) {\n" + text + "        }\n";
    };
    if (!seldom_.empty()) {
      line("        if ({}) {{", fmt::join(seldom_, " | "));
      elements(columns_);
      line("        }} else {{");
      elements(usual_);
      line("        }}");
    } else if (!columns_.empty()) {
      elements(columns_);
    }
    out_ += stores_;
  }

  void emit_step(const RegionStep& step, std::string& rows, std::string& declared, std::vector<const RegionStep*>& reductions) {
    const Op& op = body_.op(step.op);
    if (step.kind == StepKind::column_sum) return add_sum(step, rows);
    if (step.kind == StepKind::reduce_columns) {
      reductions.push_back(&step);
      const std::string acc = accumulator(op), p = fmt::format("p{}", op.results[0]);
      declared += fmt::format("      {} {} = {}::start({}());\n", acc, p, combiner(op), acc);
      const std::string x = read_text(step.reads[0], step.over, 0);
      if (acc == "float" && step.reads[0].shift == 0 && step.over == RowClass::full && combiner(op) != "ig_sum" &&
          reads_piece(step.reads[0], step.over)) {
        pieces_ += fmt::format("        {0} = ig_combine_piece<{1}>({0}, {2});\n", p, combiner(op), piece_of(x));
        return;
      }
      add_columns(fmt::format("          {0} = {1}::of({0}, static_cast<{2}>({3}));\n", p, combiner(op), acc, x));
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
      add_columns(fmt::format("          y{}[j] = {};\n", output, x));
      std::string to = fmt::format("out{} + static_cast<int64_t>(r) * C", output);
      if (held_.used()) {  // the compiler would work the whole address out for every piece
        rows_at_ +=
            fmt::format("      {}* const to{} = {};\n", storage_type(body_.type(value).dtype), output, to + " + lane * E");
        to = fmt::format("to{} + k * lanes * E", output);
      } else {
        to += " + c";
      }
      stores_ += fmt::format("        if ({}{}) ig_write<E>({}, y{});\n", mine_, among_first_rows(step_of(value)), to, output);
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

  /// One meeting for all reductions of a loop; scratch is used in turn, so that the next row need not wait for slow readers.
  void settle(const std::vector<const RegionStep*>& steps) {
    if (steps.empty()) return;
    const auto value = [&](const RegionStep* step) { return body_.op(step->op).results[0]; };
    for (const RegionStep* step : steps)
      line("      p{0} = ig_combine_lanes<{1}>(p{0}, IG_WARP);", value(step), combiner(body_.op(step->op)));
    if (layout_.warps > 1) {
      line("      const int turn = static_cast<int>(i & 1);");
      for (const RegionStep* step : steps) {
        line("      __shared__ {0} m{1}[2][W];\n      if (lane % IG_WARP == 0) m{1}[turn][lane / IG_WARP] = p{1};",
             accumulator(body_.op(step->op)), value(step));
      }
      line("      ig_meet(0, lanes);");
      for (const RegionStep* step : steps)
        line("      p{0} = ig_combine_warps<{1}>(m{0}[turn], W);", value(step), combiner(body_.op(step->op)));
    }
    for (const RegionStep* step : steps) {
      line("      v{0}[0] = static_cast<{1}>(p{0});", value(step), type_of(value(step)));
      out_ += store_row(value(step));
    }
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
      add_columns(fmt::format("          if ({}) sum{} += {};\n", mine_, value, x));
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
      add_columns(fmt::format("          y{0}[j] = ig_get(z{0}, j) + {1};\n", output, x));
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
  HeldRows held_;
  std::string once_a_row_;       ///< reads of one element a row, where rows are held
  std::set<std::string> asked_;  ///< their names
  int loop_ = 0;
  std::set<int> readers_;          ///< loops that read what is held
  int first_ = 0;                  ///< iteration, relative to the range's first row, that the walk begins with
  std::map<ValueId, int> depths_;  ///< rows that are kept of each value per row
  // State of the loop being written.
  int lead_ = 0;
  std::string mine_, row_lines_, loads_, held_loads_, columns_, stores_, arrays_;
  std::string usual_;             ///< columns_ where nothing seldom is true
  std::string pieces_;            ///< for the piece at hand
  std::string rows_at_;           ///< where rows of outputs begin
  std::set<std::string> seldom_;  ///< when something may be
  std::set<int> rows_;
  std::set<std::string> names_;
  std::map<std::string, std::string> name_of_;
};

}  // namespace

OpLaunches emit_looped(const Site& site, const passes::RegionPlan& plan, const RowLayout& layout) {
  return LoopedRegion(site, plan, layout).run();
}

}  // namespace ingot::codegen::cuda
