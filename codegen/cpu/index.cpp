// Rows put side by side (pack), picked by index (gather), and summed by index (put).
#include <fmt/format.h>

#include "codegen/cpu/emit.h"

namespace ingot::codegen::cpu {

/// One launch per part, all of the same kernel: each writes its columns of every outer row.
OpLaunches lower_pack(const OpSite& site) {
  const ir::Op& op = site.op;
  const ir::Type& to = site.graph.type(op.results[0]);
  const auto axis = static_cast<size_t>(op.attrs.integer("axis"));
  int64_t outer = 1, inner = 1;
  for (size_t k = 0; k < to.shape.size(); ++k) {
    if (k != axis) (k < axis ? outer : inner) *= to.shape[k];
  }
  OpLaunches out;
  int64_t offset = 0;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ir::Type& from = site.graph.type(op.operands[i]);
    const int64_t columns = from.shape[axis] * inner;
    const Tiling tiling = tile(outer, columns);
    Launch launch;
    launch.stem = std::string(op.name());
    launch.args = {operand_arg(static_cast<int>(i)), result_arg(0)};
    launch.sizes = {outer, columns, to.shape[axis] * inner, offset, tiling.rows_per_task, tiling.columns_per_task};
    launch.tasks = tiling.tasks;
    launch.text =
        kernel_text({"copy_cpu.inc"}, fmt::format("  ig_pack({}, {}, sizes, task);\n", input_pointer(storage_type(from.dtype), 0),
                                                  output_pointer(storage_type(to.dtype), 1)));
    out.launches.push_back(std::move(launch));
    offset += columns;
  }
  return out;
}

OpLaunches lower_gather(const OpSite& site) {
  const ir::Op& op = site.op;
  const ir::Type& ids = site.graph.type(op.operands[0]);
  const ir::Type& table = site.graph.type(op.operands[1]);
  const ir::Type& to = site.graph.type(op.results[0]);
  const int64_t rows = ids.elements(), columns = table.shape[1];
  const Tiling tiling = tile(rows, columns);
  Launch launch;
  launch.stem = std::string(op.name());
  launch.args = {operand_arg(0), operand_arg(1), result_arg(0)};
  launch.sizes = {rows, columns, table.shape[0], tiling.rows_per_task, tiling.columns_per_task};
  launch.tasks = tiling.tasks;
  launch.text = kernel_text({"copy_cpu.inc"},
                            fmt::format("  ig_gather({}, {}, {}, sizes, task);\n", input_pointer(storage_type(ids.dtype), 0),
                                        input_pointer(storage_type(table.dtype), 1), output_pointer(storage_type(to.dtype), 2)));
  return {{std::move(launch)}, {}};
}

OpLaunches lower_put(const OpSite& site) {
  const ir::Op& op = site.op;
  const ir::Type& ids = site.graph.type(op.operands[0]);
  const ir::Type& from = site.graph.type(op.operands[1]);
  const ir::Type& to = site.graph.type(op.results[0]);
  const int64_t rows = to.shape[0], columns = to.shape[1], positions = ids.elements();
  ir::check(positions <= INT32_MAX, "lower_put: too many positions");
  OpLaunches out;
  out.workspace_bytes = {(rows + 1) * 4, positions * 4};

  Launch sort;
  sort.stem = std::string(op.name()) + "_sort";
  sort.args = {operand_arg(0), workspace_arg(0, ir::AccessMode::write), workspace_arg(1, ir::AccessMode::write)};
  sort.sizes = {positions, rows};
  sort.text =
      kernel_text({"copy_cpu.inc"}, fmt::format("  ig_sort_ids({}, {}, {}, sizes);\n", input_pointer(storage_type(ids.dtype), 0),
                                                output_pointer("int32_t", 1), output_pointer("int32_t", 2)));
  out.launches.push_back(std::move(sort));

  const Tiling tiling = tile(rows, columns);
  Launch put;
  put.stem = std::string(op.name());
  put.args = {workspace_arg(0, ir::AccessMode::read), workspace_arg(1, ir::AccessMode::read), operand_arg(1), result_arg(0)};
  put.sizes = {rows, columns, tiling.rows_per_task, tiling.columns_per_task};
  put.tasks = tiling.tasks;
  put.text = kernel_text({"copy_cpu.inc"}, fmt::format("  ig_put({}, {}, {}, {}, sizes, task);\n", input_pointer("int32_t", 0),
                                                       input_pointer("int32_t", 1), input_pointer(storage_type(from.dtype), 2),
                                                       output_pointer(storage_type(to.dtype), 3)));
  out.launches.push_back(std::move(put));
  return out;
}

}  // namespace ingot::codegen::cpu
