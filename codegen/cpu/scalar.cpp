// Elementwise ops: one loop nest over collapsed axes, the last axis innermost and vectorised. The text depends on dtypes, bodies
// and which operand is constant along which axis; sizes arrive at run time.
#include <fmt/format.h>

#include "codegen/collapse.h"
#include "codegen/cpu/emit.h"

namespace ingot::codegen::cpu {
namespace {

using ir::DType;

struct ScalarInput {
  int operand = 0;  ///< of the op: body name a<operand>
  DType dtype = DType::f32;
};

std::string product(const std::vector<std::string>& factors) {
  return factors.empty() ? "1" : fmt::format("{}", fmt::join(factors, " * "));
}

/// "i0 * (n1 * n2) + i1 * n2": where a row of an operand starts. Axis `last` is walked by the inner loop.
std::string row_offset(const std::vector<Axis>& axes, size_t input) {
  std::vector<std::string> terms;
  for (size_t k = 0; k + 1 < axes.size(); ++k) {
    if (!axes[k].present[input]) continue;
    std::vector<std::string> stride;
    for (size_t j = k + 1; j < axes.size(); ++j) {
      if (axes[j].present[input]) stride.push_back(fmt::format("n{}", j));
    }
    terms.push_back(stride.empty() ? fmt::format("i{}", k) : fmt::format("i{} * ({})", k, product(stride)));
  }
  return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
}

/// Declares n0.., the tile and opens the loop over its rows with i0.. set; sizes hold the axes, rows and columns a task takes.
std::string open_rows(size_t rank) {
  std::string out;
  std::vector<std::string> outer;
  for (size_t k = 0; k < rank; ++k) {
    out += fmt::format("  const int64_t n{0} = sizes[{0}];\n", k);
    if (k + 1 < rank) outer.push_back(fmt::format("n{}", k));
  }
  out += fmt::format("  const ig_tile tile = ig_tile_of(task, {}, n{}, sizes[{}], sizes[{}]);\n", product(outer), rank - 1, rank,
                     rank + 1);
  out += "  for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {\n";
  for (size_t k = rank - 1; k-- > 0;) {
    const std::string rest = k + 2 < rank ? fmt::format("rest{}", k + 1) : "row";
    if (k == 0) {
      out += fmt::format("    const int64_t i0 = {};\n", rest);
    } else {
      out += fmt::format("    const int64_t rest{0} = {1} / n{0}, i{0} = {1} - rest{0} * n{0};\n", k, rest);
    }
  }
  return out;
}

std::vector<int64_t> axis_sizes(const std::vector<Axis>& axes, Launch& launch) {
  std::vector<int64_t> sizes;
  int64_t rows = 1;
  for (const Axis& axis : axes) sizes.push_back(axis.size);
  for (size_t k = 0; k + 1 < axes.size(); ++k) rows *= axes[k].size;
  const Tiling tiling = tile(rows, axes.back().size);
  sizes.push_back(tiling.rows_per_task);
  sizes.push_back(tiling.columns_per_task);
  launch.tasks = tiling.tasks;
  return sizes;
}

}  // namespace

OpLaunches lower_scalar(const OpSite& site, const ir::ScalarLowering& lowering) {
  const ir::Op& op = site.op;
  Launch launch;
  launch.stem = std::string(op.name());

  std::vector<ScalarInput> inputs;
  std::vector<ir::Shape> shapes;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == ir::kNone) continue;
    const ir::Type& type = site.graph.type(op.operands[i]);
    inputs.push_back({static_cast<int>(i), type.dtype});
    shapes.push_back(type.shape);
    launch.args.push_back(operand_arg(static_cast<int>(i)));
  }
  const ir::Shape& shape = site.graph.type(op.results[0]).shape;
  const std::vector<Axis> axes = collapse(shape, shapes);

  std::string body = open_rows(axes.size());
  std::string loads, values, stores;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto [index, dtype] = inputs[i];
    body += fmt::format("    const {}* x{} = {} + {};\n", storage_type(dtype), index,
                        input_pointer(storage_type(dtype), static_cast<int>(i)), row_offset(axes, i));
    // An operand that is constant along the inner axis is read before it.
    const bool along = axes.back().present[i];
    (along ? loads : body) += fmt::format("{}    const {} a{} = ig_load(x{}[{}]);\n", along ? "  " : "", arithmetic_type(dtype),
                                          index, index, along ? "c" : "0");
  }
  for (size_t r = 0; r < op.results.size(); ++r) {
    if (site.is_dead(static_cast<int>(r))) continue;
    const ir::Type& type = site.graph.type(op.results[r]);
    ir::check(type.shape == shape, "lower_scalar: results differ in shape");
    const int arg = static_cast<int>(launch.args.size());
    launch.args.push_back(result_arg(static_cast<int>(r)));
    body += fmt::format("    {}* y{} = {} + row * n{};\n", storage_type(type.dtype), r,
                        output_pointer(storage_type(type.dtype), arg), axes.size() - 1);
    values += fmt::format("      const auto v{} = {};\n", r, substitute_attrs(lowering.bodies[r], op.attrs));
    stores += fmt::format("      y{}[c] = ig_store<{}>::from(v{});\n", r, storage_type(type.dtype), r);
  }
  // A result may stand on an operand of the same type: iterations are independent, but not restrict. All values are made
  // before the first is stored.
  body += "#pragma GCC ivdep\n    for (int64_t c = tile.column_begin; c < tile.column_end; ++c) {\n" + loads + values + stores +
          "    }\n  }\n";
  launch.sizes = axis_sizes(axes, launch);
  launch.text = kernel_text({"tasks_cpu.inc"}, body);
  return {{std::move(launch)}, {}};
}

OpLaunches lower_generate(const OpSite& site, const ir::GenerateLowering& lowering) {
  const ir::Op& op = site.op;
  const ir::Type& type = site.graph.type(op.results[0]);
  Launch launch;
  launch.stem = std::string(op.name());
  launch.args.push_back(result_arg(0));
  const std::string expression = substitute_attrs(lowering.body(op.attrs), op.attrs, !is_float(type.dtype));

  // Bodies name the indices i0..; the axes are kept as they are, the last one counted by the inner loop.
  std::vector<Axis> axes;
  for (int64_t size : type.shape) axes.push_back({size, {}});
  if (axes.empty()) axes.push_back({1, {}});
  const size_t last = axes.size() - 1;
  std::string body = open_rows(axes.size());
  body +=
      fmt::format("    {0}* y = {1} + row * n{2};\n    for (int64_t i{2} = tile.column_begin; i{2} < tile.column_end; ++i{2}) ",
                  storage_type(type.dtype), output_pointer(storage_type(type.dtype), 0), last);
  body += fmt::format("y[i{}] = ig_store<{}>::from({});\n  }}\n", last, storage_type(type.dtype), expression);
  launch.sizes = axis_sizes(axes, launch);
  launch.text = kernel_text({"tasks_cpu.inc"}, body);
  return {{std::move(launch)}, {}};
}

}  // namespace ingot::codegen::cpu
