// Views that need a copy: transposed, strided, repeated or shifted reads. Elements are moved as bits.
#include <fmt/format.h>

#include <numeric>

#include "codegen/collapse.h"
#include "codegen/cpu/emit.h"

namespace ingot::codegen::cpu {
namespace {

/// Where axis `k`'s index comes from when the outer axes are counted by one number: "i2" etc., declared from `row`.
std::string decode_rows(const std::vector<size_t>& outer) {
  std::string out;
  for (size_t at = outer.size(); at-- > 0;) {
    const std::string rest = at + 1 < outer.size() ? fmt::format("rest{}", outer[at + 1]) : "row";
    const size_t k = outer[at];
    if (at == 0) {
      out += fmt::format("    const int64_t i{} = {};\n", k, rest);
    } else {
      out += fmt::format("    const int64_t rest{0} = {1} / n{0}, i{0} = {1} - rest{0} * n{0};\n", k, rest);
    }
  }
  return out;
}

struct Emitter {
  const std::vector<ViewAxis>& axes;
  std::string_view type;

  // sizes: n0.., s0.., offset, shift, then what the tiling needs.
  std::string declare() const {
    std::string out;
    const size_t rank = axes.size();
    for (size_t k = 0; k < rank; ++k) out += fmt::format("  const int64_t n{0} = sizes[{0}], s{0} = {1};\n", k, stride_text(k));
    out += fmt::format("  [[maybe_unused]] const int64_t shift = sizes[{}];\n  const {}* in = {} + sizes[{}];\n  {}* out = {};\n",
                       2 * rank + 1, type, input_pointer(type, 0), 2 * rank, type, output_pointer(type, 1));
    return out;
  }

  /// The innermost stride decides how the loop is vectorised, so 0 and 1 stand in the text.
  std::string stride_text(size_t k) const {
    if (k + 1 == axes.size() && axes[k].stride == 0) return "0";
    if (k + 1 == axes.size() && axes[k].stride == 1) return "1";
    return fmt::format("sizes[{}]", axes.size() + k);
  }

  std::string product(const std::vector<size_t>& which) const {
    std::string out = "1";
    for (size_t k : which) out += fmt::format(" * n{}", k);
    return out;
  }

  std::string rows() const {
    const size_t last = axes.size() - 1;
    std::vector<size_t> outer(last);
    std::iota(outer.begin(), outer.end(), 0);
    std::string out = declare();
    out += fmt::format("  const ig_tile tile = ig_tile_of(task, {}, n{}, sizes[{}], sizes[{}]);\n", product(outer), last,
                       2 * axes.size() + 2, 2 * axes.size() + 3);
    out += "  for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {\n" + decode_rows(outer);
    std::string source = "in", inside;
    for (size_t k : outer) {
      source += fmt::format(" + {} * s{}", axes[k].guarded ? fmt::format("(i{} + shift)", k) : fmt::format("i{}", k), k);
      if (axes[k].guarded) inside = fmt::format("i{0} + shift >= 0 && i{0} + shift < n{0}", k);
    }
    out += fmt::format("    {}* y = out + row * n{};\n", type, last);
    const std::string columns = "for (int64_t c = tile.column_begin; c < tile.column_end; ++c)";
    if (axes[last].guarded) {
      out += fmt::format(
          "    const {0}* x = {1};\n    {2} y[c] = c + shift >= 0 && c + shift < n{3} ? x[(c + shift) * s{3}] : {0}(0);\n", type,
          source, columns, last);
    } else {
      if (!inside.empty())
        out += fmt::format("    if (!({})) {{\n      {} y[c] = 0;\n      continue;\n    }}\n", inside, columns);
      out += fmt::format("    const {}* x = {};\n#pragma GCC ivdep\n    {} y[c] = x[c * s{}];\n", type, source, columns, last);
    }
    return out + "  }\n";
  }

  /// Axis u has stride 1 and the last axis another: squares keep both sides in the cache.
  std::string transposed(size_t u) const {
    const size_t last = axes.size() - 1, rank = axes.size();
    std::vector<size_t> outer;
    std::string source = "in", target = "out";
    for (size_t k = 0; k < last; ++k) {
      if (k == u) continue;
      outer.push_back(k);
      source += fmt::format(" + i{0} * s{0}", k);
      target += fmt::format(" + i{} * (1", k);
      for (size_t j = k + 1; j < rank; ++j) target += fmt::format(" * n{}", j);
      target += ")";
    }
    std::string out = declare();
    out += fmt::format("  const int64_t down = sizes[{}], blocks = (n{} + down - 1) / down;\n", 2 * rank + 2, u);
    out += "  [[maybe_unused]] const int64_t row = task / blocks;\n  {\n" + decode_rows(outer);
    out += fmt::format("    int64_t step = 1;\n");
    for (size_t j = u + 1; j < rank; ++j) out += fmt::format("    step *= n{};\n", j);
    out += fmt::format("    const int64_t begin = task % blocks * down, end = ig_least(begin + down, n{});\n", u);
    out += fmt::format("    const {0}* x = {1};\n    {0}* y = {2};\n", type, source, target);
    out += fmt::format("    ig_transpose(x + begin, s{0}, y + begin * step, step, end - begin, n{0});\n", last);
    return out + "  }\n";
  }
};

}  // namespace

OpLaunches lower_view(const OpSite& site, const ir::ViewLowering& lowering) {
  const ir::Op& op = site.op;
  const ir::Type& from = site.graph.type(op.operands[0]);
  const ir::Type& to = site.graph.type(op.results[0]);
  const ir::View view = lowering.map(from, to, op.attrs);
  const std::vector<ViewAxis> axes = collapse_view(view);
  const size_t last = axes.size() - 1;

  Launch launch;
  launch.stem = std::string(op.name());
  launch.args = {operand_arg(0), result_arg(0)};
  for (const ViewAxis& axis : axes) launch.sizes.push_back(axis.size);
  for (const ViewAxis& axis : axes) launch.sizes.push_back(axis.stride);
  launch.sizes.push_back(view.offset);
  launch.sizes.push_back(view.guard_axis >= 0 ? view.guard_shift : 0);

  size_t u = last;
  bool guarded = false;
  int64_t rows = 1;
  for (size_t k = 0; k <= last; ++k) {
    if (axes[k].stride == 1 && k < last) u = k;
    guarded = guarded || axes[k].guarded;
    if (k < last) rows *= axes[k].size;
  }
  const Emitter emitter{axes, bits_type(to.dtype)};
  if (u != last && !guarded && axes[last].stride > 1 && axes[u].size >= 8) {
    const int64_t down = std::max<int64_t>(32, (2 * kTaskElements / axes[last].size + 31) / 32 * 32);
    launch.sizes.push_back(down);
    launch.tasks = rows / axes[u].size * ((axes[u].size + down - 1) / down);
    launch.text = kernel_text({"copy_cpu.inc"}, emitter.transposed(u));
  } else {
    const Tiling tiling = tile(rows, axes[last].size);
    launch.sizes.push_back(tiling.rows_per_task);
    launch.sizes.push_back(tiling.columns_per_task);
    launch.tasks = tiling.tasks;
    launch.text = kernel_text({"tasks_cpu.inc"}, emitter.rows());
  }
  return {{std::move(launch)}, {}};
}

}  // namespace ingot::codegen::cpu
