// One loop over every op of the table: what is written in its definition is what is tested.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/graph/builder.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "passes/pass.h"
#include "tests/common/random_graph.h"
#include "tests/ops/gradient_engine.h"

namespace ingot::tests {
namespace {

using ir::Builder;
using ir::DType;
using ir::Example;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpDef;
using ir::Tensor;
using ir::ValueId;
using Named = std::map<std::string, Tensor>;

/// An example, parsed, with an output for every result of its last op (the op under test), and random values.
struct Case {
  Graph graph;
  Named inputs, variables;
  std::string where;

  Case(const OpDef& def, size_t n) {
    const Example& example = def.examples[n];
    where = fmt::format("{} example {}:\n{}", def.name, n, example.text);
    std::vector<ir::InputRange> ranges;
    graph = ir::parse_graph(example.text, def.name, &ranges);
    if (graph.outputs().empty()) {
      for (const ValueId result : under_test().results) graph.add_output({graph.value(result).name, result, {}});
    }
    Random random(n);
    inputs = random_inputs(graph, random, example.lo, example.hi, ranges);
    variables = random_variables(graph, random, example.lo, example.hi);
  }
  const Op& under_test() const { return graph.ops().back(); }
  Named run() const { return ir::interpret(graph, inputs, variables).outputs; }
};

double difference(const Tensor& a, const Tensor& b) {
  if (a.data.size() != b.data.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.data.size(); ++i) {
    if (a.data[i] == b.data[i] || (std::isnan(a.data[i]) && std::isnan(b.data[i]))) continue;
    const double scale = std::max({1.0, std::fabs(a.data[i]), std::fabs(b.data[i])});
    const double error = std::fabs(a.data[i] - b.data[i]) / scale;
    worst = error <= worst ? worst : error;  // keeps a NaN
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
  }
  return worst;
}

class EveryOp : public testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& def() const { return *GetParam(); }
  bool is_source() const { return std::holds_alternative<ir::SourceLowering>(def().lowering); }
  bool is_region() const { return std::holds_alternative<ir::RegionLowering>(def().lowering); }
};

// ---------------------------------------------------------------- the definition

TEST_P(EveryOp, IsDocumentedAndComplete) {
  EXPECT_FALSE(def().summary.empty());
  EXPECT_EQ(def().summary.back(), def().summary.empty() ? ' ' : def().summary.back() == '?' ? '?' : '.') << def().summary;
  std::set<std::string> names;
  for (const auto& operand : def().operands) {
    EXPECT_FALSE(operand.doc.empty()) << operand.name;
    EXPECT_TRUE(names.insert(operand.name).second) << operand.name << " stands twice";
  }
  for (const auto& attr : def().attrs) {
    EXPECT_FALSE(attr.doc.empty()) << attr.name;
    EXPECT_TRUE(names.insert(attr.name).second) << attr.name << " stands twice";
  }
  for (const auto& result : def().results) EXPECT_FALSE(result.doc.empty()) << result.name;
  EXPECT_FALSE(def().examples.empty());
  EXPECT_FALSE(std::holds_alternative<std::monostate>(def().lowering));
  if (is_source()) return;
  EXPECT_FALSE(def().rejects.empty());
  if (is_region()) return;
  EXPECT_FALSE(def().results.empty());
  EXPECT_TRUE(def().infer);
  EXPECT_TRUE(def().reference);
  EXPECT_FALSE(def().gradient && def().gradient_is_zero);
}

TEST_P(EveryOp, NamesItsPorts) {
  for (const auto& port : def().carry) {
    ASSERT_GE(def().operand_index(port.operand), 0) << port.operand;
    ASSERT_GE(def().result_index(port.result), 0) << port.result;
    EXPECT_TRUE(def().operands[static_cast<size_t>(def().operand_index(port.operand))].port);
    EXPECT_TRUE(def().results[static_cast<size_t>(def().result_index(port.result))].hidden);
  }
  EXPECT_TRUE(def().starts.empty() || def().operand_index(def().starts) >= 0);
  for (const auto& alias : def().aliases) {
    EXPECT_LT(alias.operand, static_cast<int>(def().operands.size()));
    EXPECT_LT(alias.result, static_cast<int>(def().results.size()));
  }
  if (!def().binary_form.empty()) {
    const OpDef* other = ir::op_table().find(def().binary_form);
    ASSERT_TRUE(other) << def().binary_form;
    EXPECT_EQ(other->operands.size(), 2u);
  }
}

TEST_P(EveryOp, IsLegalWhereItsLoweringSays) {
  const bool composite = std::holds_alternative<ir::DecomposeLowering>(def().lowering);
  EXPECT_EQ(def().levels.core, !composite) << "core holds exactly what has a primitive lowering";
  EXPECT_TRUE(def().levels.train || is_region());
}

/// The words of a body ("a0", "p.eps", "ig_exp", "1.0f").
std::vector<std::string> words(const std::string& body) {
  std::vector<std::string> list(1);
  for (const char c : body) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.') {
      list.back() += c;
    } else if (!list.back().empty()) {
      list.emplace_back();
    }
  }
  return list;
}

TEST_P(EveryOp, ScalarBodiesNameTheirOperands) {
  const auto* scalar = std::get_if<ir::ScalarLowering>(&def().lowering);
  if (!scalar) return;
  ASSERT_EQ(scalar->bodies.size(), def().results.size());
  for (const std::string& body : scalar->bodies) {
    for (const std::string& word : words(body)) {
      if (word.substr(0, 1) == "a") {
        EXPECT_TRUE(word.find_first_not_of("0123456789", 1) == std::string::npos &&
                    std::stoul(word.substr(1)) < def().operands.size())
            << word << " in " << body;
      }
      if (word.substr(0, 2) == "p.") {
        EXPECT_TRUE(def().find_attr(word.substr(2))) << word << " in " << body;
      }
    }
  }
}

// ---------------------------------------------------------------- examples and rejects

/// The graph with its last op built from simpler ones; outputs are the used results.
Graph decomposed(const Graph& graph, const std::vector<bool>& used) {
  Graph made(graph.name(), ir::Level::train);
  ir::Rewriter rewriter(graph, made);
  const Op& op = graph.ops().back();
  for (const Op& before : graph.ops()) {
    if (&before != &op) rewriter.copy(before);
  }
  rewriter.at(op);
  ir::DecomposeContext context{rewriter.b(), op, {}, used, {}};
  for (const ValueId operand : op.operands) context.operands.push_back(rewriter(operand));
  for (const ValueId result : op.results) context.result_types.push_back(graph.type(result));
  const std::vector<ValueId> results = lowering_as<ir::DecomposeLowering>(op)->build(context);
  EXPECT_EQ(results.size(), op.results.size());
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    ir::check(results.at(i) != kNone, "a used result is absent");
    EXPECT_EQ(made.type(results[i]), graph.type(op.results[i])) << op.def->results[i].name;
    made.add_output({graph.value(op.results[i]).name, results[i], {}});
  }
  return made;
}

TEST_P(EveryOp, ExamplesRunAndAgreeWithTheirDecomposition) {
  for (size_t n = 0; n < def().examples.size(); ++n) {
    const Case c(def(), n);
    SCOPED_TRACE(c.where);
    ir::verify(c.graph);
    const std::string text = ir::print(c.graph);
    EXPECT_THAT(text, testing::HasSubstr(is_source() ? "" : " = " + def().name));
    const Named expected = c.run();
    for (const auto& [name, tensor] : expected) {
      EXPECT_EQ(tensor.type, c.graph.type(c.graph.find_output(name)->value));
      EXPECT_EQ(static_cast<int64_t>(tensor.data.size()), tensor.type.elements());
    }
    const double flops = def().flops ? def().flops(c.graph, c.under_test()) : 1;
    EXPECT_TRUE(std::isfinite(flops) && flops >= 0) << flops;

    if (!lowering_as<ir::DecomposeLowering>(c.under_test())) continue;
    const size_t results = c.under_test().results.size();
    for (size_t alone = 0; alone <= results; ++alone) {  // each result used alone, then all
      std::vector<bool> used(results, alone == results);
      if (alone < results) used[alone] = true;
      const Graph made = decomposed(c.graph, used);
      ir::verify(made);
      for (const auto& [name, tensor] : ir::interpret(made, c.inputs, c.variables).outputs) {
        EXPECT_LE(difference(expected.at(name), tensor), 1e-12) << name << "\n" << ir::print(made);
      }
    }
  }
}

TEST_P(EveryOp, RefusesItsRejects) {
  for (const ir::Reject& reject : def().rejects) {
    SCOPED_TRACE(reject.text);
    EXPECT_FALSE(reject.message.empty());
    try {
      ir::parse_graph(reject.text, def().name);
      ADD_FAILURE() << "accepted";
    } catch (const ir::UserError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(reject.message));
    }
  }
}

/// The index arithmetic that targets use reads what the reference reads.
TEST_P(EveryOp, ViewsReadWhatTheReferenceReads) {
  const auto* lowering = std::get_if<ir::ViewLowering>(&def().lowering);
  if (!lowering) return;
  for (size_t n = 0; n < def().examples.size(); ++n) {
    const Case c(def(), n);
    SCOPED_TRACE(c.where);
    const Op& op = c.under_test();
    const ir::View view = lowering->map(c.graph.type(op.operands[0]), c.graph.type(op.results[0]), op.attrs);
    const Tensor& x = c.inputs.at(c.graph.value(op.operands[0]).name);
    Tensor y(c.graph.type(op.results[0]));
    ASSERT_EQ(ir::element_count(view.dims), y.type.elements());
    ASSERT_EQ(view.dims.size(), view.strides.size());
    for (int64_t at = 0; at < y.type.elements(); ++at) {
      int64_t from = view.offset;
      int64_t rest = at;
      bool inside = true;
      for (size_t k = view.dims.size(); k-- > 0;) {
        int64_t index = rest % view.dims[k];
        rest /= view.dims[k];
        if (static_cast<int>(k) == view.guard_axis) index += view.guard_shift;
        inside = inside && index >= 0 && index < view.dims[k];
        from += index * view.strides[k];
      }
      ASSERT_TRUE(!inside || (from >= 0 && from < x.type.elements())) << at;
      y.data[static_cast<size_t>(at)] = inside ? x.data[static_cast<size_t>(from)] : 0;
    }
    EXPECT_EQ(y.data, c.run().begin()->second.data);
    if (view.contiguous()) {
      const auto first = x.data.begin() + view.offset;
      EXPECT_EQ(y.data, std::vector<double>(first, first + y.type.elements()));
    }
  }
}

// ---------------------------------------------------------------- gradients

/// May a result of the op under test be part of a loss? Hidden ones are for the compiler, but for carried states.
bool differentiable(const Graph& graph, const OpDef& def, ValueId value) {
  const ir::ResultDef& result = def.results[graph.value(value).result];
  if (!ir::is_float(graph.type(value).dtype)) return false;
  const bool carried =
      std::any_of(def.carry.begin(), def.carry.end(), [&](const ir::CarryPort& port) { return port.result == result.name; });
  return !result.hidden || carried;
}

struct GradientCheck {
  const OpDef& def;
  const Case& c;
  Named weights;  ///< of the results in the loss

  GradientCheck(const OpDef& d, const Case& kase) : def(d), c(kase) {
    Random random(77);
    for (const ValueId value : c.under_test().results) {
      if (!differentiable(c.graph, def, value)) continue;
      Tensor weight(c.graph.type(value));
      for (double& w : weight.data) w = random.real(-1, 1);
      weights["weight." + c.graph.value(value).name] = std::move(weight);
    }
  }

  double loss(const Named& inputs) const {
    const Named results = ir::interpret(c.graph, inputs, c.variables).outputs;
    double total = 0;
    for (const auto& [name, weight] : weights) {
      const Tensor& result = results.at(name.substr(7));
      for (size_t i = 0; i < weight.data.size(); ++i) total += weight.data[i] * result.data[i];
    }
    return total;
  }

  /// Central differences over five points; the step is small against the range the input is drawn from.
  Tensor differences(const std::string& input, double range) const {
    Named inputs = c.inputs;
    Tensor gradient(inputs.at(input).type);
    const double step = 1e-4 * (range > 0 ? range : 1);
    for (size_t i = 0; i < gradient.data.size(); ++i) {
      double& x = inputs[input].data[i];
      const double before = x;
      const auto at = [&](int steps) {
        x = before + steps * step;
        return loss(inputs);
      };
      gradient.data[i] = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step);
      x = before;
    }
    return gradient;
  }

  /// Gradients by the rule, by input. `wide`: those of the results arrive in f32, those of operands are wanted in f32.
  Named by_rule(bool wide_results, bool wide_operands, const std::function<bool(ValueId)>& wants) const {
    const auto seed = [&](Builder& b, ValueId old) {
      ir::Type type = c.graph.type(old);
      if (wide_results) type.dtype = DType::f32;
      const std::string name = "weight." + c.graph.value(old).name;
      return weights.count(name) ? b.input(name, type) : kNone;
    };
    const Graph made = with_gradients(c.graph, seed, {wants, wide_operands});
    ir::verify(made);
    Named inputs = c.inputs;
    inputs.insert(weights.begin(), weights.end());
    Named gradients;
    for (auto& [name, tensor] : ir::interpret(made, inputs, c.variables).outputs) gradients[name.substr(5)] = tensor;
    return gradients;
  }
};

/// The same by the pass `autodiff`: every input the rule gave a gradient becomes a parameter, the weighted results the loss.
Named by_pass(const GradientCheck& check, const Named& by_rule) {
  const Graph& graph = check.c.graph;
  ir::Module module;
  Graph made(graph.name(), graph.level());
  ir::Rewriter rewriter(graph, made);
  Builder& b = rewriter.b();
  for (const Op& op : graph.ops()) {
    const ir::Value& value = graph.value(op.results[0]);
    if (op.name() != "input" || by_rule.count(value.name) == 0) {
      rewriter.copy(op);
      continue;
    }
    ir::Variable variable;
    variable.name = value.name;
    variable.type = value.type;
    module.variables.push_back(variable);
    rewriter.map(op.results[0], b.variable(variable));
  }
  ValueId loss = b.constant(0);
  for (const ValueId result : graph.ops().back().results) {
    const std::string name = "weight." + graph.value(result).name;
    if (check.weights.count(name) == 0) continue;
    const ValueId weighted = b.mul(rewriter(result), b.input(name, graph.type(result)));
    loss = b.add(loss, b.cast(b.op("sum", {weighted}).results[0], DType::f32));
  }
  made.add_output({"loss", loss, {}});
  passes::PassContext context{module, {}, nullptr};
  const Graph differentiated = passes::find_pass("autodiff")->run(made, context);
  ir::verify(differentiated, &module);

  Named inputs = check.c.inputs;
  inputs.insert(check.weights.begin(), check.weights.end());
  Named gradients;
  for (auto& [name, tensor] : ir::interpret(differentiated, inputs, check.c.inputs).outputs) {
    if (name != "loss") gradients[name.substr(5)] = tensor;
  }
  return gradients;
}

bool has_16_bits(const Graph& graph) {
  return std::any_of(graph.values().begin(), graph.values().end(),
                     [](const ir::Value& value) { return value.type.dtype == DType::bf16 || value.type.dtype == DType::f16; });
}

TEST_P(EveryOp, GradientsEqualCentralDifferences) {
  if (!def().gradient) return;
  bool any = false;
  for (size_t n = 0; n < def().examples.size(); ++n) {
    const Example& example = def().examples[n];
    if (!example.differentiable) continue;
    const Case c(def(), n);
    SCOPED_TRACE(c.where);
    const GradientCheck check(def(), c);
    if (check.weights.empty()) continue;
    const int widths = has_16_bits(c.graph) ? 4 : 1;
    const auto everything = [](ValueId) { return true; };
    std::vector<Named> all;
    for (int width = 0; width < widths; ++width) all.push_back(check.by_rule(width & 1, width & 2, everything));
    all.push_back(by_pass(check, all[0]));
    for (const auto& [name, tensor] : c.inputs) {
      if (!ir::is_float(tensor.type.dtype)) continue;
      any = true;
      const Tensor expected = check.differences(name, example.hi - example.lo);
      const auto only = [&, id = c.graph.find(name)](ValueId value) { return value == id; };
      std::vector<Named> answers = all;
      answers.push_back(check.by_rule(false, false, only));
      for (const Named& answer : answers) {
        const auto at = answer.find(name);
        const Tensor actual = at == answer.end() ? Tensor(tensor.type) : at->second;  // none: zero
        EXPECT_LE(difference(expected, actual), 1e-8) << "gradient of %" << name << ": " << testing::PrintToString(actual.data)
                                                      << "\ndifferences: " << testing::PrintToString(expected.data);
      }
    }
  }
  EXPECT_TRUE(any) << "no example lets the gradient be checked";
}

INSTANTIATE_TEST_SUITE_P(Table, EveryOp, testing::ValuesIn(ir::op_table().all()),
                         [](const testing::TestParamInfo<const OpDef*>& param) { return param.param->name; });

}  // namespace
}  // namespace ingot::tests
