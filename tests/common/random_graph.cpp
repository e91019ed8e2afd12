#include "tests/common/random_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "ir/graph/builder.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "tests/common/random_parts.h"

namespace ingot::tests {

using ir::Attrs, ir::Builder, ir::DType, ir::Graph, ir::InputRange, ir::kNone, ir::Loc, ir::Module, ir::Op, ir::OpDef, ir::Phase;
using ir::Tensor, ir::Type, ir::Value, ir::ValueId, ir::Variable, ir::VariableRole;

namespace {

/// An example of an op's definition, parsed once.
struct ParsedExample {
  Graph graph;
  std::vector<InputRange> ranges;
};

const std::vector<ParsedExample>& examples_of(const OpDef& def) {
  static std::map<const OpDef*, std::vector<ParsedExample>> cache;
  auto [at, fresh] = cache.try_emplace(&def);
  if (!fresh) return at->second;
  for (const ir::Example& example : def.examples) {
    ParsedExample parsed;
    parsed.graph = ir::parse_graph(example.text, def.name, &parsed.ranges);
    at->second.push_back(std::move(parsed));
  }
  return at->second;
}

class Generator {
 public:
  Generator(Graph& graph, Module& module, const RandomGraphOptions& options, Random& random)
      : graph_(graph), module_(module), options_(options), random_(random), parts_(random, options.odd) {
    for (const OpDef* def : ir::op_table().all()) {
      const bool legal = def->levels.allows(graph.level()) && !std::holds_alternative<ir::SourceLowering>(def->lowering);
      if (!legal || (options.accept && !options.accept(*def))) continue;
      (std::holds_alternative<ir::RegionLowering>(def->lowering) ? regions_ : ops_).push_back(def);
    }
    for (int i = 0; i < 3; ++i) dims_.push_back(1 + random_.below(4));
  }

  /// Inputs and reads of variables to begin with.
  void sources(bool inputs_only) {
    const int64_t inputs = 1 + random_.below(3);
    for (int64_t i = 0; i < inputs; ++i) input(random_type());
    if (inputs_only || !options_.variables) return;
    for (const Variable& variable : module_.variables) {
      if (random_.chance(0.5)) read(variable);
    }
  }

  void ops(int count) {
    for (int made = 0, tries = 0; made < count && tries < 40 * count && !ops_.empty(); ++tries) {
      place_builder();
      const bool region = options_.regions && !regions_.empty() && random_.chance(0.15);
      made += region ? add_region() : random_.chance(0.2) ? add_example() : add_random();
    }
  }

  /// Values others may want: the last ones, and some from anywhere.
  void outputs() {
    const auto count = static_cast<int64_t>(graph_.values().size());
    for (int64_t i = 0; i < 1 + random_.below(4); ++i) {
      const int64_t id = random_.chance(0.6) ? count - 1 - random_.below(std::min<int64_t>(3, count)) : random_.below(count);
      std::string name = options_.odd ? parts_.name() : "out" + std::to_string(i);
      if (name.empty() || graph_.find_output(name)) continue;
      graph_.add_output({name, static_cast<ValueId>(id), parts_.loc()});
    }
    if (!options_.variables) return;
    for (const Variable& variable : module_.variables) {
      if (variable.role == VariableRole::hyper || random_.chance(0.6)) continue;
      std::vector<ValueId> fitting;
      for (ValueId id = 0; id < graph_.values().size(); ++id) {
        if (graph_.type(id) == variable.type) fitting.push_back(id);
      }
      if (!fitting.empty()) graph_.add_update({variable.name, random_.pick(fitting), parts_.loc()});
    }
  }

 private:
  struct Choice {
    ValueId value = kNone;      ///< an existing value, or
    std::optional<Type> fresh;  ///< a new input of this type; neither = absent
    const InputRange* range = nullptr;
  };

  void place_builder() {
    loc_ = parts_.loc();
    phase_ = options_.odd ? parts_.phase() : Phase::forward;
  }

  std::string fresh_name() {
    return graph_.unique_name(options_.odd ? parts_.name() : "v" + std::to_string(graph_.values().size()));
  }

  Type random_type() {
    Type type;
    const int64_t kind = random_.below(20);
    type.dtype = kind < 13   ? DType::f32
                 : kind < 15 ? DType::bf16
                 : kind < 16 ? DType::f16
                 : kind < 18 ? DType::i32
                 : kind < 19 ? DType::i64
                             : DType::boolean;
    // A suffix of few shared sizes, so that operands often broadcast.
    const int64_t rank = random_.below(4);
    for (int64_t i = 3 - rank; i < 3; ++i) type.shape.push_back(random_.chance(0.15) ? 1 : dims_[static_cast<size_t>(i)]);
    if (random_.chance(0.1)) type.shape.insert(type.shape.begin(), 2);
    return type;
  }

  ValueId input(Type type, const InputRange* range = nullptr) {
    std::string name = fresh_name();
    if (range) {
      InputRange renamed = *range;
      renamed.input = name;
      module_.ranges.push_back(std::move(renamed));
    }
    Op op;
    op.def = &ir::op_def("input");
    op.loc = loc_;
    op.phase = phase_;
    return graph_.op(graph_.append(std::move(op), {std::move(name)}, {std::move(type)})).results[0];
  }

  void read(const Variable& variable) {
    if (graph_.find(variable.name) != kNone) return;
    const ValueId id = Builder(graph_).variable(variable);
    if (!options_.odd || random_.chance(0.7)) return;
    Op again = graph_.maker(id);
    graph_.append(std::move(again), {fresh_name()}, {variable.type});
  }

  ValueId any_value() {
    const auto count = static_cast<int64_t>(graph_.values().size());
    return static_cast<ValueId>(random_.chance(0.5) ? count - 1 - random_.below(std::min<int64_t>(4, count))
                                                    : random_.below(count));
  }

  std::vector<Choice> choose_operands(const OpDef& def) {
    std::vector<Choice> choices;
    const bool all_alike = random_.chance(0.3);
    size_t count = def.operands.size();
    if (def.variadic()) count += static_cast<size_t>(random_.below(3));
    for (size_t i = 0; i < count; ++i) {
      const ir::OperandDef& operand = def.operands[std::min(i, def.operands.size() - 1)];
      Choice choice;
      if (operand.optional && random_.chance(operand.port ? 0.7 : 0.4)) {
        choices.push_back(choice);
        continue;
      }
      if (i == 0 || choices[0].value == kNone || random_.chance(0.35)) {
        choice.value = any_value();
      } else if (all_alike) {
        choice.value = choices[0].value;
      } else {
        choice.fresh = parts_.related(graph_.type(choices[0].value));
      }
      choices.push_back(std::move(choice));
    }
    return choices;
  }

  /// Would inference take it? Tried on a graph of inputs alone, so that a failure leaves nothing behind.
  bool fits(const OpDef& def, const std::vector<Choice>& choices, const Attrs& attrs) {
    Graph scratch("scratch", graph_.level());
    Builder b(scratch);
    std::vector<ValueId> operands;
    for (const Choice& choice : choices) {
      if (choice.value == kNone && !choice.fresh) {
        operands.push_back(kNone);
      } else {
        operands.push_back(
            b.input("x" + std::to_string(operands.size()), choice.fresh ? *choice.fresh : graph_.type(choice.value)));
      }
    }
    try {
      const Op& op = b.op(def, std::move(operands), attrs);
      return std::all_of(op.results.begin(), op.results.end(),
                         [&](ValueId id) { return scratch.type(id).elements() <= options_.most_elements; });
    } catch (const ir::UserError&) {
      return false;
    }
  }

  void append(const OpDef& def, const std::vector<Choice>& choices, Attrs attrs) {
    std::vector<ValueId> operands;
    for (const Choice& choice : choices) operands.push_back(choice.fresh ? input(*choice.fresh, choice.range) : choice.value);
    std::vector<std::string> names;
    for (size_t i = 0; i < def.results.size(); ++i) names.push_back(fresh_name());
    Builder b(graph_);
    b.set_loc(loc_);
    b.set_phase(phase_);
    b.op(def, std::move(operands), std::move(attrs), std::move(names));
  }

  bool add_random() {
    const OpDef& def = *random_.pick(ops_);
    const std::vector<Choice> choices = choose_operands(def);
    const Type* about = !choices.empty() && choices[0].value != kNone ? &graph_.type(choices[0].value) : nullptr;
    for (int i = 0; i < 4; ++i) {
      Attrs attrs = parts_.attrs(def, about);
      if (!fits(def, choices, attrs)) continue;
      append(def, choices, std::move(attrs));
      return true;
    }
    return false;
  }

  /// The op of an example on values that are here already, where types agree and no range is asked for.
  bool add_example() {
    const OpDef& def = *random_.pick(ops_);
    const std::vector<ParsedExample>& examples = examples_of(def);
    if (examples.empty()) return false;
    const ParsedExample& example = random_.pick(examples);
    for (const Op& op : example.graph.ops()) {
      if (op.def != &def) continue;
      std::vector<Choice> choices;
      for (ValueId operand : op.operands) choices.push_back(operand == kNone ? Choice{} : stand_in(example, operand));
      if (!fits(def, choices, op.attrs)) return false;
      append(def, choices, op.attrs);
      return true;
    }
    return false;
  }

  Choice stand_in(const ParsedExample& example, ValueId operand) {
    const Value& wanted = example.graph.value(operand);
    for (const InputRange& range : example.ranges) {
      if (range.input == wanted.name) return {kNone, wanted.type, &range};
    }
    if (random_.chance(0.7)) {
      for (ValueId id = 0; id < graph_.values().size(); ++id) {
        if (graph_.type(id) == wanted.type && random_.chance(0.5)) return {id, std::nullopt, nullptr};
      }
    }
    return {kNone, wanted.type, nullptr};
  }

  /// A region over some values, with a few ops inside.
  bool add_region() {
    const OpDef& def = *random_.pick(regions_);
    auto body = std::make_shared<Graph>(options_.odd && random_.chance(0.3) ? parts_.name() : "main", graph_.level());
    Op op;
    op.def = &def;
    op.attrs = parts_.attrs(def, nullptr);
    op.loc = loc_;
    op.phase = phase_;
    RandomGraphOptions inner = options_;
    inner.regions = inner.variables = false;
    Module nothing;
    Generator generator(*body, nothing, inner, random_);
    for (int64_t i = 0; i < 1 + random_.below(3); ++i) {
      op.operands.push_back(any_value());
      generator.place_builder();
      generator.input(graph_.type(op.operands.back()));
    }
    generator.ops_in_region(static_cast<int>(1 + random_.below(4)));
    std::vector<std::string> names;
    std::vector<Type> types;
    for (int64_t i = 0; i < 1 + random_.below(3); ++i) {
      const ValueId id = generator.any_value();
      body->add_output({std::to_string(i), id, parts_.loc()});
      std::string name = fresh_name();
      if (std::find(names.begin(), names.end(), name) != names.end()) name += "." + std::to_string(i) + "_";
      names.push_back(graph_.unique_name(name));
      types.push_back(body->type(id));
    }
    op.region = std::move(body);
    graph_.append(std::move(op), std::move(names), std::move(types));
    return true;
  }

  /// A region's inputs are its operands: nothing may be added to them.
  void ops_in_region(int count) {
    for (int made = 0, tries = 0; made < count && tries < 40 * count && !ops_.empty(); ++tries) {
      place_builder();
      const OpDef& def = *random_.pick(ops_);
      std::vector<Choice> choices = choose_operands(def);
      for (Choice& choice : choices) {
        if (choice.fresh) choice = {any_value(), std::nullopt, nullptr};
      }
      const Type* about = !choices.empty() && choices[0].value != kNone ? &graph_.type(choices[0].value) : nullptr;
      Attrs attrs = parts_.attrs(def, about);
      if (!fits(def, choices, attrs)) continue;
      append(def, choices, std::move(attrs));
      ++made;
    }
  }

  Graph& graph_;
  Module& module_;
  const RandomGraphOptions& options_;
  Random& random_;
  RandomParts parts_;
  std::vector<const OpDef*> ops_, regions_;
  std::vector<int64_t> dims_;
  Loc loc_;
  Phase phase_ = Phase::forward;
};

std::map<std::string, Tensor> random_tensors(const Graph& graph, std::string_view op_name, Random& random, double lo, double hi,
                                             const std::vector<InputRange>& ranges) {
  std::map<std::string, Tensor> tensors;
  for (const Op& op : graph.ops()) {
    if (op.name() != op_name) continue;
    const Value& value = graph.value(op.results[0]);
    const std::string name = op_name == "variable" ? op.attrs.text("name") : value.name;
    if (tensors.contains(name)) continue;
    const auto range = std::find_if(ranges.begin(), ranges.end(), [&](const InputRange& r) { return r.input == name; });
    Tensor tensor(value.type);
    for (double& x : tensor.data) {
      if (ir::is_float(value.type.dtype)) {
        x = random.real(lo, hi);
      } else if (range == ranges.end()) {
        x = static_cast<double>(random.below(2));
      } else {
        const auto also = static_cast<int64_t>(range->also.size());
        const int64_t pick = random.below(range->hi - range->lo + 1 + also);
        x = static_cast<double>(pick < also ? range->also[static_cast<size_t>(pick)] : range->lo + pick - also);
      }
    }
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

}  // namespace

Module random_module(const RandomGraphOptions& options) {
  Random random(options.seed);
  RandomParts parts(random, options.odd);
  Module module = parts.declarations(options.variables);
  const int64_t graphs = options.odd ? 1 + random.below(2) : 1;
  for (int64_t i = 0; i < graphs; ++i) {
    std::string name = options.odd ? parts.name() : "main";
    if (module.find_graph(name)) continue;
    Graph graph(std::move(name), options.level);
    Generator generator(graph, module, options, random);
    generator.sources(false);
    generator.ops(options.ops);
    generator.outputs();
    module.graphs.push_back(std::move(graph));
  }
  ir::verify(module);
  return module;
}

Graph random_graph(const RandomGraphOptions& options) { return std::move(random_module(options).graphs.at(0)); }

std::map<std::string, Tensor> random_inputs(const Graph& graph, Random& random, double lo, double hi,
                                            const std::vector<InputRange>& ranges) {
  return random_tensors(graph, "input", random, lo, hi, ranges);
}

std::map<std::string, Tensor> random_variables(const Graph& graph, Random& random, double lo, double hi) {
  return random_tensors(graph, "variable", random, lo, hi, {});
}

}  // namespace ingot::tests
