#include "codegen/cuda/resident_streams.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot::codegen::cuda {

using passes::RegionStep;
using passes::RowAccess;
using passes::RowClass;

ResidentStreams::ResidentStreams(const Site& site, passes::RegionPlan plan, const RowLayout& layout)
    : RegionText(site, std::move(plan)), layout_(layout), ring_(streams_, layout) {
  for (const RegionStep& step : plan_.steps) first_ = std::min(first_, step.low - step.lead);
  earliest_ = first_;
  for (const Stream& s : streams_) {
    if (s.row != 0) earliest_ = std::min(earliest_, s.low - s.lead);
  }
  const int64_t pieces = plan_.columns() / layout_.at_once;
  ragged_ = pieces % (int64_t{1} * layout_.lanes() * layout_.chunks) != 0;
}

void ResidentStreams::declare_stream(size_t index) {
  const Stream& s = streams_[index];
  const std::string window = s.row == 0 ? "" : fmt::format("[{}]", s.depth());
  if (s.full()) {
    line("  ig_raw<{}, E> s{}{}[K];", storage_type(s.dtype), index, window);
  } else {
    line("  {} s{}{}{};", arithmetic_type(s.dtype), index, window, s.kind == Stream::Kind::per_head ? "[K]" : "");
  }
  line("  ig_clear(s{});", index);
}

void ResidentStreams::load_stream(size_t index, const std::string& row, const char* indent) {
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

std::string ResidentStreams::stream_text(const RowAccess& read, RowClass reader, int lead, const std::string& inside) {
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

std::string ResidentStreams::element_pointer(const Stream& s, const std::string& row) const {
  const std::string place = s.row == 0 ? "" : fmt::format("static_cast<int64_t>({}) * {} + ", row, s.row);
  if (s.kind == Stream::Kind::uniform) return fmt::format("in{} + ({}{})", s.input, place, s.offset);
  const bool straight = s.kind == Stream::Kind::vector && (plan_.groups == 1 || s.head == plan_.n);
  return straight ? fmt::format("in{} + ({}first_column) + ({} + k * lanes * E)", s.input, place, s.offset)
                  : fmt::format("in{} + ({}{})", s.input, place, element_offset(s, "column(k)"));
}

void ResidentStreams::fill_stream(size_t index, const std::string& base, const std::string& row) {
  const Stream& s = streams_[index];
  const std::string fill = fmt::format("ig_ring_fill<{}, {}, lanes>({}, lane, {});", storage_type(s.dtype), s.full() ? "E" : "1",
                                       ring_.place(s, index, base), element_pointer(s, row));
  if (s.kind == Stream::Kind::uniform) return line("      {}", fill);
  line("#pragma unroll\n      for (int k = 0; k < K; ++k) {{\n        {}{}\n      }}", ragged_ ? "if (column(k) < C) " : "",
       fill);
}

void ResidentStreams::declare_ring() {
  line("  constexpr int slots = {}, ahead = {}, row_bytes = {};", ring_.slots(), layout_.ahead, ring_.row_bytes());
  line("  IG_DYNAMIC_SHARED(memory);\n  const ig_address ring = memory + team * (slots * row_bytes);");
  line("  const auto next = [&](ig_address row) {{ return row == ring + (slots - 1) * row_bytes ? ring : row + row_bytes; }};");
  line("  [[maybe_unused]] const ig_address parameters = memory + {};", ring_.parameters_at());
  line("  // What iteration i finds new, to the slot `to` of the ring.\n  const auto fill = [&](row_t i, ig_address to) {{");
  std::set<int> leads;
  for (size_t s = 0; s < streams_.size(); ++s) {
    if (ring_.has(s) && streams_[s].row != 0) leads.insert(streams_[s].lead);
  }
  for (const int lead : leads) {
    line("    if (i < end{}{}) {{", earliest_ + lead < 0 ? fmt::format(" && i{:+} >= 0", lead) : "",
         lead > 0 ? fmt::format(" && i{:+} < rows", lead) : "");
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (ring_.has(s) && streams_[s].row != 0 && streams_[s].lead == lead) fill_stream(s, "to", fmt::format("(i{:+})", lead));
    }
    line("    }}");
  }
  line("    ig_copy_commit();\n  }};");
}

void ResidentStreams::start_ring() {
  line("  if (team == 0) {{");
  for (size_t s = 0; s < streams_.size(); ++s) {
    if (ring_.has(s) && streams_[s].row == 0) fill_stream(s, "parameters", "");
  }
  line("  }}\n  ig_copy_commit();");
  if (layout_.teams > 1) line("  ig_ring_wait<0>();\n  __syncthreads();");
  line("  for (int a = 0; a < ahead; ++a) fill(begin{:+} + a * step, ring + a * row_bytes);", earliest_);
  line("  ig_address newest = ring + (slots - 1) * row_bytes, filled = ring + (ahead - 1) * row_bytes;");
  for (int d = 1; d < ring_.depth(); ++d) line("  ig_address row{} = ring;", d);
}

void ResidentStreams::move_ring() {
  for (int d = ring_.depth() - 1; d > 0; --d) line("    row{} = {};", d, d > 1 ? fmt::format("row{}", d - 1) : "newest");
  line("    newest = next(newest), filled = next(filled);\n    ig_ring_wait<ahead - 1>();");
  line("    const ig_address row0 = newest;");
}

std::string ResidentStreams::waited_text(const RingReads& waited, bool uniform) const {
  std::string out;
  for (const auto& [index, back] : waited) {
    const Stream& s = streams_[static_cast<size_t>(index)];
    if ((s.kind == Stream::Kind::uniform) != uniform) continue;
    out += fmt::format("      {}const auto q{}_{} = {};\n", uniform ? "" : "  ", index, back,
                       kept_.contains({index, back}) ? fmt::format("kept{}_{}[k]", index, back)
                                                     : ring_.read(s, static_cast<size_t>(index), back));
  }
  return out;
}

}  // namespace ingot::codegen::cuda
