#include "ir/graph/interpret.h"

#include "ir/base/error.h"

namespace ingot::ir {
namespace {

using Named = std::map<std::string, Tensor>;

const Tensor& lookup(const Named& from, const std::string& name, const Type& type, const char* what, Loc loc) {
  const auto at = from.find(name);
  if (at == from.end()) throw UserError(loc, std::string(what) + " '" + name + "' was not given");
  if (at->second.type.shape != type.shape) {
    throw UserError(loc, std::string(what) + " '" + name + "' must be " + type.text() + ", but was given " + at->second.type.text());
  }
  return at->second;
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, const InterpretOptions& options, bool region = false)
      : graph_(graph), options_(options), region_(region), values_(graph.values().size()), uses_(graph.values().size(), 0) {}

  void set(ValueId id, Tensor tensor) { values_[id] = std::move(tensor); }
  const Tensor& get(ValueId id) const { return values_[id]; }
  /// Values are freed after their last use unless kept, so that whole models fit in memory.
  void keep_all() { keep_ = true; }

  void run(const Named& inputs, const Named& variables) {
    count_uses();
    find_stored();
    for (const Op& op : graph_.ops()) {
      step(op, inputs, variables);
      release(op);
    }
  }

  void round(Tensor& tensor, bool stored) const {
    const DType dtype = tensor.type.dtype;
    const bool wanted = !is_float(dtype) || (options_.round && stored && (dtype != DType::f32 || options_.round_f32));
    if (!wanted) return;
    for (double& x : tensor.data) x = round_to(dtype, x);
  }

 private:
  void count_uses() {
    for (const Op& op : graph_.ops()) {
      for (ValueId operand : op.operands) {
        if (operand != kNone) ++uses_[operand];
      }
    }
    for (const Output& output : graph_.outputs()) ++uses_[output.value];
    for (const Update& update : graph_.updates()) ++uses_[update.value];
  }

  // What an output names, directly or through views.
  void find_stored() {
    stored_.assign(graph_.values().size(), false);
    for (const Output& output : graph_.outputs()) {
      ValueId value = output.value;
      while (std::holds_alternative<ViewLowering>(graph_.maker(value).def->lowering)) value = graph_.maker(value).operands[0];
      stored_[value] = true;
    }
  }

  void release(const Op& op) {
    if (keep_) return;
    for (ValueId operand : op.operands) {
      if (operand != kNone && --uses_[operand] == 0) values_[operand] = Tensor();
    }
    for (ValueId result : op.results) {
      if (uses_[result] == 0) values_[result] = Tensor();
    }
  }

  void step(const Op& op, const Named& inputs, const Named& variables) {
    if (op.name() == "input" || op.name() == "variable") {
      const Value& value = graph_.value(op.results[0]);
      const bool input = op.name() == "input";
      Tensor tensor = lookup(input ? inputs : variables, input ? value.name : op.attrs.text("name"), value.type, input ? "input" : "variable", op.loc);
      tensor.type = value.type;
      round(tensor, !region_);
      set(op.results[0], std::move(tensor));
      return;
    }
    std::vector<const Tensor*> operands;
    for (ValueId operand : op.operands) operands.push_back(operand == kNone ? nullptr : &values_[operand]);
    std::vector<Tensor> results = op.region ? run_region(op, operands) : interpret_op(graph_, op, operands, options_.round);
    for (size_t i = 0; i < results.size(); ++i) {
      round(results[i], !region_ || stored_[op.results[i]]);
      set(op.results[i], std::move(results[i]));
    }
  }

  // Inside a region only its outputs are stored: they are rounded where they are made, so that readers inside and outside the region
  // see the same. Nothing else is, but what a `cast` rounds (its reference does, when rounding is on).
  std::vector<Tensor> run_region(const Op& op, const std::vector<const Tensor*>& operands) {
    const Graph& body = *op.region;
    Interpreter inner(body, options_, true);
    Named inputs;
    size_t next = 0;
    for (const Op& inner_op : body.ops()) {
      if (inner_op.name() == "input") inputs[body.value(inner_op.results[0]).name] = *operands[next++];
    }
    inner.run(inputs, {});
    std::vector<Tensor> results;
    for (const Output& output : body.outputs()) results.push_back(inner.get(output.value));
    return results;
  }

  const Graph& graph_;
  InterpretOptions options_;
  bool region_;
  std::vector<bool> stored_;
  std::vector<Tensor> values_;
  std::vector<int> uses_;
  bool keep_ = false;
};

}  // namespace

std::vector<Tensor> interpret_op(const Graph& graph, const Op& op, const std::vector<const Tensor*>& operands, bool round) {
  check(static_cast<bool>(op.def->reference), "op '" + op.def->name + "' has no reference");
  ReferenceContext context{op, op.attrs, operands, {}, round};
  for (ValueId result : op.results) context.out.emplace_back(graph.type(result));
  op.def->reference(context);
  return std::move(context.out);
}

InterpretResult interpret(const Graph& graph, const Named& inputs, const Named& variables, InterpretOptions options, bool keep_all) {
  Interpreter interpreter(graph, options);
  if (keep_all) interpreter.keep_all();
  interpreter.run(inputs, variables);
  InterpretResult result;
  for (const Output& output : graph.outputs()) result.outputs[output.name] = interpreter.get(output.value);
  for (const Update& update : graph.updates()) result.updates[update.variable] = interpreter.get(update.value);
  if (keep_all) {
    for (ValueId id = 0; id < graph.values().size(); ++id) result.values[graph.value(id).name] = interpreter.get(id);
  }
  return result;
}

}  // namespace ingot::ir
