// Reductions over any axes, as a chain of launches that each remove one run of axes, and scans.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/emit.h"
#include "codegen/reduction.h"

namespace ingot::codegen::cuda {
namespace {

using ir::DType;

constexpr int64_t kResults = 1 << 16;  // results a step should have at least before its runs stay whole: what fills a card

std::string combine_type(ir::Combine combine) {
  static constexpr const char* kTypes[] = {"ig_sum", "ig_maximum", "ig_minimum"};
  return kTypes[static_cast<size_t>(combine)];
}

/// Rows: 8192 elements a block of threads. Columns: as many rows of the matrix as leave enough results.
int64_t block_of(const ReductionStep& step) {
  const int64_t results = step.outer * step.inner;
  const int64_t block = step.inner == 1 ? 8192 : std::max<int64_t>(16, step.length * results / kResults);
  return step.length <= 2 * block ? step.length : block;
}

Launch step_launch(const Arch& arch, const ReductionStep& step, ir::Combine combine, DType accumulator, DType from, DType to,
                   LaunchArg in, LaunchArg out) {
  const bool rows = step.inner == 1;
  KernelBuilder kernel(fmt::format("{}_{}", combine_name(combine), rows ? "rows" : "columns"));
  kernel.include("reduce_cuda.inc");
  kernel.argument(in, storage_type(from), "x");
  kernel.argument(out, storage_type(to), "y");
  kernel.size(step.outer, "outer");
  kernel.size(step.length, "length");
  if (!rows) kernel.size(step.inner, "inner");
  kernel.size(step.block, "block");
  if (!rows) {
    kernel.blocks(blocks_for(arch, step.results(), kBlock));
    return kernel.finish(fmt::format("  ig_reduce_columns<{}, {}>(x, y, outer, length, inner, block);\n", combine_type(combine),
                                     storage_type(accumulator)));
  }
  const int warps = step.block <= 1024 ? 1 : kBlock / 32;
  kernel.blocks(blocks_for(arch, step.results() * warps * 32, kBlock));
  return kernel.finish(fmt::format("  ig_reduce_rows<{}, {}, {}>(x, y, outer, length, block);\n", combine_type(combine),
                                   storage_type(accumulator), warps));
}

}  // namespace

OpLaunches lower_reduce(const Site& site, const ir::ReduceLowering& lowering) {
  const ir::Type& from = site.graph.type(site.op.operands[0]);
  const ir::Type& to = site.graph.type(site.op.results[0]);
  const DType accumulator = accumulator_dtype(from.dtype, to.dtype);
  const std::vector<ReductionStep> steps = plan_reduction(from.shape, site.op.attrs.integers("axes"), block_of);
  OpLaunches out;
  for (size_t k = 0; k < steps.size(); ++k) {
    const bool first = k == 0, last = k + 1 == steps.size();
    const int scratch = static_cast<int>(k);
    out.launches.push_back(step_launch(site.arch, steps[k], lowering.combine, accumulator, first ? from.dtype : accumulator,
                                       last ? to.dtype : accumulator,
                                       first ? operand_arg(0) : workspace_arg(scratch - 1, ir::AccessMode::read),
                                       last ? result_arg(0) : workspace_arg(scratch, ir::AccessMode::write)));
    if (!last) out.workspace_bytes.push_back(steps[k].results() * ir::dtype_bytes(accumulator));
  }
  return out;
}

OpLaunches lower_scan(const Site& site, const ir::ScanLowering& lowering) {
  const ir::Op& op = site.op;
  const ir::Type& from = site.graph.type(op.operands[0]);
  const ir::Type& to = site.graph.type(op.results[0]);
  const auto axis = static_cast<size_t>(op.attrs.integer("axis"));
  int64_t outer = 1, inner = 1;
  for (size_t k = 0; k < from.shape.size(); ++k) {
    if (k != axis) (k < axis ? outer : inner) *= from.shape[k];
  }
  KernelBuilder kernel{std::string(op.name())};
  kernel.include("reduce_cuda.inc");
  kernel.argument(operand_arg(0), storage_type(from.dtype), "x");
  kernel.argument(result_arg(0), storage_type(to.dtype), "y");
  kernel.size(outer, "outer");
  kernel.size(from.shape[axis], "length");
  kernel.size(inner, "inner");
  kernel.blocks(blocks_for(site.arch, outer * inner, kBlock));
  return {{kernel.finish(fmt::format("  ig_scan<{}, {}, {}, {}>(x, y, outer, length, inner);\n", combine_type(lowering.combine),
                                     accumulator_type(from.dtype, to.dtype), op.attrs.boolean("reverse"),
                                     op.attrs.boolean("exclusive")))},
          {}};
}

}  // namespace ingot::codegen::cuda
