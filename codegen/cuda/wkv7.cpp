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

/// What may be computed by chunks, whatever its attributes say now.
bool fits_chunks(const ir::Graph& graph, const ir::Op& op, const Arch& arch) {
  const ir::Type& r = graph.type(op.operands[0]);
  const bool head = std::find(std::begin(kChunkHeads), std::end(kChunkHeads), r.shape[3]) != std::end(kChunkHeads);
  const bool counted = r.shape[1] <= kMostChunked && r.elements() / r.shape[3] <= kMostRows;
  return has_room(arch) && head && counted && (r.dtype == ir::DType::bf16 || r.dtype == ir::DType::f16);
}

/// States saved in 16 bits are what the kernels by chunks read and write; the exact ones save f32.
bool by_chunks(const ir::Op& op) { return op.attrs.has("saved_dtype") && op.attrs.dtype("saved_dtype") != ir::DType::f32; }

ir::Attrs configure_wkv7(const ir::Graph& graph, const ir::Op& op, const Arch& arch) {
  ir::Attrs attrs = op.attrs;
  const ir::Shape& r = graph.type(op.operands[0]).shape;
  if (!fits_chunks(graph, op, arch) || r[1] < kWorthChunks || r[3] < kWorthHead) return attrs;
  attrs.set("chunk", kChunk);
  attrs.set("saved_dtype", ir::DType::bf16);
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

OpLaunches lower_chunks(const Site& site) {
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  KernelBuilder kernel = start_chunks(site, "wkv7_chunks", "wkv7_chunk_cuda.inc", 384, 1, serial_bytes(site.arch));
  int index = 0;
  for (const char* name : {"r", "w", "k", "v", "a", "b"}) chunk_operand(kernel, index++, name);
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

OpLaunches lower_chunks_grad(const Site& site) {
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  const int64_t chunks = (r.shape[1] + kChunk - 1) / kChunk, heads = r.shape[0] * r.shape[2];
  KernelBuilder back = start_chunks(site, "wkv7_chunks_back", "wkv7_chunk_cuda.inc", 384, 1, serial_bytes(site.arch));
  chunk_operand(back, 0, "r");
  chunk_operand(back, 1, "w");
  chunk_operand(back, 4, "a");
  chunk_operand(back, 5, "b");
  chunk_operand(back, 7, "dy");
  chunk_operand(back, 8, "dstate_out", "float");
  const std::string starts = chunk_starts(back, site, 9);
  back.argument(workspace_arg(0, ir::AccessMode::write), "ig_bf16", "scaled", true);
  chunk_result(back, 6, "dstate", "float");
  back.blocks(heads);
  KernelBuilder all = start_chunks(site, "wkv7_chunk_gradients", "wkv7_chunk_grad_cuda.inc", 256, 2, kGradientBytes);
  int index = 0;
  for (const char* name : {"r", "w", "k", "v", "a", "b", "saved", "dy"}) chunk_operand(all, index++, name);
  chunk_starts(all, site, 9);
  all.argument(workspace_arg(0, ir::AccessMode::read), "ig_bf16", "scaled", true);
  index = 0;
  for (const char* name : {"dr", "dw", "dk", "dv", "da", "db"}) chunk_result(all, index++, name);
  all.blocks(heads * chunks);
  return {
      {back.finish(fmt::format("  ig_wkv7_chunks_back<{}, {}>(r, w, a, b, dy, dstate_out, {}, scaled, dstate, time, heads);\n",
                               r.shape[3], storage_type(r.dtype), starts)),
       all.finish(fmt::format(
           "  ig_wkv7_chunk_gradients<{}, {}>({{r, w, k, v, a, b, saved, scaled, dy, dr, dw, dk, dv, da, db}}, {}, time, "
           "heads);\n",
           r.shape[3], storage_type(r.dtype), starts))},
      {heads * chunks * 64 * 64 * 2}};
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
