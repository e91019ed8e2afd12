// The hand-written kernels of codegen/text/, chosen by KernelLowering::kernel. To add one: its text there, its two functions
// here, a row in the table.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/emit.h"

namespace ingot::codegen::cuda {
namespace {

constexpr int64_t kMostHead = 128;

// ---------------------------------------------------------------- by chunks, on tensor cores (wkv7_chunk_cuda.inc)

constexpr int64_t kChunk = 64;
constexpr int64_t kChunkHeads[] = {16, 32, 64};  // all in tiles of 64 x 64
constexpr int64_t kWorthChunks = 32;             // positions; below, most of a chunk would be padding
constexpr int64_t kWorthHead = 64;               // below, most of a tile would be
// What those kernels count in 32 bits: elements of the states that a head of a sequence saves, and rows of one head of all.
constexpr int64_t kMostChunked = 1 << 25, kMostRows = UINT32_MAX;

/// As IG_SERIAL_BYTES and IG_GRAD_BYTES in the texts say: stages of eight tiles, two groups' scratch, a tile, vectors.
int serial_bytes(const Arch& arch) {
  const int stages = arch.version < 90 ? 2 : 3;
  return stages * 8 * 8192 + 2 * 4 * (10 * 16 * 18 + 256) + 8192 + stages * 528;
}
constexpr int kGradientBytes = 14 * 8192 + 1024;

/// Cards whose blocks may have that much shared memory: the large ones of each generation.
bool has_room(const Arch& arch) { return arch.version == 80 || arch.version == 90 || arch.version == 100 || arch.version == 103; }

int64_t chunks_of(const ir::Shape& r) { return (r[1] + kChunk - 1) / kChunk; }

/// What may be computed by chunks, whatever its attributes say now.
bool fits_chunks(const ir::Graph& graph, const ir::Op& op, const Arch& arch) {
  const ir::Type& r = graph.type(op.operands[0]);
  const bool head = std::find(std::begin(kChunkHeads), std::end(kChunkHeads), r.shape[3]) != std::end(kChunkHeads);
  const bool counted = r.shape[1] <= kMostChunked && r.elements() / r.shape[3] <= kMostRows;
  return has_room(arch) && head && counted && (r.dtype == ir::DType::bf16 || r.dtype == ir::DType::f16);
}

// ---- long sequences that do not fill the card: segments of time side by side (wkv7_segments_cuda.inc)

/// Microseconds of a block for a chunk, next to no matter how many others run beside it: 64 chunks by 32 or by 128 blocks take
/// 0.22 ms forward and 0.16 back on an H200 (the ladder in wkv7_chunk_cuda.inc, docs/measurements.md). To find the ends of segments
/// prepares about what the way back does, and multiplies as often as the forward; `begin`, until the first chunk of a launch is
/// prepared; `join`, from one segment to the next. Measured for 94 chunks a segment: 3.3, 2.5, 2.6 and 2.4 us a chunk, `begin` in
/// them, and 1.6 us a join.
struct ChunkCosts {
  double forward = 3.4, back = 2.5, ends = 2.5, ends_back = 2.5, begin = 8, join_begin = 3, join = 1.5;
};

struct Cut {
  int64_t each = 0, count = 1;  ///< chunks of a segment, segments
};
Cut cut_into(int64_t chunks, int64_t segments) {
  const int64_t parts = std::min(segments, chunks), each = (chunks + parts - 1) / parts;
  return {each, (chunks + each - 1) / each};
}

/// Microseconds forward and back: as many blocks at once as there are multiprocessors, whose shared memory one of them fills.
double predicted(const Arch& arch, int64_t heads, const Cut& cut) {
  const ChunkCosts c;
  const auto rounds = [&](int64_t blocks) {
    return static_cast<double>((blocks + arch.multiprocessors - 1) / arch.multiprocessors);
  };
  const double each = static_cast<double>(cut.each), steps = static_cast<double>(cut.count - 1);
  const double scan = 2 * c.begin + rounds(heads * cut.count) * each * (c.forward + c.back);
  if (cut.count == 1) return scan;
  const double ends = 2 * c.begin + rounds(heads * (cut.count - 1)) * each * (c.ends + c.ends_back);
  return scan + ends + 2 * (c.join_begin + steps * c.join);
}

/// The fewest segments of those that are expected to take least; 1, time in one piece, where that saves less than a tenth.
int64_t choose_segments(const Arch& arch, int64_t heads, int64_t chunks) {
  const double whole = predicted(arch, heads, {chunks, 1});
  Cut best{chunks, 1};
  double least = whole;
  for (int64_t segments = 2; segments <= std::min<int64_t>(chunks, arch.multiprocessors); ++segments) {
    const Cut cut = cut_into(chunks, segments);
    const double time = predicted(arch, heads, cut);
    if (time < least) best = cut, least = time;
  }
  return least <= 0.9 * whole ? best.count : 1;
}

/// States saved in 16 bits are what the kernels by chunks read and write; the exact ones save f32.
bool by_chunks(const ir::Op& op) { return op.attrs.has("saved_dtype") && op.attrs.dtype("saved_dtype") != ir::DType::f32; }

ir::Attrs configure_wkv7(const ir::Graph& graph, const ir::Op& op, const Arch& arch) {
  ir::Attrs attrs = op.attrs;
  const ir::Shape& r = graph.type(op.operands[0]).shape;
  if (!fits_chunks(graph, op, arch) || r[1] < kWorthChunks || r[3] < kWorthHead) return attrs;
  attrs.set("chunk", kChunk);
  attrs.set("saved_dtype", ir::DType::bf16);
  const int64_t segments = choose_segments(arch, r[0] * r[2], chunks_of(r));
  if (!attrs.has("segments") && segments > 1) attrs.set("segments", segments);
  return attrs;
}

std::string refuses_wkv7(const ir::Graph& graph, const ir::Op& op, const Arch& arch) {
  const ir::Type& r = graph.type(op.operands[0]);
  if (r.shape[3] > kMostHead) return fmt::format("the cuda kernel takes heads of up to {}, not {}", kMostHead, r.shape[3]);
  if (by_chunks(op) &&
      (op.attrs.dtype("saved_dtype") != ir::DType::bf16 || op.attrs.integer("chunk") != kChunk || !fits_chunks(graph, op, arch)))
    return "states are saved in 16 bits only by kernels of 16-bit rows, heads of 16, 32 and 64, chunks of 64 and at most "
           "33554432 positions";
  return "";
}

KernelBuilder start_chunks(const Site& site, std::string_view stem, std::string_view text, int threads, int resident,
                           int shared) {
  KernelBuilder kernel(std::string(stem), threads);
  kernel.include(text);
  kernel.resident(resident);
  kernel.shared(shared);
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  kernel.size(r.shape[1], "time");
  kernel.size(r.shape[2], "heads");
  return kernel;
}

/// Rows are 16 bits wide; of which kind is said to the function called.
void chunk_operand(KernelBuilder& kernel, int index, const char* name, const char* type = "ig_bf16") {
  kernel.argument(operand_arg(index), type, name, true);
}
/// What both ops begin with.
constexpr const char* kRows[] = {"r", "w", "k", "v", "a", "b"};

/// The operand `starts`; what to call it in the body: kernels without documents have no code for them.
std::string chunk_starts(KernelBuilder& kernel, const Site& site, int index) {
  const size_t at = static_cast<size_t>(index);
  if (at >= site.op.operands.size() || site.op.operands[at] == ir::kNone) return "IG_NO_STARTS";
  chunk_operand(kernel, index, "starts", std::string(storage_type(site.graph.type(site.op.operands[at]).dtype)).c_str());
  return "starts";
}
void chunk_result(KernelBuilder& kernel, int index, const char* name, const char* type = "ig_bf16") {
  kernel.argument(result_arg(index), type, name, true);
}

/// As the op says; 1: time in one piece.
Cut cut_of(const Site& site) {
  const int64_t chunks = chunks_of(site.graph.type(site.op.operands[0]).shape);
  return cut_into(chunks, site.op.attrs.has("segments") ? site.op.attrs.integer("segments") : 1);
}

/// A kernel of segments: the workspaces `ends` and `transitions` of all launches of this op, which begin at index `first`.
struct Segments {
  const Site& site;
  Cut cut;
  int first = 0;
  ir::Type r = site.graph.type(site.op.operands[0]);

  int64_t between() const { return r.shape[0] * r.shape[2] * (cut.count - 1); }
  int64_t bytes() const { return between() * r.shape[3] * r.shape[3] * 4; }
  std::string types() const { return fmt::format("{}, {}", r.shape[3], storage_type(r.dtype)); }
  void ends(KernelBuilder& kernel, ir::AccessMode mode) const {
    kernel.argument(workspace_arg(first, mode), "float", "ends", true);
  }
  void transitions(KernelBuilder& kernel, ir::AccessMode mode) const {
    kernel.argument(workspace_arg(first + 1, mode), "float", "transitions", true);
  }
  KernelBuilder start(std::string_view stem) const {
    KernelBuilder kernel = start_chunks(site, stem, "wkv7_segments_cuda.inc", 384, 1, serial_bytes(site.arch));
    kernel.size(cut.each, "each");
    kernel.size(cut.count, "count");
    return kernel;
  }
  /// From the state before the first segment, or the gradient of the one after the last: operand `state`.
  Launch join(int state, bool forward) const {
    KernelBuilder kernel(forward ? "wkv7_segment_join" : "wkv7_segment_join_back");
    kernel.include("wkv7_segments_cuda.inc");
    chunk_operand(kernel, state, "state", "float");
    transitions(kernel, ir::AccessMode::read);
    ends(kernel, ir::AccessMode::inout);
    kernel.size(cut.count, "count");
    kernel.blocks(r.shape[0] * r.shape[2] * (r.shape[3] * r.shape[3] / kBlock));
    return kernel.finish(fmt::format("  ig_wkv7_segment_join<{}, {}>(state, transitions, ends, count);\n", r.shape[3], forward));
  }
};
constexpr std::string_view kCut = "{time, heads, (int)each, (int)count}";

OpLaunches lower_segments(const Site& site, const Cut& cut) {
  const Segments segments{site, cut};
  KernelBuilder ends = segments.start("wkv7_segment_ends");
  for (int i = 1; i < 6; ++i) chunk_operand(ends, i, kRows[i]);
  const std::string starts = chunk_starts(ends, site, 7);
  segments.ends(ends, ir::AccessMode::write);
  segments.transitions(ends, ir::AccessMode::write);
  ends.blocks(segments.between());
  KernelBuilder all = segments.start("wkv7_segments");
  for (int i = 0; i < 6; ++i) chunk_operand(all, i, kRows[i]);
  chunk_operand(all, 6, "state_in", "float");
  segments.ends(all, ir::AccessMode::read);
  chunk_starts(all, site, 7);
  chunk_result(all, 0, "y");
  chunk_result(all, 1, "state_out", "float");
  chunk_result(all, 2, "saved");
  all.blocks(segments.r.shape[0] * segments.r.shape[2] * cut.count);
  return {{ends.finish(fmt::format("  ig_wkv7_segment_ends<{}>(w, k, v, a, b, {}, ends, transitions, {});\n", segments.types(),
                                   starts, kCut)),
           segments.join(6, true),
           all.finish(fmt::format("  ig_wkv7_segments<{}>(r, w, k, v, a, b, state_in, ends, {}, y, state_out, saved, {});\n",
                                  segments.types(), starts, kCut))},
          {segments.bytes(), segments.bytes()}};
}

OpLaunches lower_chunks(const Site& site) {
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  if (const Cut cut = cut_of(site); cut.count > 1) return lower_segments(site, cut);
  KernelBuilder kernel = start_chunks(site, "wkv7_chunks", "wkv7_chunk_cuda.inc", 384, 1, serial_bytes(site.arch));
  for (int i = 0; i < 6; ++i) chunk_operand(kernel, i, kRows[i]);
  chunk_operand(kernel, 6, "state_in", "float");
  const std::string starts = chunk_starts(kernel, site, 7);
  chunk_result(kernel, 0, "y");
  chunk_result(kernel, 1, "state_out", "float");
  chunk_result(kernel, 2, "saved");
  kernel.blocks(r.shape[0] * r.shape[2]);
  return {
      {kernel.finish(fmt::format("  ig_wkv7_chunks<{}, {}>(r, w, k, v, a, b, state_in, {}, y, state_out, saved, time, heads);\n",
                                 r.shape[3], storage_type(r.dtype), starts))},
      {}};
}

/// What the way back reads of every position.
void back_operands(KernelBuilder& kernel) {
  for (const int i : {0, 1, 4, 5}) chunk_operand(kernel, i, kRows[i]);
  chunk_operand(kernel, 7, "dy");
}

/// The serial half of the gradient, to workspace 0.
OpLaunches lower_chunks_back(const Site& site, int64_t heads) {
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  KernelBuilder back = start_chunks(site, "wkv7_chunks_back", "wkv7_chunk_cuda.inc", 384, 1, serial_bytes(site.arch));
  back_operands(back);
  chunk_operand(back, 8, "dstate_out", "float");
  const std::string starts = chunk_starts(back, site, 9);
  back.argument(workspace_arg(0, ir::AccessMode::write), "ig_bf16", "scaled", true);
  chunk_result(back, 6, "dstate", "float");
  back.blocks(heads);
  return {
      {back.finish(fmt::format("  ig_wkv7_chunks_back<{}, {}>(r, w, a, b, dy, dstate_out, {}, scaled, dstate, time, heads);\n",
                               r.shape[3], storage_type(r.dtype), starts))},
      {heads * chunks_of(r.shape) * 64 * 64 * 2}};
}

OpLaunches lower_segments_back(const Site& site, const Cut& cut) {
  const Segments segments{site, cut, 1};
  const int64_t heads = segments.r.shape[0] * segments.r.shape[2];
  KernelBuilder ends = segments.start("wkv7_segment_ends_back");
  back_operands(ends);
  const std::string starts = chunk_starts(ends, site, 9);
  segments.ends(ends, ir::AccessMode::write);
  segments.transitions(ends, ir::AccessMode::write);
  ends.blocks(segments.between());
  KernelBuilder back = segments.start("wkv7_segments_back");
  back_operands(back);
  chunk_operand(back, 8, "dstate_out", "float");
  segments.ends(back, ir::AccessMode::read);
  chunk_starts(back, site, 9);
  back.argument(workspace_arg(0, ir::AccessMode::write), "ig_bf16", "scaled", true);
  chunk_result(back, 6, "dstate", "float");
  back.blocks(heads * cut.count);
  return {{ends.finish(fmt::format("  ig_wkv7_segment_ends_back<{}>(r, w, a, b, dy, {}, ends, transitions, {});\n",
                                   segments.types(), starts, kCut)),
           segments.join(8, false),
           back.finish(fmt::format("  ig_wkv7_segments_back<{}>(r, w, a, b, dy, dstate_out, ends, {}, scaled, dstate, {});\n",
                                   segments.types(), starts, kCut))},
          {heads * chunks_of(segments.r.shape) * 64 * 64 * 2, segments.bytes(), segments.bytes()}};
}

OpLaunches lower_chunks_grad(const Site& site) {
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  const int64_t chunks = chunks_of(r.shape), heads = r.shape[0] * r.shape[2];
  const Cut cut = cut_of(site);
  OpLaunches out = cut.count > 1 ? lower_segments_back(site, cut) : lower_chunks_back(site, heads);
  KernelBuilder all = start_chunks(site, "wkv7_chunk_gradients", "wkv7_chunk_grad_cuda.inc", 256, 2, kGradientBytes);
  int index = 0;
  for (const char* name : {"r", "w", "k", "v", "a", "b", "saved", "dy"}) chunk_operand(all, index++, name);
  const std::string starts = chunk_starts(all, site, 9);
  all.argument(workspace_arg(0, ir::AccessMode::read), "ig_bf16", "scaled", true);
  index = 0;
  for (const char* name : {"dr", "dw", "dk", "dv", "da", "db"}) chunk_result(all, index++, name);
  all.blocks(heads * chunks);
  out.launches.push_back(all.finish(fmt::format(
      "  ig_wkv7_chunk_gradients<{}, {}>({{r, w, k, v, a, b, saved, scaled, dy, dr, dw, dk, dv, da, db}}, {}, time, heads);\n",
      r.shape[3], storage_type(r.dtype), starts)));
  return out;
}

// ---------------------------------------------------------------- exact, in f32 (wkv7_cuda.inc)

/// As ig_wkv7_shape in the text says.
struct Shape {
  int64_t n = 0, parts = 4;
  int64_t owned() const { return (n + 4 * parts - 1) / (4 * parts) * 4; }
  int64_t threads() const { return (n * parts + 31) / 32 * 32; }
};

/// The parameters of both kernels that come first, and their operands' names in order.
KernelBuilder start(const Site& site, std::string_view stem, const std::vector<std::pair<std::string, std::string>>& operands,
                    const std::vector<std::pair<std::string, std::string>>& results, const Shape& shape) {
  KernelBuilder kernel(std::string(stem), static_cast<int>(shape.threads()));
  kernel.include("wkv7_cuda.inc");
  for (size_t i = 0; i < operands.size(); ++i)
    kernel.argument(operand_arg(static_cast<int>(i)), operands[i].second, operands[i].first, true);
  for (size_t i = 0; i < results.size(); ++i)
    kernel.argument(result_arg(static_cast<int>(i)), results[i].second, results[i].first, true);
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  kernel.size(r.shape[1], "time");
  kernel.size(r.shape[2], "heads");
  kernel.size(std::min(site.op.attrs.integer("chunk"), r.shape[1]), "chunk");
  kernel.blocks(r.shape[0] * r.shape[2]);
  return kernel;
}

/// The integer type of the operand `starts`, whether it is there or not.
std::string starts_type(const Site& site, size_t index) {
  const bool present = index < site.op.operands.size() && site.op.operands[index] != ir::kNone;
  return std::string(storage_type(present ? site.graph.type(site.op.operands[index]).dtype : ir::DType::i32));
}

OpLaunches lower_wkv7(const Site& site) {
  if (by_chunks(site.op)) return lower_chunks(site);
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  const std::string t(storage_type(r.dtype));
  const Shape shape{r.shape[3]};
  KernelBuilder kernel =
      start(site, "wkv7",
            {{"r", t}, {"w", t}, {"k", t}, {"v", t}, {"a", t}, {"b", t}, {"state_in", "float"}, {"starts", starts_type(site, 7)}},
            {{"y", t}, {"state_out", "float"}, {"saved", "float"}}, shape);
  return {{kernel.finish(
              fmt::format("  ig_wkv7<{}, {}>(r, w, k, v, a, b, state_in, starts, y, state_out, saved, time, heads, chunk);\n",
                          shape.n, shape.parts))},
          {}};
}

OpLaunches lower_wkv7_grad(const Site& site) {
  if (by_chunks(site.op)) return lower_chunks_grad(site);
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  const std::string t(storage_type(r.dtype));
  const Shape shape{r.shape[3], r.shape[3] > 96 ? 2 : 4};  // two leave a thread 255 registers, four 128
  KernelBuilder kernel = start(site, "wkv7_grad",
                               {{"r", t},
                                {"w", t},
                                {"k", t},
                                {"v", t},
                                {"a", t},
                                {"b", t},
                                {"saved", "float"},
                                {"dy", t},
                                {"dstate_out", "float"},
                                {"starts", starts_type(site, 9)}},
                               {{"dr", t}, {"dw", t}, {"dk", t}, {"dv", t}, {"da", t}, {"db", t}, {"dstate", "float"}}, shape);
  kernel.argument(workspace_arg(0, ir::AccessMode::write), "float", "workspace");
  const int64_t chunk = std::min(site.op.attrs.integer("chunk"), r.shape[1]);
  // As ig_wkv7_workspace in the text says.
  const int64_t owned = shape.owned() * shape.threads();
  const int64_t floats = chunk * (owned + (shape.n + 3) / 4 * 4) + (shape.n > 64 ? 2 * owned : 0);
  return {{kernel.finish(fmt::format(
              "  ig_wkv7_grad<{}, {}>(r, w, k, v, a, b, saved, dy, dstate_out, starts, dr, dw, dk, dv, da, db, dstate, "
              "workspace, time, heads, chunk);\n",
              shape.n, shape.parts))},
          {r.shape[0] * r.shape[2] * floats * 4}};
}

constexpr HandKernel kHandKernels[] = {
    {"wkv7", lower_wkv7, refuses_wkv7, configure_wkv7},
    {"wkv7_grad", lower_wkv7_grad, refuses_wkv7, nullptr},
};

}  // namespace

const HandKernel* find_hand_kernel(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kHandKernels), std::end(kHandKernels), [&](const HandKernel& k) { return k.name == name; });
  return found == std::end(kHandKernels) ? nullptr : found;
}

}  // namespace ingot::codegen::cuda
