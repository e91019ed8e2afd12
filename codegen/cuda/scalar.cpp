// Elementwise ops outside fused regions, and generated values: threads step through the elements of the result, several
// neighbours along the last axis at once where it is long enough.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/collapse.h"
#include "codegen/cuda/emit.h"
#include "ir/base/error.h"

namespace ingot::codegen::cuda {
namespace {

using ir::DType;

constexpr int kAtOnce = 4;  // elements a thread handles together

struct Input {
  int operand = 0;  ///< of the op: body name a<operand>
  DType dtype = DType::f32;
};

/// Opens the loop over pieces of the result: `at` counts them.
std::string open_loop(std::string_view index, const std::string& total) {
  return fmt::format(
      "  const {0} total = static_cast<{0}>({1}), step = static_cast<{0}>(gridDim.x) * {2};\n"
      "  for ({0} at = static_cast<{0}>(blockIdx.x) * {2} + static_cast<{0}>(threadIdx.x); at < total; at += step) {{\n",
      index, total, kBlock);
}

/// Declares i0, i1, ... of the element `at` of axes n0, n1, ...
std::string decode(std::string_view index, size_t rank) {
  std::string out;
  std::string rest = "at";
  for (size_t k = rank; k-- > 1;) {
    out += fmt::format("    const {0} rest{1} = {2} / static_cast<{0}>(n{1}), i{1} = {2} - rest{1} * static_cast<{0}>(n{1});\n",
                       index, k, rest);
    rest = fmt::format("rest{}", k);
  }
  return out + fmt::format("    const {} i0 = {};\n", index, rest);
}

/// "i0 * (n1 * n2) + i1 * n2 ...": the element an operand has there.
std::string offset(std::string_view index, const std::vector<Axis>& axes, size_t input) {
  std::string out = "0";
  for (size_t k = 0; k < axes.size(); ++k) {
    if (axes[k].present[input])
      out = out == "0" ? fmt::format("i{}", k) : fmt::format("({}) * static_cast<{}>(n{}) + i{}", out, index, k, k);
  }
  return out;
}

std::string product(size_t rank) {
  std::string out = "n0";
  for (size_t k = 1; k < rank; ++k) out += fmt::format(" * n{}", k);
  return out;
}

/// May some result be written over this operand?
bool of_a_results_type(const Site& site, int operand) {
  const ir::Type& type = site.graph.type(site.op.operands[static_cast<size_t>(operand)]);
  return std::any_of(site.op.results.begin(), site.op.results.end(),
                     [&](ir::ValueId result) { return site.graph.type(result) == type; });
}

}  // namespace

OpLaunches lower_scalar(const Site& site, const ir::ScalarLowering& lowering) {
  const ir::Op& op = site.op;
  KernelBuilder kernel{std::string(op.name())};
  std::vector<Input> inputs;
  std::vector<ir::Shape> shapes;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == ir::kNone) continue;
    const ir::Type& type = site.graph.type(op.operands[i]);
    inputs.push_back({static_cast<int>(i), type.dtype});
    shapes.push_back(type.shape);
    kernel.argument(operand_arg(static_cast<int>(i)), storage_type(type.dtype), fmt::format("x{}", i));
  }
  const ir::Shape& shape = site.graph.type(op.results[0]).shape;
  const std::vector<Axis> axes = collapse(shape, shapes);
  const int64_t elements = ir::element_count(shape);
  const bool wide = axes.back().size % kAtOnce == 0;
  const std::string_view index = index_type(elements);

  std::string loads, values, stores;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto [operand, dtype] = inputs[i];
    const std::string place = offset(index, axes, i);
    if (wide && axes.back().present[i]) {
      // Nothing is streamed that a result may be written over.
      loads += fmt::format("    const auto r{0} = ig_read<{1}, {2}, {2}, {3}>(x{0} + ({4}) * {2});\n", operand,
                           storage_type(dtype), kAtOnce, !of_a_results_type(site, operand), place);
      values += fmt::format("      const {0} a{1} = ig_get(r{1}, j);\n", arithmetic_type(dtype), operand);
    } else {
      loads += fmt::format("    const {0} a{1} = ig_load(x{1}[{2}]);\n", arithmetic_type(dtype), operand, place);
    }
  }
  std::string made;  // what the elements are rounded into before the first is stored: a result may stand on an operand
  for (size_t r = 0; r < op.results.size(); ++r) {
    if (site.is_dead(static_cast<int>(r))) continue;
    const ir::Type& type = site.graph.type(op.results[r]);
    ir::check(type.shape == shape, "lower_scalar: results differ in shape");
    kernel.argument(result_arg(static_cast<int>(r)), storage_type(type.dtype), fmt::format("y{}", r));
    const std::string body = substitute_attrs(lowering.bodies[r], op.attrs);
    if (wide) {
      made += fmt::format("    {} w{}[{}];\n", storage_type(type.dtype), r, kAtOnce);
      values += fmt::format("      w{0}[j] = ig_store<{1}>::from({2});\n", r, storage_type(type.dtype), body);
      stores += fmt::format("    ig_write_stored<{1}>(y{0} + at * {1}, w{0});\n", r, kAtOnce);
    } else {
      values += fmt::format("    const auto v{} = {};\n", r, body);
      stores += fmt::format("    y{}[at] = ig_store<{}>::from(v{});\n", r, storage_type(type.dtype), r);
    }
  }
  if (wide) {
    values = fmt::format("#pragma unroll\n    for (int j = 0; j < {}; ++j) {{\n", kAtOnce) + values + "    }\n";
  }
  for (size_t k = 0; k < axes.size(); ++k) {
    // In pieces of what is handled together.
    kernel.size(wide && k + 1 == axes.size() ? axes[k].size / kAtOnce : axes[k].size, fmt::format("n{}", k));
  }
  const std::string text =
      open_loop(index, product(axes.size())) + decode(index, axes.size()) + loads + made + values + stores + "  }\n";
  kernel.blocks(blocks_for(site.arch, elements, kBlock * kAtOnce));
  return {{kernel.finish(text)}, {}};
}

OpLaunches lower_generate(const Site& site, const ir::GenerateLowering& lowering) {
  const ir::Op& op = site.op;
  const ir::Type& type = site.graph.type(op.results[0]);
  KernelBuilder kernel{std::string(op.name())};
  kernel.argument(result_arg(0), storage_type(type.dtype), "y");
  const std::string expression = substitute_attrs(lowering.body(op.attrs), op.attrs, !is_float(type.dtype));
  const ir::Shape shape = type.shape.empty() ? ir::Shape{1} : type.shape;
  for (size_t k = 0; k < shape.size(); ++k) kernel.size(shape[k], fmt::format("n{}", k));
  kernel.blocks(blocks_for(site.arch, type.elements(), kBlock * kAtOnce));
  // Bodies take their indices as int64_t.
  return {{kernel.finish(open_loop("int64_t", product(shape.size())) + decode("int64_t", shape.size()) +
                         fmt::format("    y[at] = ig_store<{}>::from({});\n  }}\n", storage_type(type.dtype), expression))},
          {}};
}

}  // namespace ingot::codegen::cuda
