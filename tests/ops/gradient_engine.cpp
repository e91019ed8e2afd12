#include "tests/ops/gradient_engine.h"

#include "ir/base/error.h"
#include "ir/graph/op_def.h"

namespace ingot::tests {
namespace {

using ir::Builder;
using ir::DType;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::Shape;
using ir::Type;
using ir::ValueId;

class Engine {
 public:
  Engine(const Graph& from, Graph& to, const GradientOptions& options)
      : from_(from), rewriter_(from, to), options_(options), grads_(from.values().size(), kNone) {}

  Builder& b() { return rewriter_.b(); }
  void copy() {
    for (const Op& op : from_.ops()) rewriter_.copy(op);
    b().set_phase(ir::Phase::backward);
  }
  ValueId now(ValueId old) const { return rewriter_(old); }
  ValueId grad(ValueId old) const { return grads_[old]; }
  bool wants(ValueId old) const { return old != kNone && ir::is_float(from_.type(old).dtype) && options_.wants(old); }
  DType grad_dtype(ValueId old) const { return options_.in_f32 ? DType::f32 : from_.type(old).dtype; }

  void accumulate(ValueId old, ValueId gradient) {
    const ValueId fitting = b().cast(unbroadcast(gradient, from_.type(old).shape, grad_dtype(old)), grad_dtype(old));
    grads_[old] = grads_[old] == kNone ? fitting : b().add(grads_[old], fitting);
  }
  void seed(ValueId old, ValueId gradient) { grads_[old] = gradient; }
  void run();

 private:
  ValueId unbroadcast(ValueId gradient, const Shape& shape, DType dtype) {
    const Shape wide = b().shape(gradient);
    if (wide == shape) return gradient;
    ir::check(ir::broadcast_shapes(shape, wide) == wide,
              "a gradient of shape " + ir::shape_text(wide) + " for " + ir::shape_text(shape));
    const size_t missing = wide.size() - shape.size();
    std::vector<int64_t> axes;
    for (size_t k = 0; k < wide.size(); ++k) {
      if (k < missing || (shape[k - missing] == 1 && wide[k] != 1)) axes.push_back(static_cast<int64_t>(k));
    }
    return b().reshape(b().sum(gradient, axes, false, dtype), shape);
  }

  const Graph& from_;
  ir::Rewriter rewriter_;
  const GradientOptions& options_;
  std::vector<ValueId> grads_;
};

class Context : public ir::GradientContext {
 public:
  Context(Engine& engine, const Op& op) : engine_(engine), op_(op) {}
  Builder& b() override { return engine_.b(); }
  const Op& op() const override { return op_; }
  ValueId operand(int i) const override { return engine_.now(op_.operands[static_cast<size_t>(i)]); }
  ValueId result(int i) const override { return engine_.now(op_.results[static_cast<size_t>(i)]); }
  ValueId grad(int i) const override { return engine_.grad(op_.results[static_cast<size_t>(i)]); }
  bool wants(int i) const override { return has(i) && engine_.wants(op_.operands[static_cast<size_t>(i)]); }
  DType grad_dtype(int i) const override { return engine_.grad_dtype(op_.operands[static_cast<size_t>(i)]); }
  void set(int i, ValueId gradient) override {
    ir::check(ir::is_float(b().type(gradient).dtype), "a gradient that is not float");
    if (wants(i)) engine_.accumulate(op_.operands[static_cast<size_t>(i)], gradient);
  }

 private:
  Engine& engine_;
  const Op& op_;
};

void Engine::run() {
  for (size_t n = from_.ops().size(); n-- > 0;) {
    const Op& op = from_.ops()[n];
    bool reached = false;
    bool wanted = false;
    for (const ValueId result : op.results) reached = reached || grads_[result] != kNone;
    for (const ValueId operand : op.operands) wanted = wanted || wants(operand);
    if (!reached || !wanted || op.def->gradient_is_zero) continue;
    ir::check(static_cast<bool>(op.def->gradient), "no gradient: " + op.def->name);
    Context context(*this, op);
    op.def->gradient(context);
  }
}

}  // namespace

Graph with_gradients(const Graph& graph, const std::function<ValueId(Builder&, ValueId)>& seed, const GradientOptions& options) {
  Graph made(graph.name(), ir::Level::train);
  Engine engine(graph, made, options);
  engine.copy();
  for (const ValueId result : graph.ops().back().results) engine.seed(result, seed(engine.b(), result));
  engine.run();
  for (const Op& op : graph.ops()) {
    if (!std::holds_alternative<ir::SourceLowering>(op.def->lowering) || !engine.wants(op.results[0])) continue;
    const ValueId gradient = engine.grad(op.results[0]);
    const std::string& name = graph.value(op.results[0]).name;
    if (gradient != kNone) made.add_output({"grad." + name, gradient, op.loc});
  }
  return made;
}

}  // namespace ingot::tests
