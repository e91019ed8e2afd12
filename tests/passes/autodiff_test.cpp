// Gradients of whole composites and of random graphs against central differences, in double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ir/graph/builder.h"
#include "models/loader.h"
#include "passes/pass.h"
#include "tests/common/places.h"
#include "tests/common/random_graph.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

ir::Graph through(const ir::Graph& graph, ir::Module& module, const std::string& pipeline) {
  return passes::run_pipeline(graph, module, passes::parse_pipeline(pipeline));
}

double loss_of(const ir::Graph& graph, const Named& inputs, const Named& variables) {
  return ir::interpret(graph, inputs, variables).outputs.at("loss").data[0];
}

/// d loss / d parameter along a direction, by differences over a step and twice the step (error O(step^4)).
double slope(const ir::Graph& graph, const Named& inputs, Named variables, const std::string& param,
             const std::vector<double>& along, double step) {
  const std::vector<double> at = variables.at(param).data;
  const auto loss = [&](double by) {
    for (size_t i = 0; i < at.size(); ++i) variables.at(param).data[i] = at[i] + by * along[i];
    return loss_of(graph, inputs, variables);
  };
  return (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step);
}

/// Every parameter by itself, along random directions.
void expect_gradients(ir::Module module, const Named& inputs, const Named& variables, double tolerance, int directions = 3) {
  const ir::Graph& loss = module.graph("loss");
  const ir::Graph gradients = through(loss, module, "autodiff, decompose, cse, dce");
  const Named out = ir::interpret(gradients, inputs, variables).outputs;
  Random random(5);
  int checked = 0;
  for (const ir::Variable& variable : module.variables) {
    if (variable.role != ir::VariableRole::param || !variable.trainable) continue;
    ASSERT_TRUE(out.contains("grad." + variable.name)) << variable.name;
    const ir::Tensor& gradient = out.at("grad." + variable.name);
    ASSERT_EQ(gradient.type.shape, variable.type.shape);
    for (int n = 0; n < directions; ++n) {
      std::vector<double> along(gradient.data.size());
      double want = 0;
      for (double& a : along) a = random.real(-1, 1);
      for (size_t i = 0; i < along.size(); ++i) want += gradient.data[i] * along[i];
      const double have = slope(loss, inputs, variables, variable.name, along, 1e-4);
      EXPECT_NEAR(have, want, tolerance * std::max(1.0, std::abs(want))) << variable.name;
    }
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

Named ids(const std::map<std::string, std::vector<double>>& values, const ir::Shape& shape) {
  Named inputs;
  for (const auto& [name, data] : values) {
    ir::Tensor tensor(ir::Type{ir::DType::i32, shape});
    tensor.data = data;
    inputs[name] = tensor;
  }
  return inputs;
}

// Norms, mixes, a softmax over slices put together again, a tied embedding; no parameter enters twice in the same way.
const char* const kMixture = R"(
module mixture
param %emb: f32[5, 6] = "0"
param %mix: f32[1, 1, 6] = "0"
param %n.w: f32[6] = "0"
param %n.b: f32[6] = "0"
param %up: f32[8, 6] = "0"
param %up.b: f32[8] = "0"
param %down: f32[8, 6] = "0"
param %scale: f32[] = "0"
param %unused: f32[3] = "0" {trainable: false}
graph @loss at model {
  input %tokens: i32[2, 3]
  input %targets: i32[2, 3]
  param %emb: f32[5, 6]
  param %mix: f32[1, 1, 6]
  param %n.w: f32[6]
  param %n.b: f32[6]
  param %up: f32[8, 6]
  param %up.b: f32[8]
  param %down: f32[8, 6]
  param %scale: f32[]
  %e = embedding(%tokens, %emb): f32[2, 3, 6]
  %n, %nm, %nr = layer_norm(%e, %n.w, %n.b): f32[2, 3, 6], f32[2, 3, 1], f32[2, 3, 1]
  %s, %sl = shift(%n): f32[2, 3, 6], f32[2, 6]
  %d = sub(%s, %n): f32[2, 3, 6]
  %dm = mul(%d, %mix): f32[2, 3, 6]
  %x = add(%n, %dm): f32[2, 3, 6]
  %h = linear(%x, %up, %up.b): f32[2, 3, 8]
  %a = slice(%h) {starts: [0, 0, 0], sizes: [2, 3, 3]}: f32[2, 3, 3]
  %b = slice(%h) {starts: [0, 0, 3], sizes: [2, 3, 5]}: f32[2, 3, 5]
  %p = softmax(%a): f32[2, 3, 3]
  %q = silu(%b): f32[2, 3, 5]
  %c = concat(%q, %p) {axis: 2}: f32[2, 3, 8]
  %r = cumsum(%c) {axis: 1}: f32[2, 3, 8]
  %y = matmul(%r, %down): f32[2, 3, 6]
  %z = mul(%y, %scale): f32[2, 3, 6]
  %logits = linear(%z, %emb): f32[2, 3, 5]
  %loss, %count, %lse = cross_entropy(%logits, %targets): f32[], f32[], f32[2, 3]
  output loss = %loss
  output count = %count
}
)";

TEST(Autodiff, OfAMixtureOfOps) {
  const ir::Module module = read_module(kMixture);
  const Named inputs = ids({{"tokens", {0, 1, 2, 3, 1, 1}}, {"targets", {1, 2, -100, 0, 4, 4}}}, {2, 3});
  expect_gradients(module, inputs, draw_variables(module, 1), 1e-7);
}

// A state that is carried in and document starts change the forward, and the gradients with it.
TEST(Autodiff, OfCarriedStatesAndDocumentStarts) {
  ir::Module module = read_module(kMixture);
  module.set_graph(through(module.graph("loss"), module, "carry{prefix=c, starts=true}"));
  Named inputs = ids({{"tokens", {0, 1, 2, 3, 1, 1}}, {"targets", {1, 2, 3, 0, 4, 4}}, {"starts", {0, 0, 1, 1, 0, 0}}}, {2, 3});
  Named variables = draw_variables(module, 2);
  Random random(3);
  for (double& v : variables.at("c.s").data) v = random.real(-1, 1);
  expect_gradients(module, inputs, variables, 1e-7);
}

// One parameter read by two ops, as a loader that does not know of the first read would write it.
TEST(Autodiff, OfAParameterReadTwiceIsOneSum) {
  ir::Module module;
  ir::Variable w;
  w.name = "w";
  w.type = {ir::DType::f32, {4, 4}};
  module.variables.push_back(w);
  ir::Graph graph("loss");
  ir::Builder b(graph);
  const ir::ValueId x = b.input("x", {ir::DType::f32, {2, 4}});
  const auto read = [&](const char* name) {
    ir::Op op;
    op.def = &ir::op_def("variable");
    op.attrs.set("name", std::string("w"));
    op.attrs.set("role", std::string("param"));
    return graph.op(graph.append(std::move(op), {name}, {w.type})).results[0];
  };
  const ir::ValueId h = b.make("tanh", {b.matmul(x, read("w"))});
  const ir::ValueId y = b.matmul(h, read("again"));
  graph.add_output({"loss", b.sum(b.make("square", {y}), {0, 1}), {}});
  module.graphs.push_back(graph);
  Random random(4);
  const Named inputs = random_inputs(graph, random);
  expect_gradients(module, inputs, draw_variables(module, 5), 1e-7);
  const ir::Graph gradients = through(graph, module, "autodiff");
  EXPECT_EQ(gradients.outputs().size(), 2u);
}

// The real model, small: embedding, norms, six mixes, the recurrence, both blocks' ways of making v, the head.
TEST(Autodiff, OfRwkv7) {
  models::LoadOptions options;
  for (const char* pair : {"layers=2", "width=32", "head=16", "vocab=11", "batch=2", "time=5", "ffn=24", "rank_w=4", "rank_a=4",
                           "rank_v=4", "rank_g=4", "l2wrap=0"}) {
    const std::string text = pair;
    options.overrides.emplace_back(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
  }
  const ir::Module module = models::load_model(source_file("models/rwkv7.yaml"), options).module;
  const Named inputs =
      ids({{"tokens", {0, 1, 2, 3, 1, 7, 10, 4, 4, 5}}, {"targets", {1, 2, -100, 0, 4, 4, 9, 10, 3, 3}}}, {2, 5});
  expect_gradients(module, inputs, draw_variables(module, 6), 2e-5, 1);
}

/// Gives the graph a loss: everything it computes in f32, summed up with weights so that nothing cancels.
bool add_loss(ir::Module& module) {
  ir::Graph& graph = module.graphs.front();
  graph.set_name("loss");
  ir::Builder b(graph);
  ir::ValueId total = ir::kNone;
  double weight = 1;
  const size_t count = graph.values().size();
  for (ir::ValueId id = 0; id < count; ++id) {
    const ir::Type type = graph.type(id);
    if (type.dtype != ir::DType::f32 || graph.maker(id).operands.empty()) continue;
    ir::ValueId part = b.mul(b.make("tanh", {id}), weight *= 1.1);
    std::vector<int64_t> axes;
    for (int64_t i = 0; i < type.rank(); ++i) axes.push_back(i);
    if (!axes.empty()) part = b.sum(part, axes);
    total = total == ir::kNone ? part : b.add(total, part);
  }
  if (total == ir::kNone || graph.find_output("loss")) return false;
  graph.add_output({"loss", total, {}});
  return true;
}

bool smooth(const ir::OpDef& def) {
  static const std::vector<std::string> kKinks{"relu",    "abs", "floor", "mod",      "maximum",
                                               "minimum", "max", "min",   "isfinite", "cast"};
  if (std::find(kKinks.begin(), kKinks.end(), def.name) != kKinks.end()) return false;
  return def.gradient || def.gradient_is_zero || std::holds_alternative<ir::SourceLowering>(def.lowering);
}

bool all_finite(const ir::Graph& graph, const Named& inputs, const Named& variables) {
  for (const auto& [name, value] : ir::interpret(graph, inputs, variables, {}, true).values) {
    if (!std::all_of(value.data.begin(), value.data.end(), [](double v) { return std::isfinite(v); })) return false;
  }
  return true;
}

TEST(Autodiff, OfRandomGraphs) {
  int judged = 0;
  for (uint64_t seed = 0; seed < 2500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomGraphOptions options;
    options.seed = seed + 500000;
    options.ops = 8;
    options.most_elements = 64;
    options.accept = smooth;
    ir::Module module = random_module(options);
    if (!add_loss(module)) continue;
    const ir::Graph graph = module.graphs.front();
    for (ir::Variable& variable : module.variables)
      variable.trainable = variable.trainable && graph.find(variable.name) != ir::kNone;
    Random random(seed);
    const Named inputs = random_inputs(graph, random, 0.3, 1.5, module.ranges);
    const Named variables = random_variables(graph, random, 0.3, 1.5);
    try {
      if (!all_finite(graph, inputs, variables)) continue;
    } catch (const std::exception&) {
      continue;  // an id past its table
    }
    try {
      ir::Graph gradients = through(graph, module, "autodiff");
      const Named out = ir::interpret(gradients, inputs, variables).outputs;
      for (const auto& [name, gradient] : out) {
        if (!name.starts_with("grad.")) continue;
        std::vector<double> along(gradient.data.size());
        double want = 0;
        for (size_t i = 0; i < along.size(); ++i) want += gradient.data[i] * (along[i] = random.real(-1, 1));
        const double fine = slope(graph, inputs, variables, name.substr(5), along, 1e-5);
        const double coarse = slope(graph, inputs, variables, name.substr(5), along, 4e-5);
        // Where two step widths disagree the loss is too steep here to say anything.
        if (!(std::abs(fine - coarse) <= 1e-6 * std::max(1.0, std::abs(fine)))) continue;
        ASSERT_NEAR(fine, want, 1e-5 * std::max(1.0, std::abs(want))) << name << "\n" << text_of(graph) << text_of(gradients);
        ++judged;
      }
    } catch (const ir::UserError&) {
      continue;  // a parameter the loss does not depend on
    }
  }
  EXPECT_GT(judged, 150);
}

}  // namespace
}  // namespace ingot::tests
