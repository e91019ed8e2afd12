#include "ir/ops/support.h"

namespace ingot::ir {
namespace {

enum Operand { kParam, kGrad, kM, kV, kLr, kDecay, kBeta1, kBeta2, kEps, kScale, kCorrection1, kCorrection2, kOk };

void infer(InferContext& c) {
  for (int i = kParam; i <= kV; ++i) {
    c.need_float(i);
    c.need_same_shape(kParam, i);
  }
  for (int i = kM; i <= kV; ++i) {
    if (c.type(i).dtype != DType::f32) c.fail("moments are f32, but " + c.show(i));
  }
  for (int i = kLr; i <= kDecay; ++i) {
    const Shape& whole = c.type(kParam).shape;
    if (c.type(i).dtype != DType::f32 || broadcast_shapes(c.type(i).shape, whole) != whole) {
      c.fail("takes f32 that broadcasts to the parameter as lr and decay, but " + c.show(kParam) + " and " + c.show(i));
    }
  }
  for (int i = kBeta1; i <= kOk; ++i) {
    const Type wanted{i == kOk ? DType::boolean : DType::f32, {}};
    if (c.type(i) != wanted) c.fail("takes " + wanted.text() + " scalars after lr and decay, but " + c.show(i));
  }
  for (const int i : {kParam, kM, kV}) c.result(c.type(i));
}

void step(const double* in, double* out) {
  const double g = in[kGrad] * in[kScale];
  const double m = in[kBeta1] * in[kM] + (1 - in[kBeta1]) * g;
  const double v = in[kBeta2] * in[kV] + (1 - in[kBeta2]) * g * g;
  const double direction = (m / in[kCorrection1]) / (std::sqrt(v / in[kCorrection2]) + in[kEps]);
  const bool ok = in[kOk] != 0;
  out[0] = ok ? in[kParam] - in[kLr] * (in[kDecay] * in[kParam] + direction) : in[kParam];
  out[1] = ok ? m : in[kM];
  out[2] = ok ? v : in[kV];
}

std::vector<std::string> bodies() {
  const std::string m = "(a6 * a2 + (1.0f - a6) * (a1 * a9))";
  const std::string v = "(a7 * a3 + (1.0f - a7) * ((a1 * a9) * (a1 * a9)))";
  const std::string direction = "(" + m + " / a10) / (ig_sqrt(" + v + " / a11) + a8)";
  return {"a12 ? a0 - a4 * (a5 * a0 + " + direction + ") : a0", "a12 ? " + m + " : a2", "a12 ? " + v + " : a3"};
}

std::string call(const std::string& shape, const std::string& param, const std::string& grad, const std::string& moment,
                 const std::string& rate = "[]") {
  std::string text = "input %p: " + param + shape + "\ninput %g: " + grad + shape + "\ninput %m: " + moment + shape +
                     "\ninput %v: " + moment + shape;
  const char* scalars[] = {"lr", "decay", "beta1", "beta2", "eps", "scale", "c1", "c2"};
  std::string list;
  for (const std::string name : scalars) {
    text += "\ninput %" + name + ": f32" + (name == "lr" || name == "decay" ? rate : "[]");
    list += ", %" + name;
  }
  return text + "\ninput %ok: bool[]\n%p1, %m1, %v1 = adamw(%p, %g, %m, %v" + list + ", %ok): " + param + shape + ", f32" +
         shape + ", f32" + shape;
}

}  // namespace

void define_adamw(OpTable& table);
void define_adamw(OpTable& table) {
  OpDef& op = table.add("adamw");
  op.summary =
      "One update of Adam with decoupled weight decay (Loshchilov and Hutter, 2019). g = grad scale; m' = beta1 m + (1 - beta1) "
      "g; "
      "v' = beta2 v + (1 - beta2) g^2; param' = param - lr (decay param + (m' / correction1) / (sqrt(v' / correction2) + eps)). "
      "Where ok is false nothing changes.";
  op.operand("param", "the parameter");
  op.operand("grad", "its gradient, before scale");
  op.operand("m", "first moment, f32");
  op.operand("v", "second moment, f32");
  op.operand("lr", "learning rate: a number, or one per row of packed parameters");
  op.operand("decay", "weight decay, likewise");
  op.operand("beta1", "how much of m stays");
  op.operand("beta2", "how much of v stays");
  op.operand("eps", "added to the root");
  op.operand("scale", "factor of the gradient: clipping over the count");
  op.operand("correction1", "1 - beta1^t");
  op.operand("correction2", "1 - beta2^t");
  op.operand("ok", "false: leave everything as it is");
  op.result("param_out", "param'");
  op.result("m_out", "m'");
  op.result("v_out", "v'");
  op.levels = kTrainUp;
  op.infer = infer;
  op.reference = [](ReferenceContext& c) { elementwise_reference(c, step); };
  op.lowering = ScalarLowering{bodies()};
  op.aliases = {{0, kParam}, {1, kM}, {2, kV}};
  op.keeps_zeros = true;
  op.flops = [](const Graph& graph, const Op& made) {
    return 18.0 * static_cast<double>(graph.type(made.operands[0]).elements());
  };
  op.examples = {{call("[3, 4]", "f32", "f32", "f32"), 0.1, 0.9, false},
                 {call("[5]", "f32", "bf16", "f32"), 0.1, 0.9, false},
                 {call("[3, 4]", "f32", "f32", "f32", "[3, 1]"), 0.1, 0.9, false},
                 {call("[]", "f32", "f32", "f32"), 0.1, 0.9, false}};
  op.rejects = {{call("[3]", "f32", "f32", "bf16"), "moments are f32, but %m is bf16[3]"},
                {call("[3]", "f32", "f32", "f32", "[2]"),
                 "f32 that broadcasts to the parameter as lr and decay, but %p is f32[3] and %lr is f32[2]"},
                {call("[3]", "f32", "i32", "f32"), "grad must hold floats, but %g is i32[3]"}};
}

}  // namespace ingot::ir
