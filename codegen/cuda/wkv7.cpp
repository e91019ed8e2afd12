// The hand-written kernels of codegen/text/, chosen by KernelLowering::kernel. To add one: its text there, its two functions
// here, a row in the table.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/emit.h"

namespace ingot::codegen::cuda {
namespace {

constexpr int64_t kMostHead = 128;

std::string refuses_wkv7(const ir::Graph& graph, const ir::Op& op) {
  const ir::Type& r = graph.type(op.operands[0]);
  if (r.shape[3] > kMostHead) return fmt::format("the cuda kernel takes heads of up to {}, not {}", kMostHead, r.shape[3]);
  return "";
}

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
    {"wkv7", lower_wkv7, refuses_wkv7},
    {"wkv7_grad", lower_wkv7_grad, refuses_wkv7},
};

}  // namespace

const HandKernel* find_hand_kernel(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kHandKernels), std::end(kHandKernels), [&](const HandKernel& k) { return k.name == name; });
  return found == std::end(kHandKernels) ? nullptr : found;
}

}  // namespace ingot::codegen::cuda
