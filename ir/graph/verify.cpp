#include "ir/graph/verify.h"

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ir/base/error.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {
namespace {

class GraphVerifier {
 public:
  GraphVerifier(const Graph& graph, const Module* module) : graph_(graph), module_(module) {
    if (!module_) return;
    for (const Variable& variable : module_->variables) variables_.try_emplace(variable.name, &variable);
  }

  void run() {
    for (OpId id = 0; id < graph_.ops().size(); ++id) op(id);
    outputs();
    updates();
  }

 private:
  [[noreturn]] void fail(const Op& op, const std::string& what) const {
    const std::string value = op.results.empty() ? "" : " %" + graph_.value(op.results[0]).name;
    throw InternalError("verify @" + graph_.name() + ":" + value + " = " + std::string(op.name()) + " (" + op.loc.text() +
                        "): " + what);
  }
  [[noreturn]] void fail(const std::string& what) const { throw InternalError("verify @" + graph_.name() + ": " + what); }

  void op(OpId id) {
    const Op& op = graph_.op(id);
    if (!op.def) fail("an op without a definition");
    if (!op.def->levels.allows(graph_.level())) fail(op, "not legal at level " + std::string(level_name(graph_.level())));
    operands(op, id);
    results(op, id);
    attributes(op);
    if (std::holds_alternative<SourceLowering>(op.def->lowering)) {
      source(op);
    } else if (op.region) {
      region(op);
    } else {
      inference(op);
    }
  }

  void operands(const Op& op, OpId id) {
    const OpDef& def = *op.def;
    if (def.variadic() ? op.operands.size() < def.operands.size() : op.operands.size() != def.operands.size()) {
      if (!std::holds_alternative<RegionLowering>(def.lowering)) fail(op, "wrong number of operands");
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId operand = op.operands[i];
      const bool optional = i < def.operands.size() && def.operands[i].optional;
      if (operand == kNone) {
        if (!optional) fail(op, "operand " + std::to_string(i) + " is absent but not optional");
      } else if (operand >= graph_.values().size() || graph_.value(operand).op >= id) {
        fail(op, "operand " + std::to_string(i) + " is used before it is made");
      }
    }
  }

  void results(const Op& op, OpId id) {
    if (!op.region && op.results.size() != op.def->results.size()) fail(op, "wrong number of results");
    for (size_t i = 0; i < op.results.size(); ++i) {
      const Value& value = graph_.value(op.results[i]);
      if (value.op != id || value.result != i) fail(op, "a result points at another op");
      if (graph_.find(value.name) != op.results[i]) fail(op, "the name %" + value.name + " is not unique");
    }
  }

  void attributes(const Op& op) {
    for (const auto& [name, value] : op.attrs) {
      const AttrDef* def = op.def->find_attr(name);
      if (!def || def->name != name) fail(op, "unknown attribute " + name);
      if (def->kind != attr_kind(value)) fail(op, "attribute " + name + " is of another kind");
    }
    for (const AttrDef& def : op.def->attrs) {
      if (!def.unset_ok && !op.attrs.has(def.name)) fail(op, "attribute " + def.name + " is missing");
    }
  }

  const Variable* variable_named(const std::string& name) const {
    const auto at = variables_.find(name);
    return at == variables_.end() ? nullptr : at->second;
  }

  void source(const Op& op) {
    if (!module_ || op.name() != "variable") return;
    const Variable* variable = variable_named(op.attrs.text("name"));
    if (!variable) fail(op, "reads a variable the module does not declare");
    if (variable->type != graph_.type(op.results[0]))
      fail(op, "is " + graph_.type(op.results[0]).text() + ", declared " + variable->type.text());
    if (op.attrs.text("role") != variable_role_name(variable->role)) fail(op, "reads the variable in another role than declared");
  }

  void inference(const Op& op) {
    if (!op.def->infer) fail(op, "the op has no inference");
    InferContext context(graph_, *op.def, op.operands, op.attrs, op.loc);
    op.def->infer(context);
    const std::vector<Type> types = context.take_results();
    if (types.size() != op.results.size()) fail(op, "inference gives another number of results");
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] != graph_.type(op.results[i])) {
        fail(op, "result " + std::to_string(i) + " is " + graph_.type(op.results[i]).text() + ", inferred " + types[i].text());
      }
    }
  }

  void region(const Op& op) {
    const Graph& body = *op.region;
    std::vector<ValueId> inputs;
    for (const Op& inner : body.ops()) {
      if (inner.name() == "variable" || inner.region) fail(op, "a region holds neither variables nor regions");
      if (inner.name() == "input") inputs.push_back(inner.results[0]);
    }
    if (!body.updates().empty()) fail(op, "a region updates nothing");
    if (inputs.size() != op.operands.size()) fail(op, "the region has another number of inputs than operands");
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (body.type(inputs[i]) != graph_.type(op.operands[i]))
        fail(op, "region input " + std::to_string(i) + " has another type");
    }
    if (body.outputs().size() != op.results.size()) fail(op, "the region has another number of outputs than results");
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (body.type(body.outputs()[i].value) != graph_.type(op.results[i]))
        fail(op, "region output " + std::to_string(i) + " has another type");
    }
    GraphVerifier(body, nullptr).run();
  }

  void outputs() {
    std::set<std::string> seen;
    for (const Output& output : graph_.outputs()) {
      if (output.value >= graph_.values().size()) fail("output " + output.name + " names no value");
      if (!seen.insert(output.name).second) fail("output " + output.name + " is declared twice");
    }
  }

  void updates() {
    std::set<std::string> seen;
    for (const Update& update : graph_.updates()) {
      if (update.value >= graph_.values().size()) fail("update of " + update.variable + " names no value");
      if (!seen.insert(update.variable).second) fail(update.variable + " is updated twice");
      if (!module_) continue;
      const Variable* variable = variable_named(update.variable);
      if (!variable) fail("update of " + update.variable + ", which the module does not declare");
      if (variable->type != graph_.type(update.value)) {
        fail("update of " + update.variable + " (" + variable->type.text() + ") with " + graph_.type(update.value).text());
      }
    }
  }

  const Graph& graph_;
  const Module* module_;
  std::unordered_map<std::string_view, const Variable*> variables_;
};

}  // namespace

void verify(const Graph& graph, const Module* module) { GraphVerifier(graph, module).run(); }

void verify(const Module& module) {
  std::set<std::string> variables, graphs;
  for (const Variable& v : module.variables)
    check(variables.insert(v.name).second, "verify: variable " + v.name + " is declared twice");
  for (const Graph& g : module.graphs) {
    check(graphs.insert(g.name()).second, "verify: graph @" + g.name() + " is defined twice");
    verify(g, &module);
  }
}

}  // namespace ingot::ir
