// Reductions over any axes, as a chain of launches that each remove one run of axes, and scans.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cpu/emit.h"

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

std::string_view combine_name(ir::Combine combine) {
  switch (combine) {
    case ir::Combine::sum:
      return "sum";
    case ir::Combine::max:
      return "max";
    case ir::Combine::min:
      return "min";
  }
  throw ir::InternalError("combine_name: no such combination");
}

struct Run {
  int64_t size = 1;
  bool reduced = false;
};

/// Axes of length 1 vanish, neighbours of a kind become one.
std::vector<Run> runs_of(const ir::Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<Run> out;
  for (size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(k)) != axes.end();
    if (!out.empty() && out.back().reduced == reduced) {
      out.back().size *= shape[k];
    } else {
      out.push_back({shape[k], reduced});
    }
  }
  return out;
}

/// One launch's shape: [outer, length, inner] -> [outer, blocks, inner].
struct Step {
  int64_t outer = 1, length = 1, inner = 1;
  int64_t block = 1;
  int64_t blocks() const { return (length + block - 1) / block; }
  int64_t results() const { return outer * blocks() * inner; }
};

/// A long run is first summed in blocks of this many elements (times columns): more tasks, and shorter chains of rounding.
int64_t block_of(int64_t length, int64_t inner) {
  const int64_t block =
      inner == 1 ? 2 * kTaskElements : std::max<int64_t>(16, 2 * kTaskElements / std::min<int64_t>(inner, 1024));
  return length <= 2 * block ? length : block;
}

/// Removes the last reduced run again and again until none is left.
std::vector<Step> plan_steps(std::vector<Run> runs) {
  std::vector<Step> steps;
  for (;;) {
    size_t k = runs.size();
    while (k > 0 && !runs[k - 1].reduced) --k;
    if (k == 0) break;
    Step step;
    for (size_t j = 0; j < runs.size(); ++j) (j + 1 < k ? step.outer : j + 1 == k ? step.length : step.inner) *= runs[j].size;
    step.block = block_of(step.length, step.inner);
    runs[k - 1].size = step.blocks();
    steps.push_back(step);
    if (step.blocks() == 1) runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(k - 1));
  }
  if (steps.empty()) {  // nothing to combine: a copy, perhaps to another dtype
    Step copy;
    for (const Run& run : runs) copy.inner *= run.size;
    steps.push_back(copy);
  }
  return steps;
}

Launch step_launch(const Step& step, ir::Combine combine, DType accumulator, DType from, DType to) {
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
  const std::vector<Step> steps = plan_steps(runs_of(from.shape, site.op.attrs.integers("axes")));
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
