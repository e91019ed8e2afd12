// Views that need a copy: transposed, strided, repeated or shifted reads. Elements are moved as bits.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/collapse.h"
#include "codegen/cuda/emit.h"

namespace ingot::codegen::cuda {
namespace {

/// "n0 * n1 ..." of some axes.
std::string product(const std::vector<size_t>& axes) {
  std::string out = "1";
  for (size_t k : axes) out += fmt::format(" * n{}", k);
  return out;
}

/// Declares i<k> of every listed axis from the number `from`, the last axis fastest.
std::string decode(const std::vector<size_t>& axes, const std::string& from) {
  std::string out, rest = from;
  for (size_t at = axes.size(); at-- > 0;) {
    const size_t k = axes[at];
    out += fmt::format("    const int64_t rest{0} = {1} / n{0}, i{0} = {1} - rest{0} * n{0};\n", k, rest);
    rest = fmt::format("rest{}", k);
  }
  return out;
}

std::string elements_text(const std::vector<ViewAxis>& axes) {
  std::vector<size_t> all;
  std::string source = "offset", inside;
  for (size_t k = 0; k < axes.size(); ++k) {
    all.push_back(k);
    source += fmt::format(" + {} * s{}", axes[k].guarded ? fmt::format("(i{} + shift)", k) : fmt::format("i{}", k), k);
    if (axes[k].guarded) inside = fmt::format("i{0} + shift >= 0 && i{0} + shift < n{0}", k);
  }
  std::string out = fmt::format(
      "  const int64_t total = {}, step = static_cast<int64_t>(gridDim.x) * {};\n"
      "  for (int64_t at = static_cast<int64_t>(blockIdx.x) * {} + threadIdx.x; at < total; at += step) {{\n",
      product(all), kBlock, kBlock);
  out += decode(all, "at");
  out += inside.empty() ? fmt::format("    y[at] = x[{}];\n  }}\n", source)
                        : fmt::format("    y[at] = {} ? x[{}] : 0;\n  }}\n", inside, source);
  return out;
}

/// Axis u has stride 1 and the last axis another: squares go through shared memory.
std::string transposed_text(const std::vector<ViewAxis>& axes, size_t u) {
  const size_t last = axes.size() - 1;
  std::vector<size_t> outer, inner;
  std::string source = "x + offset", target = "y";
  for (size_t k = 0; k < last; ++k) {
    if (k > u) inner.push_back(k);
    if (k == u) continue;
    outer.push_back(k);
    source += fmt::format(" + i{0} * s{0}", k);
    std::vector<size_t> behind;
    for (size_t j = k + 1; j < axes.size(); ++j) behind.push_back(j);
    target += fmt::format(" + i{} * ({})", k, product(behind));
  }
  inner.push_back(last);
  std::string out = fmt::format(
      "  const int64_t squares = ((n{} + 31) / 32) * ((n{} + 31) / 32), total = squares * {};\n"
      "  for (int64_t at = blockIdx.x; at < total; at += gridDim.x) {{\n    const int64_t matrix = at / squares;\n",
      u, last, product(outer));
  out += decode(outer, "matrix");
  out += fmt::format("    ig_transpose({}, s{}, {}, {}, n{}, n{}, at - matrix * squares);\n  }}\n", source, last, target,
                     product(inner), u, last);
  return out;
}

}  // namespace

OpLaunches lower_view(const Site& site, const ir::ViewLowering& lowering) {
  const ir::Op& op = site.op;
  const ir::Type& from = site.graph.type(op.operands[0]);
  const ir::Type& to = site.graph.type(op.results[0]);
  const ir::View view = lowering.map(from, to, op.attrs);
  const std::vector<ViewAxis> axes = collapse_view(view);
  const size_t last = axes.size() - 1;
  KernelBuilder kernel{std::string(op.name())};
  kernel.include("copy_cuda.inc");
  kernel.argument(operand_arg(0), bits_type(to.dtype), "x");
  kernel.argument(result_arg(0), bits_type(to.dtype), "y");
  for (size_t k = 0; k <= last; ++k) kernel.size(axes[k].size, fmt::format("n{}", k));
  for (size_t k = 0; k <= last; ++k) kernel.size(axes[k].stride, fmt::format("s{}", k));
  kernel.size(view.offset, "offset");

  size_t u = last;
  bool guarded = false;
  for (size_t k = 0; k <= last; ++k) {
    if (axes[k].stride == 1 && k < last) u = k;
    guarded = guarded || axes[k].guarded;
  }
  if (guarded) kernel.size(view.guard_shift, "shift");
  if (u != last && !guarded && axes[last].stride > 1 && axes[u].size >= 8 && axes[last].size >= 8) {
    const int64_t squares =
        to.elements() / (axes[u].size * axes[last].size) * ((axes[u].size + 31) / 32) * ((axes[last].size + 31) / 32);
    kernel.blocks(blocks_for(site.arch, squares, 1));
    return {{kernel.finish(transposed_text(axes, u))}, {}};
  }
  kernel.blocks(blocks_for(site.arch, to.elements(), kBlock * 4));
  return {{kernel.finish(elements_text(axes))}, {}};
}

}  // namespace ingot::codegen::cuda
