// Elementwise arithmetic on two numbers, a row each.
#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

using Gradient = void (*)(GradientContext&);

struct Row {
  const char* name;
  const char* summary;
  double (*reference)(double, double);
  const char* body;
  Gradient gradient;
  bool floats_only = false;  ///< true: the result must be float
  double lo = -2, hi = 2;    ///< examples draw from here
};

void add_gradient(GradientContext& c) {
  if (c.wants(0)) c.set(0, c.grad(0));
  if (c.wants(1)) c.set(1, c.grad(0));
}

void sub_gradient(GradientContext& c) {
  if (c.wants(0)) c.set(0, c.grad(0));
  if (c.wants(1)) c.set(1, c.b().neg(c.grad(0)));
}

void mul_gradient(GradientContext& c) {
  if (c.wants(0)) c.set(0, c.b().mul(c.grad(0), c.operand(1)));
  if (c.wants(1)) c.set(1, c.b().mul(c.grad(0), c.operand(0)));
}

/// y = a / b: g / b and -(g / b) y.
void div_gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId first = b.div(c.grad(0), c.operand(1));
  if (c.wants(0)) c.set(0, first);
  if (c.wants(1)) c.set(1, b.neg(b.mul(first, c.result(0))));
}

/// y = a - b floor(a / b), floor having no slope.
void mod_gradient(GradientContext& c) {
  Builder& b = c.b();
  if (c.wants(0)) c.set(0, c.grad(0));
  if (!c.wants(1)) return;
  const ValueId times = b.make("floor", {b.div(c.operand(0), c.operand(1))});
  c.set(1, b.neg(b.mul(c.grad(0), times)));
}

/// g b a^(b-1), and 0 where b is 0 (there a^(b-1) may be infinite); g y log(a), and 0 where a is 0 (there log a is).
void pow_gradient(GradientContext& c) {
  Builder& b = c.b();
  const ValueId zero = b.constant(0);
  if (c.wants(0)) {
    const ValueId less = b.sub(c.operand(1), b.constant(1));
    const ValueId power = b.make("pow", {c.operand(0), less});
    const ValueId slope = b.mul(c.operand(1), power);
    const ValueId flat = b.make("eq", {c.operand(1), zero});
    const ValueId safe = b.select(flat, zero, slope);
    c.set(0, b.mul(c.grad(0), safe));
  }
  if (c.wants(1)) {
    const ValueId slope = b.mul(c.result(0), b.make("log", {c.operand(0)}));
    const ValueId at_zero = b.make("eq", {c.operand(0), zero});
    const ValueId safe = b.select(at_zero, zero, slope);
    c.set(1, b.mul(c.grad(0), safe));
  }
}

/// The winner takes g; equals share it, half each.
void share_gradient(GradientContext& c, const char* wins, const char* loses) {
  Builder& b = c.b();
  const ValueId half = b.mul(c.grad(0), 0.5);
  const ValueId zero = b.constant(0);
  for (int i = 0; i < 2; ++i) {
    if (!c.wants(i)) continue;
    const ValueId lost = b.make(loses, {c.operand(i), c.operand(1 - i)});
    const ValueId rest = b.select(lost, zero, half);
    const ValueId won = b.make(wins, {c.operand(i), c.operand(1 - i)});
    c.set(i, b.select(won, c.grad(0), rest));
  }
}
void maximum_gradient(GradientContext& c) { share_gradient(c, "gt", "lt"); }
void minimum_gradient(GradientContext& c) { share_gradient(c, "lt", "gt"); }

/// The sign of b, as in Python. The zero divisor gives NaN, which an integer result stores as 0.
double python_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

const Row kRows[] = {
    {"add", "a + b", [](double a, double b) { return a + b; }, "a0 + a1", add_gradient},
    {"sub", "a - b", [](double a, double b) { return a - b; }, "a0 - a1", sub_gradient},
    {"mul", "a b", [](double a, double b) { return a * b; }, "a0 * a1", mul_gradient},
    {"div", "a / b, of floats", [](double a, double b) { return a / b; }, "a0 / a1", div_gradient, true, 0.5, 2},
    {"mod", "a - b floor(a / b): the rest has the sign of b, as in Python; of integers modulo 0 it is 0", python_mod,
     "ig_mod(a0, a1)", mod_gradient, false, 0.5, 2},
    {"pow", "a^b, of floats. The gradient to a is 0 where b = 0, the gradient to b is 0 where a = 0",
     [](double a, double b) { return std::pow(a, b); }, "ig_pow(a0, a1)", pow_gradient, true, 0.5, 2},
    {"maximum", "the larger of a and b, NaN when either is; equal operands share the gradient, half each",
     [](double a, double b) { return a > b || a != a ? a : b; }, "ig_max(a0, a1)", maximum_gradient},
    {"minimum", "the smaller of a and b, NaN when either is; equal operands share the gradient, half each",
     [](double a, double b) { return a < b || a != a ? a : b; }, "ig_min(a0, a1)", minimum_gradient},
};

void infer(InferContext& c, bool floats_only) {
  need_number(c, 0);
  need_number(c, 1);
  const DType dtype = promote(c.types());
  if (floats_only && !is_float(dtype)) {
    c.fail("needs floats, but " + c.show(0) + " and " + c.show(1) + "; cast one side to a float dtype");
  }
  c.result({dtype, c.broadcast_all()});
}

void define_row(OpTable& table, const Row& row) {
  OpDef& op = table.add(row.name);
  op.summary = std::string("Elementwise, broadcasting from the right: ") + row.summary + ".";
  op.operand("a", "numbers");
  op.operand("b", "numbers of a shape that broadcasts with a's");
  op.result("y", "the broadcast shape; the dtype the operands meet in (a rank-0 operand leaves the other's alone)");
  op.infer = [floats_only = row.floats_only](InferContext& c) { infer(c, floats_only); };
  op.reference = [f = row.reference](ReferenceContext& c) {
    elementwise_reference(c, [f](const double* in, double* out) { out[0] = f(in[0], in[1]); });
  };
  op.gradient = row.gradient;
  op.lowering = ScalarLowering{{row.body}};
  const auto call = [&](const std::string& a, const std::string& b, const std::string& y) {
    return "input %a: " + a + "\ninput %b: " + b + "\n%y = " + row.name + "(%a, %b): " + y;
  };
  const auto example = [&](const std::string& text) { op.examples.push_back({text, row.lo, row.hi}); };
  example(call("f32[2, 3]", "f32[2, 3]", "f32[2, 3]"));
  example(call("f32[2, 1, 3]", "f32[4, 1]", "f32[2, 4, 3]"));
  example(call("bf16[2, 3]", "f32[]", "bf16[2, 3]"));
  example(call("f32[3]", "bf16[2, 3]", "f32[2, 3]"));
  example(call("f32[]", "f32[]", "f32[]"));
  example("input %a: f32[3]\n%y = " + std::string(row.name) + "(%a, %a): f32[3]");
  if (!row.floats_only) example("range a -9..9\nrange b -4..4\n" + call("i32[2, 3]", "i64[3]", "i64[2, 3]"));
  if (!row.floats_only) op.examples.push_back({call("f32[5]", "f32[5]", "f32[5]"), -4, 4, false});
  if (row.floats_only)
    op.rejects.push_back({call("i32[2]", "i32[2]", "f32[2]"), "needs floats, but %a is i32[2] and %b is i32[2]"});
  op.rejects.push_back({call("f32[2, 3]", "f32[2]", "f32[2, 3]"), "%b is f32[2]"});
  op.rejects.push_back({call("f32[2]", "bool[2]", "f32[2]"), "needs numbers, but %b is bool[2]"});
}

}  // namespace

void define_binary(OpTable& table);
void define_binary(OpTable& table) {
  for (const Row& row : kRows) define_row(table, row);
}

}  // namespace ingot::ir
