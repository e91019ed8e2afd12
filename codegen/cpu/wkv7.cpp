// The hand-written kernels of codegen/text/, chosen by KernelLowering::kernel. To add one: its text there, its two functions
// here, a row in the table.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cpu/emit.h"

namespace ingot::codegen::cpu {
namespace {

std::string refuses_wkv7(const ir::Graph& graph, const ir::Op& op) {
  const ir::Type& r = graph.type(op.operands[0]);
  if (r.shape[3] > 256) return fmt::format("the cpu kernel takes heads of up to 256, not {}", r.shape[3]);
  if (op.attrs.has("saved_dtype") && op.attrs.dtype("saved_dtype") != ir::DType::f32) return "the cpu kernel saves states in f32";
  return "";
}

/// The integer type of the operand `starts`, whether it is there or not.
std::string_view starts_type(const OpSite& site, size_t index) {
  const bool present = index < site.op.operands.size() && site.op.operands[index] != ir::kNone;
  return storage_type(present ? site.graph.type(site.op.operands[index]).dtype : ir::DType::i32);
}

/// Operands and results in the op's order; trailing absent operands keep their places.
Launch launch_of(const OpSite& site, std::string_view kernel, int operands, size_t starts) {
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  const int64_t time = r.shape[1], heads = r.shape[2];
  Launch launch;
  launch.stem = std::string(kernel);
  for (int i = 0; i < operands; ++i) launch.args.push_back(operand_arg(i));
  for (size_t i = 0; i < site.op.results.size(); ++i) launch.args.push_back(result_arg(static_cast<int>(i)));
  launch.sizes = {time, heads, std::min(site.op.attrs.integer("chunk"), time)};
  launch.tasks = r.shape[0] * heads;
  launch.text =
      kernel_text({"tasks_cpu.inc", "wkv7_cpu.inc"}, fmt::format("  ig_{}<{}, {}, {}>(args, sizes, task);\n", kernel, r.shape[3],
                                                                 storage_type(r.dtype), starts_type(site, starts)));
  return launch;
}

OpLaunches lower_wkv7(const OpSite& site) { return {{launch_of(site, "wkv7", 8, 7)}, {}}; }

OpLaunches lower_wkv7_grad(const OpSite& site) {
  Launch launch = launch_of(site, "wkv7_grad", 10, 9);
  launch.args.push_back(workspace_arg(0, ir::AccessMode::write));
  const ir::Type& r = site.graph.type(site.op.operands[0]);
  const int64_t padded = (r.shape[3] + 15) / 16 * 16, chunk = std::min(site.op.attrs.integer("chunk"), r.shape[1]);
  // As ig_wkv7_workspace in the text says.
  const int64_t floats = (chunk + 2) * padded * padded + 9 * chunk * padded;
  return {{std::move(launch)}, {r.shape[0] * r.shape[2] * floats * 4}};
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

}  // namespace ingot::codegen::cpu
