#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

/// Sizes of op(a) [m, k] and op(b) [k, n].
struct Sizes {
  int64_t m, n, k, other_k;
  Sizes(const Shape& a, const Shape& b, bool ta, bool tb)
      : m(a[a.size() - (ta ? 1 : 2)]),
        n(b[b.size() - (tb ? 2 : 1)]),
        k(a[a.size() - (ta ? 2 : 1)]),
        other_k(b[b.size() - (tb ? 1 : 2)]) {}
};

Shape leading(const Shape& shape) { return {shape.begin(), shape.end() - 2}; }

std::string transposed_text(const Attrs& attrs) {
  const bool ta = attrs.boolean("ta");
  const bool tb = attrs.boolean("tb");
  if (!ta && !tb) return "";
  return ta && tb ? " (both transposed)" : ta ? " (the first transposed)" : " (the second transposed)";
}

constexpr int kAddend = 2;

void check_addend(const InferContext& c, const Type& product) {
  const Type& addend = c.type(kAddend);
  const Shape row{product.shape.back()};
  if (addend.shape != product.shape && addend.shape != row) {
    c.fail("c is added to the product and must have its shape, " + shape_text(product.shape) + ", or be one row of it, " +
           shape_text(row) + ", but " + c.show(kAddend));
  }
  if (addend.dtype != product.dtype && addend.dtype != DType::f32) {
    c.fail("c must be f32 or have the dtype of the result, " + std::string(dtype_name(product.dtype)) + ", but " +
           c.show(kAddend));
  }
}

void infer(InferContext& c) {
  for (int i = 0; i < 2; ++i) {
    c.need_float(i);
    if (c.type(i).rank() < 2) c.fail("multiplies the last two axes, so operands must have at least 2, but " + c.show(i));
  }
  const std::string both = ": " + c.show(0) + ", " + c.show(1) + transposed_text(c.attrs());
  const Type& a = c.type(0);
  const Type& b = c.type(1);
  if (a.dtype != b.dtype) c.fail("operands must have one dtype" + both);
  const Sizes s(a.shape, b.shape, c.attrs().boolean("ta"), c.attrs().boolean("tb"));
  if (s.k != s.other_k) {
    c.fail("inner sizes differ, " + std::to_string(s.k) + " and " + std::to_string(s.other_k) + both);
  }
  std::optional<Shape> shape = broadcast_shapes(leading(a.shape), leading(b.shape));
  if (!shape) c.fail("the axes before the last two do not broadcast" + both);
  const DType dtype = c.attrs().has("dtype") ? c.attrs().dtype("dtype") : a.dtype;
  if (!is_float(dtype)) c.fail("dtype must be a float's, but it is " + std::string(dtype_name(dtype)));
  shape->push_back(s.m);
  shape->push_back(s.n);
  if (c.has(kAddend)) check_addend(c, {dtype, *shape});
  c.result({dtype, *shape});
}

// A bias once for every row.
void start_from(const Tensor& addend, Tensor& y) {
  for (size_t i = 0; i < y.data.size(); ++i) y.data[i] = addend.data[i % addend.data.size()];
}

void reference(ReferenceContext& c) {
  const Tensor& a = c.operand(0);
  const Tensor& b = c.operand(1);
  const bool ta = c.attrs.boolean("ta");
  const bool tb = c.attrs.boolean("tb");
  const Sizes s(a.type.shape, b.type.shape, ta, tb);
  const Shape lead = leading(c.result(0).type.shape);
  IndexWalk walk(lead, {broadcast_strides(leading(a.type.shape), lead), broadcast_strides(leading(b.type.shape), lead)});
  if (c.has(kAddend)) start_from(c.operand(kAddend), c.result(0));
  double* y = c.result(0).data.data();
  for (int64_t batch = element_count(lead); batch-- > 0; walk.next()) {
    const double* pa = a.data.data() + walk.at(0) * s.m * s.k;
    const double* pb = b.data.data() + walk.at(1) * s.k * s.n;
    for (int64_t i = 0; i < s.m; ++i, y += s.n) {
      for (int64_t k = 0; k < s.k; ++k) {
        const double left = ta ? pa[k * s.m + i] : pa[i * s.k + k];
        for (int64_t j = 0; j < s.n; ++j) y[j] += left * (tb ? pb[j * s.k + k] : pb[k * s.n + j]);
      }
    }
  }
}

/// [..., rows, columns] as one matrix.
ValueId flat(Builder& b, ValueId x) {
  const Shape& shape = b.shape(x);
  return b.reshape(x, {count_between(shape, 0, shape.size() - 1), shape.back()});
}

/// y = op(a) op(b), so op(a)' = g op(b)^T and op(b)' = op(a)^T g, each transposed when its operand is. The engine adds up the
/// axes that were broadcast; a plain matrix `b` under a batch of `a` (a weight) takes one product over all rows instead. What is
/// added gets g itself, a bias the sum of its rows.
void gradient(GradientContext& c) {
  Builder& b = c.b();
  const bool ta = c.attrs().boolean("ta");
  const bool tb = c.attrs().boolean("tb");
  const ValueId x = c.operand(0);
  const ValueId w = c.operand(1);
  const ValueId g = b.cast(c.grad(0), b.type(x).dtype);
  if (c.wants(0)) {
    const DType dtype = c.grad_dtype(0);
    c.set(0, ta ? b.matmul(w, g, tb, true, dtype) : b.matmul(g, w, false, !tb, dtype));
  }
  if (c.wants(1)) {
    const DType dtype = c.grad_dtype(1);
    const bool one_product = !ta && b.shape(w).size() == 2 && b.shape(x).size() > 2;
    const ValueId rows = one_product ? flat(b, x) : x;
    const ValueId grads = one_product ? flat(b, g) : g;
    c.set(1, tb ? b.matmul(grads, rows, true, ta, dtype) : b.matmul(rows, grads, !ta, false, dtype));
  }
  if (c.has(kAddend) && c.wants(kAddend)) c.set(kAddend, c.grad(0));
}

double flops(const Graph& graph, const Op& op) {
  const Shape& a = graph.type(op.operands[0]).shape;
  const int64_t k = a[a.size() - (op.attrs.boolean("ta") ? 2 : 1)];
  return 2.0 * static_cast<double>(graph.type(op.results[0]).elements()) * static_cast<double>(k);
}

std::string call_adding(const char* a, const char* b, const char* c, const char* attrs, const char* y) {
  return std::string("input %a: ") + a + "\ninput %b: " + b + "\ninput %c: " + c + "\n%y = matmul(%a, %b, %c)" + attrs + ": " + y;
}

std::string call(const char* a, const char* b, const char* attrs, const char* y) {
  return std::string("input %a: ") + a + "\ninput %b: " + b + "\n%y = matmul(%a, %b)" + attrs + ": " + y;
}

}  // namespace

void define_matmul(OpTable& table);
void define_matmul(OpTable& table) {
  OpDef& op = table.add("matmul");
  op.summary =
      "Matrix product over the last two axes, the axes before them broadcasting: y[..., i, j] = sum over k of a[..., i, k] "
      "b[..., k, j] (+ c[..., i, j], or + c[j] for every row), summed in f32 and rounded once.";
  op.operand("a", "[..., m, k], or [..., k, m] with ta");
  op.operand("b", "[..., k, n], or [..., n, k] with tb; the dtype of a");
  op.attr("ta", AttrKind::boolean, false, "a is given transposed");
  op.attr("tb", AttrKind::boolean, false, "b is given transposed");
  op.optional_attr("dtype", AttrKind::dtype, "dtype of the result; that of the operands when left out");
  op.optional_operand("c",
                      "what is added to the product: its shape, or [n], a bias for every row; f32 or the dtype of the result");
  op.optional_attr("siblings", AttrKind::integer,
                   "so many products, this one among them, stand side by side and may be made by one call; 1 when absent");
  op.result("y", "[..., m, n]");
  op.aliases = {{0, kAddend}};
  op.infer = infer;
  op.reference = reference;
  op.gradient = gradient;
  op.lowering = GemmLowering{};
  op.flops = flops;
  op.examples = {{call("f32[3, 4]", "f32[4, 2]", "", "f32[3, 2]")},
                 {call("f32[4, 3]", "f32[4, 2]", " {ta: true}", "f32[3, 2]")},
                 {call("f32[3, 4]", "f32[2, 4]", " {tb: true}", "f32[3, 2]")},
                 {call("f32[4, 3]", "f32[2, 4]", " {ta: true, tb: true}", "f32[3, 2]")},
                 {call("f32[2, 3, 4]", "f32[4, 5]", "", "f32[2, 3, 5]")},
                 {call("f32[2, 3, 4]", "f32[5, 4]", " {tb: true}", "f32[2, 3, 5]")},
                 {call("f32[2, 4, 3]", "f32[4, 5]", " {ta: true}", "f32[2, 3, 5]")},
                 {call("f32[3, 4]", "f32[2, 4, 5]", "", "f32[2, 3, 5]")},
                 {call("f32[2, 1, 3, 4]", "f32[5, 2, 4]", " {tb: true}", "f32[2, 5, 3, 2]")},
                 {call("bf16[2, 3, 4]", "bf16[4, 5]", "", "bf16[2, 3, 5]")},
                 {call("bf16[4, 3]", "bf16[4, 5]", " {ta: true, dtype: f32}", "f32[3, 5]")},
                 {call("f32[1, 1]", "f32[1, 1]", "", "f32[1, 1]")},
                 {call_adding("f32[3, 4]", "f32[4, 2]", "f32[3, 2]", "", "f32[3, 2]")},
                 {call_adding("f32[2, 3, 4]", "f32[2, 5, 4]", "f32[2, 3, 5]", " {tb: true}", "f32[2, 3, 5]")},
                 {call_adding("f32[2, 1, 3, 4]", "f32[5, 4, 2]", "f32[2, 5, 3, 2]", "", "f32[2, 5, 3, 2]")},
                 {call_adding("bf16[4, 3]", "bf16[4, 5]", "bf16[3, 5]", " {ta: true}", "bf16[3, 5]")},
                 {call_adding("bf16[3, 4]", "bf16[4, 5]", "f32[3, 5]", "", "bf16[3, 5]")},
                 {call_adding("bf16[3, 4]", "bf16[4, 5]", "f32[3, 5]", " {dtype: f32}", "f32[3, 5]")},
                 {call_adding("f32[3, 4]", "f32[4, 2]", "f32[2]", "", "f32[3, 2]")},
                 {call_adding("f32[2, 3, 4]", "f32[5, 4]", "f32[5]", " {tb: true}", "f32[2, 3, 5]")},
                 {call_adding("bf16[2, 4, 3]", "bf16[2, 4, 5]", "f32[5]", " {ta: true}", "bf16[2, 3, 5]")},
                 {call_adding("bf16[1, 4]", "bf16[4, 5]", "bf16[5]", "", "bf16[1, 5]")}};
  op.rejects = {
      {call("f32[3, 4]", "f32[3, 2]", "", "f32[3, 2]"), "matmul: inner sizes differ, 4 and 3: %a is f32[3, 4], %b is f32[3, 2]"},
      {call("f32[3, 4]", "f32[4, 2]", " {tb: true}", "f32[3, 2]"),
       "inner sizes differ, 4 and 2: %a is f32[3, 4], %b is f32[4, 2] (the second transposed)"},
      {call("f32[2, 3, 4]", "f32[3, 4, 2]", "", "f32[2, 3, 2]"),
       "the axes before the last two do not broadcast: %a is f32[2, 3, 4]"},
      {call("f32[4]", "f32[4, 2]", "", "f32[2]"), "operands must have at least 2, but %a is f32[4]"},
      {call("f32[3, 4]", "bf16[4, 2]", "", "f32[3, 2]"), "operands must have one dtype: %a is f32[3, 4], %b is bf16[4, 2]"},
      {call("i32[3, 4]", "i32[4, 2]", "", "i32[3, 2]"), "a must hold floats, but %a is i32[3, 4]"},
      {call("f32[3, 4]", "f32[4, 2]", " {dtype: i32}", "i32[3, 2]"), "dtype must be a float's, but it is i32"},
      {call_adding("f32[3, 4]", "f32[4, 2]", "f32[3]", "", "f32[3, 2]"),
       "c is added to the product and must have its shape, [3, 2], or be one row of it, [2], but %c is f32[3]"},
      {call_adding("f32[2, 3, 4]", "f32[4, 2]", "f32[3, 2]", "", "f32[2, 3, 2]"),
       "its shape, [2, 3, 2], or be one row of it, [2], but %c is f32[3, 2]"},
      {call_adding("bf16[3, 4]", "bf16[4, 2]", "f16[2]", "", "bf16[3, 2]"),
       "c must be f32 or have the dtype of the result, bf16, but %c is f16[2]"},
      {call_adding("f32[3, 4]", "f32[4, 2]", "bf16[3, 2]", "", "f32[3, 2]"),
       "c must be f32 or have the dtype of the result, f32, but %c is bf16[3, 2]"}};
}

}  // namespace ingot::ir
