// Reductions over any axes, as a chain of launches that each remove one run of axes, and scans.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cpu/emit.h"
#include "codegen/reduction.h"

namespace ingot::codegen::cpu {
namespace {

using ir::DType;

std::string_view combine_type(ir::Combine combine) {
  switch (combine) {
    case ir::Combine::sum:
      return "ig_sum";
    case ir::Combine::max:
      return "ig_maximum";
    case ir::Combine::min:
      return "ig_minimum";
  }
  throw ir::InternalError("combine_type: no such combination");
}

/// A long run is first summed in blocks of this many elements (times columns): more tasks, and shorter chains of rounding.
int64_t block_of(const ReductionStep& step) {
  const auto [length, inner] = std::pair(step.length, step.inner);
  const int64_t block =
      inner == 1 ? 2 * kTaskElements : std::max<int64_t>(16, 2 * kTaskElements / std::min<int64_t>(inner, 1024));
  return length <= 2 * block ? length : block;
}

Launch step_launch(const ReductionStep& step, ir::Combine combine, DType accumulator, DType from, DType to) {
  Launch launch;
  const bool rows = step.inner == 1;
  launch.stem = fmt::format("{}_{}", combine_name(combine), rows ? "rows" : "columns");
  if (rows) {
    const int64_t runs = step.outer * step.blocks();
    const int64_t per_task = std::max<int64_t>(1, kTaskElements / step.block);
    launch.sizes = {step.outer, step.length, step.block, per_task};
    launch.tasks = (runs + per_task - 1) / per_task;
  } else {
    const int64_t columns = step.inner <= 2048 ? step.inner : 1024;
    launch.sizes = {step.outer, step.length, step.inner, step.block, columns};
    launch.tasks = step.outer * step.blocks() * ((step.inner + columns - 1) / columns);
  }
  std::string function = fmt::format("ig_reduce_columns<{}, {}>", combine_type(combine), storage_type(accumulator));
  if (rows) function = fmt::format("ig_reduce_{}rows<{}>", accumulator == DType::f32 ? "" : "integer_", combine_type(combine));
  launch.text =
      kernel_text({"reduce_cpu.inc"}, fmt::format("  {}({}, {}, sizes, task);\n", function, input_pointer(storage_type(from), 0),
                                                  output_pointer(storage_type(to), 1)));
  return launch;
}

}  // namespace

OpLaunches lower_reduce(const OpSite& site, const ir::ReduceLowering& lowering) {
  const ir::Type& from = site.graph.type(site.op.operands[0]);
  const ir::Type& to = site.graph.type(site.op.results[0]);
  const DType accumulator = accumulator_dtype(from.dtype, to.dtype);
  const std::vector<ReductionStep> steps = plan_reduction(from.shape, site.op.attrs.integers("axes"), block_of);
  OpLaunches out;
  for (size_t k = 0; k < steps.size(); ++k) {
    const bool first = k == 0, last = k + 1 == steps.size();
    Launch launch =
        step_launch(steps[k], lowering.combine, accumulator, first ? from.dtype : accumulator, last ? to.dtype : accumulator);
    launch.args.push_back(first ? operand_arg(0) : workspace_arg(static_cast<int>(k) - 1, ir::AccessMode::read));
    launch.args.push_back(last ? result_arg(0) : workspace_arg(static_cast<int>(k), ir::AccessMode::write));
    if (!last) out.workspace_bytes.push_back(steps[k].results() * ir::dtype_bytes(accumulator));
    out.launches.push_back(std::move(launch));
  }
  return out;
}

OpLaunches lower_scan(const OpSite& site, const ir::ScanLowering& lowering) {
  const ir::Op& op = site.op;
  const ir::Type& from = site.graph.type(op.operands[0]);
  const ir::Type& to = site.graph.type(op.results[0]);
  const auto axis = static_cast<size_t>(op.attrs.integer("axis"));
  int64_t outer = 1, inner = 1;
  for (size_t k = 0; k < from.shape.size(); ++k) {
    if (k != axis) (k < axis ? outer : inner) *= from.shape[k];
  }
  const int64_t length = from.shape[axis];
  const Tiling tiling = tile(outer, inner, std::max<int64_t>(16, 2 * kTaskElements / length));
  Launch launch;
  launch.stem = std::string(op.name());
  launch.sizes = {outer, length, inner, tiling.rows_per_task, tiling.columns_per_task};
  launch.tasks = tiling.tasks;
  launch.args = {operand_arg(0), result_arg(0)};
  launch.text =
      kernel_text({"reduce_cpu.inc"},
                  fmt::format("  ig_scan<{}, {}, {}, {}>({}, {}, sizes, task);\n", combine_type(lowering.combine),
                              accumulator_type(from.dtype, to.dtype), op.attrs.boolean("reverse"), op.attrs.boolean("exclusive"),
                              input_pointer(storage_type(from.dtype), 0), output_pointer(storage_type(to.dtype), 1)));
  return {{std::move(launch)}, {}};
}

}  // namespace ingot::codegen::cpu
