// Elementwise functions of one number, a row each.
#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

using Gradient = void (*)(GradientContext&);

struct Row {
  const char* name;
  const char* summary;
  double (*reference)(double);
  const char* body;
  Gradient gradient;        ///< nullptr: zero by definition
  bool floats_only = true;  ///< false: integers too
  double lo = -2, hi = 2;   ///< examples draw from here
};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

void neg_gradient(GradientContext& c) { c.set(0, c.b().neg(c.grad(0))); }

/// 0 at 0, where abs has no derivative.
void abs_gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId zero = b.constant(0);
  const ValueId below = b.make("lt", {c.operand(0), zero});
  const ValueId down = b.neg(c.grad(0));
  const ValueId left = b.select(below, down, zero);
  const ValueId above = b.make("gt", {c.operand(0), zero});
  c.set(0, b.select(above, c.grad(0), left));
}

void exp_gradient(GradientContext& c) { c.set(0, c.b().mul(c.grad(0), c.result(0))); }
void log_gradient(GradientContext& c) { c.set(0, c.b().div(c.grad(0), c.operand(0))); }
void log1p_gradient(GradientContext& c) { c.set(0, c.b().div(c.grad(0), c.b().add(c.operand(0), 1.0))); }
void expm1_gradient(GradientContext& c) { c.set(0, c.b().mul(c.grad(0), c.b().add(c.result(0), 1.0))); }

/// g (1 - y^2)
void tanh_gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId square = b.make("square", {c.result(0)});
  const ValueId rest = b.sub(b.constant(1), square);
  c.set(0, b.mul(c.grad(0), rest));
}

/// g y (1 - y)
void sigmoid_gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId rest = b.sub(b.constant(1), c.result(0));
  const ValueId slope = b.mul(c.result(0), rest);
  c.set(0, b.mul(c.grad(0), slope));
}

/// Mentions the result, which what follows relu usually saves anyway; 0 at 0.
void relu_gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId zero = b.constant(0);
  const ValueId on = b.make("gt", {c.result(0), zero});
  c.set(0, b.select(on, c.grad(0), zero));
}

void square_gradient(GradientContext& c) {
  Builder& b = c.b();
  c.set(0, b.mul(c.grad(0), b.mul(c.operand(0), 2.0)));
}

/// g / (2 y)
void sqrt_gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId twice = b.mul(c.result(0), 2.0);
  c.set(0, b.div(c.grad(0), twice));
}

/// -g y^3 / 2
void rsqrt_gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId square = b.make("square", {c.result(0)});
  const ValueId cube = b.mul(square, c.result(0));
  const ValueId slope = b.mul(cube, -0.5);
  c.set(0, b.mul(c.grad(0), slope));
}

void softplus_gradient(GradientContext& c) {
  const ValueId slope = c.b().make("sigmoid", {c.operand(0)});
  c.set(0, c.b().mul(c.grad(0), slope));
}

/// With s = sigmoid(x): g s (1 + x (1 - s)).
void silu_gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId s = b.make("sigmoid", {c.operand(0)});
  const ValueId rest = b.sub(b.constant(1), s);
  const ValueId inner = b.add(b.mul(c.operand(0), rest), 1.0);
  const ValueId slope = b.mul(s, inner);
  c.set(0, b.mul(c.grad(0), slope));
}

void sin_gradient(GradientContext& c) {
  const ValueId slope = c.b().make("cos", {c.operand(0)});
  c.set(0, c.b().mul(c.grad(0), slope));
}

void cos_gradient(GradientContext& c) {
  const ValueId slope = c.b().neg(c.b().make("sin", {c.operand(0)}));
  c.set(0, c.b().mul(c.grad(0), slope));
}

const Row kRows[] = {
    {"neg", "-x", [](double x) { return -x; }, "-a0", neg_gradient, false},
    {"abs", "|x|; the gradient at 0 is 0", [](double x) { return std::fabs(x); }, "ig_abs(a0)", abs_gradient, false},
    {"exp", "e^x", [](double x) { return std::exp(x); }, "ig_exp(a0)", exp_gradient},
    {"log", "natural logarithm of x", [](double x) { return std::log(x); }, "ig_log(a0)", log_gradient, true, 0.5, 3},
    {"log1p", "log(1 + x), exact for small x", [](double x) { return std::log1p(x); }, "ig_log1p(a0)", log1p_gradient, true, -0.5,
     3},
    {"expm1", "e^x - 1, exact for small x", [](double x) { return std::expm1(x); }, "ig_expm1(a0)", expm1_gradient},
    {"tanh", "hyperbolic tangent of x", [](double x) { return std::tanh(x); }, "ig_tanh(a0)", tanh_gradient},
    {"sigmoid", "1 / (1 + e^-x)", logistic, "ig_sigmoid(a0)", sigmoid_gradient, true, -4, 4},
    {"relu", "max(x, 0), NaN staying NaN; the gradient at 0 is 0", [](double x) { return x < 0 ? 0 : x; }, "a0 < 0 ? 0 : a0",
     relu_gradient, false},
    {"square", "x^2", [](double x) { return x * x; }, "a0 * a0", square_gradient, false},
    {"sqrt", "square root of x", [](double x) { return std::sqrt(x); }, "ig_sqrt(a0)", sqrt_gradient, true, 0.25, 4},
    {"rsqrt", "1 / sqrt(x)", [](double x) { return 1 / std::sqrt(x); }, "ig_rsqrt(a0)", rsqrt_gradient, true, 0.25, 4},
    {"softplus", "log(1 + e^x), for large x as exact as x",
     [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }, "ig_softplus(a0)",
     softplus_gradient, true, -4, 4},
    {"silu", "x sigmoid(x)", [](double x) { return x * logistic(x); }, "ig_silu(a0)", silu_gradient, true, -4, 4},
    {"sin", "sine of x (radians)", [](double x) { return std::sin(x); }, "ig_sin(a0)", sin_gradient},
    {"cos", "cosine of x (radians)", [](double x) { return std::cos(x); }, "ig_cos(a0)", cos_gradient},
    {"floor", "the largest whole number <= x; its gradient is 0", [](double x) { return std::floor(x); }, "ig_floor(a0)",
     nullptr},
};

void define_row(OpTable& table, const Row& row) {
  OpDef& op = table.add(row.name);
  op.summary = std::string("Elementwise: ") + row.summary + ".";
  op.operand("x", row.floats_only ? "floats" : "numbers");
  op.result("y", "the same shape and dtype as x");
  op.infer = [floats_only = row.floats_only](InferContext& c) {
    if (floats_only) c.need_float(0);
    need_number(c, 0);
    c.result(c.type(0));
  };
  op.reference = [f = row.reference](ReferenceContext& c) {
    elementwise_reference(c, [f](const double* in, double* out) { out[0] = f(in[0]); });
  };
  if (row.gradient) op.gradient = row.gradient;
  op.gradient_is_zero = row.gradient == nullptr;
  op.lowering = ScalarLowering{{row.body}};
  const auto call = [&](const std::string& type) { return "input %x: " + type + "\n%y = " + row.name + "(%x): " + type; };
  for (const char* type : {"f32[2, 3]", "bf16[5]", "f32[]"}) {
    op.examples.push_back({call(type), row.lo, row.hi, row.gradient != nullptr});
  }
  if (!row.floats_only) op.examples.push_back({"range x -9..9\n" + call("i32[4]")});
  op.rejects.push_back({call("bool[2]"), std::string(row.name) + (row.floats_only ? ": x must hold floats" : ": needs numbers") +
                                             ", but %x is bool[2]"});
  if (row.floats_only) op.rejects.push_back({call("i32[2]"), "%x is i32[2]"});
}

void define_isfinite(OpTable& table) {
  OpDef& op = table.add("isfinite");
  op.summary = "Elementwise: is x neither infinite nor NaN?";
  op.operand("x", "floats");
  op.result("y", "bool, the shape of x");
  op.infer = [](InferContext& c) {
    c.need_float(0);
    c.result({DType::boolean, c.type(0).shape});
  };
  op.reference = [](ReferenceContext& c) {
    elementwise_reference(c, [](const double* in, double* out) { out[0] = std::isfinite(in[0]); });
  };
  op.gradient_is_zero = true;
  op.lowering = ScalarLowering{{"ig_isfinite(a0)"}};
  op.examples = {{"input %x: f32[2, 3]\n%y = isfinite(%x): bool[2, 3]"},
                 {"%c = constant() {value: inf}: f32[]\n%y = isfinite(%c): bool[]"},
                 {"%c = constant() {value: nan}: f32[]\n%y = isfinite(%c): bool[]"}};
  op.rejects = {{"input %x: i32[2]\n%y = isfinite(%x): bool[2]", "%x is i32[2]"}};
}

}  // namespace

void define_unary(OpTable& table);
void define_unary(OpTable& table) {
  for (const Row& row : kRows) define_row(table, row);
  define_isfinite(table);
}

}  // namespace ingot::ir
