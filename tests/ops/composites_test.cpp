// Composite and sequence ops beyond what their examples show: soundness in f32 and 16 bits, rows that do not count, ties,
// zero rows, windows and document starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "ir/graph/builder.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "tests/ops/gradient_engine.h"

namespace ingot::tests {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::Tensor;
using ir::ValueId;
using Named = std::map<std::string, Tensor>;

// ---------------------------------------------------------------- running

bool composite(const Op& op) { return std::holds_alternative<ir::DecomposeLowering>(op.def->lowering); }

void write_out(ir::Rewriter& rewriter, const Graph& graph, const Op& op) {
  rewriter.at(op);
  ir::DecomposeContext context{rewriter.b(), op, {}, std::vector<bool>(op.results.size(), true), {}};
  for (const ValueId operand : op.operands) context.operands.push_back(rewriter(operand));
  for (const ValueId result : op.results) context.result_types.push_back(graph.type(result));
  const std::vector<ValueId> made = ir::lowering_as<ir::DecomposeLowering>(op)->build(context);
  for (size_t i = 0; i < made.size(); ++i) rewriter.map(op.results[i], made[i]);
}

/// Composites written out in simpler ops, until none is left.
Graph decomposed(const Graph& graph) {
  Graph now = graph;
  while (std::any_of(now.ops().begin(), now.ops().end(), composite)) {
    Graph out(now.name(), ir::Level::train);
    ir::Rewriter rewriter(now, out);
    for (const Op& op : now.ops()) {
      if (composite(op)) {
        write_out(rewriter, now, op);
      } else {
        rewriter.copy(op);
      }
    }
    rewriter.finish();
    now = std::move(out);
  }
  return now;
}

Graph with_outputs(const std::string& text) {
  Graph graph = ir::parse_graph(text);
  for (const ValueId result : graph.ops().back().results) graph.add_output({graph.value(result).name, result, {}});
  return graph;
}

/// The graph as written, in double.
Named exactly(const std::string& text, const Named& inputs) { return ir::interpret(with_outputs(text), inputs, {}).outputs; }

/// Written out in primitives, with every value rounded to what its buffer holds.
Named as_stored(const Graph& graph, const Named& inputs) {
  ir::InterpretOptions options;
  options.round = options.round_f32 = true;
  return ir::interpret(decomposed(graph), inputs, {}, options).outputs;
}
Named as_stored(const std::string& text, const Named& inputs) { return as_stored(with_outputs(text), inputs); }

/// The gradients of the op on the last line; its results named here are weighed by inputs weight.NAME, the rest unused.
Graph gradient_graph(const std::string& text, const std::vector<std::string>& weighed, bool in_f32 = false) {
  const Graph graph = ir::parse_graph(text);
  const auto seed = [&](ir::Builder& b, ValueId old) {
    const std::string& name = graph.value(old).name;
    const bool wanted = std::find(weighed.begin(), weighed.end(), name) != weighed.end();
    return wanted ? b.input("weight." + name, graph.type(old)) : kNone;
  };
  return with_gradients(graph, seed, {[](ValueId) { return true; }, in_f32});
}

Tensor filled(ir::DType dtype, ir::Shape shape, std::vector<double> data) {
  Tensor tensor(ir::Type{dtype, std::move(shape)});
  EXPECT_EQ(tensor.data.size(), data.size());
  tensor.data = std::move(data);
  return tensor;
}
Tensor floats(ir::Shape shape, std::vector<double> data) { return filled(ir::DType::f32, std::move(shape), std::move(data)); }
Tensor ids(ir::Shape shape, std::vector<double> data) { return filled(ir::DType::i32, std::move(shape), std::move(data)); }

/// Random multiples of 1/64 between lo and hi: exact in f32 beside a large offset.
Tensor grid(ir::Shape shape, double lo, double hi, double offset = 0, uint32_t seed = 1) {
  Tensor tensor(ir::Type{ir::DType::f32, std::move(shape)});
  std::mt19937 random(seed);
  const auto steps = static_cast<uint32_t>((hi - lo) * 64);
  for (double& x : tensor.data) x = offset + lo + static_cast<double>(random() % (steps + 1)) / 64;
  return tensor;
}
Tensor narrowed(Tensor tensor) {
  tensor.type.dtype = ir::DType::bf16;
  for (double& x : tensor.data) x = ir::round_to(ir::DType::bf16, x);
  return tensor;
}

double worst_difference(const Tensor& a, const Tensor& b) {
  double worst = 0;
  for (size_t i = 0; i < a.data.size(); ++i) {
    const double d = std::fabs(a.data[i] - b.data[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

// ---------------------------------------------------------------- norms and softmax

TEST(Composites, ALargeOffsetDoesNotSwallowTheVariance) {
  const std::string inputs_text = "input %x: f32[4, 8]\ninput %w: f32[8]\ninput %c: f32[8]\n";
  const std::string texts[] = {
      inputs_text + "%y, %m, %s = layer_norm(%x, %w, %c) {eps: 1e-05}: f32[4, 8], f32[4, 1], f32[4, 1]",
      inputs_text + "%y, %m, %s = group_norm(%x, %w, %c) {groups: 2, eps: 1e-05}: f32[4, 8], f32[4, 2, 1], f32[4, 2, 1]"};
  const Named inputs = {{"x", grid({4, 8}, -1, 1, 4000)}, {"w", grid({8}, -1, 1)}, {"c", grid({8}, -1, 1)}};
  for (const std::string& text : texts)
    EXPECT_LE(worst_difference(as_stored(text, inputs)["y"], exactly(text, inputs)["y"]), 2e-3);
}

TEST(Composites, SixteenBitsAreRoundedOnceAtTheEnd) {
  const Named inputs = {{"x", narrowed(grid({4, 8}, -3, 3))},
                        {"w", grid({8}, -1, 1)},
                        {"c", grid({8}, -1, 1)},
                        {"v", narrowed(grid({8, 8}, -1, 1))}};
  const std::string x = "input %x: bf16[4, 8]\n", w = x + "input %w: f32[8]\n", c = w + "input %c: f32[8]\n";
  const std::string texts[] = {
      c + "%y, %m, %s = layer_norm(%x, %w, %c) {eps: 1e-05}: bf16[4, 8], f32[4, 1], f32[4, 1]",
      c + "%y, %m, %s = group_norm(%x, %w, %c) {groups: 2, eps: 1e-05}: bf16[4, 8], f32[4, 2, 1], f32[4, 2, 1]",
      w + "%y, %s = rms_norm(%x, %w) {eps: 1e-05}: bf16[4, 8], f32[4, 1]",
      x + "%y, %n = l2_norm(%x) {eps: 1e-12}: bf16[4, 8], f32[4, 1]",
      x + "%y = softmax(%x) {axis: 1}: bf16[4, 8]",
      x + "%y = mean(%x) {axes: [1], keep: false}: bf16[4]",
      w + "input %v: bf16[8, 8]\n%y = linear(%x, %v, %w): bf16[4, 8]"};
  for (const std::string& text : texts) {
    const Tensor got = as_stored(text, inputs)["y"], want = exactly(text, inputs)["y"];
    for (size_t i = 0; i < want.data.size(); ++i) {
      EXPECT_LE(std::fabs(got.data[i] - want.data[i]), std::fabs(want.data[i]) / 256 + 1e-6) << text;
    }
  }
}

TEST(Composites, ParametersGetTheirGradientInF32) {
  const std::string x = "input %x: bf16[64, 8]\n", norm = x + "input %w: bf16[8]\n", shifted = norm + "input %c: bf16[8]\n";
  const std::string texts[] = {
      shifted + "%y, %m, %s = layer_norm(%x, %w, %c) {eps: 1e-05}: bf16[64, 8], f32[64, 1], f32[64, 1]",
      shifted + "%y, %m, %s = group_norm(%x, %w, %c) {groups: 2, eps: 1e-05}: bf16[64, 8], f32[64, 2, 1], f32[64, 2, 1]",
      norm + "%y, %s = rms_norm(%x, %w) {eps: 1e-05}: bf16[64, 8], f32[64, 1]",
      x + "input %w: bf16[8, 8]\ninput %c: bf16[8]\n%y = linear(%x, %w, %c): bf16[64, 8]"};
  for (const std::string& text : texts) {
    const Graph graph = gradient_graph(text, {"y"}, true);
    const bool matrix = text.find("linear") != std::string::npos;
    const Named inputs = {{"x", narrowed(grid({64, 8}, -1, 1))},
                          {"w", narrowed(matrix ? grid({8, 8}, -1, 1) : grid({8}, -1, 1))},
                          {"c", narrowed(grid({8}, -1, 1))},
                          {"weight.y", narrowed(grid({64, 8}, -1, 1, 0, 2))}};
    const Named got = as_stored(graph, inputs), want = ir::interpret(graph, inputs, {}).outputs;
    for (const auto& [name, tensor] : got) {
      if (name == "grad.x") continue;
      EXPECT_EQ(tensor.type.dtype, ir::DType::f32);
      EXPECT_LE(worst_difference(tensor, want.at(name)), 1e-4) << name << "\n" << text;
    }
  }
}

TEST(Composites, SoftmaxOfTheLargestFloatsIsFinite) {
  const Named inputs = {{"x", floats({2, 3}, {3e38, -3e38, 3e38, -3e38, -3e38, -3e38})}};
  const Named got = as_stored("input %x: f32[2, 3]\n%y = softmax(%x) {axis: 1}: f32[2, 3]", inputs);
  const auto third = testing::DoubleNear(1. / 3, 1e-7);
  EXPECT_THAT(got.at("y").data, testing::ElementsAre(0.5, 0, 0.5, third, third, third));
}

TEST(Composites, ARowShorterThanEpsIsScaledLinearly) {
  const std::string text = "input %x: f32[2, 2]\n%y, %n = l2_norm(%x) {eps: 0.5}: f32[2, 2], f32[2, 1]";
  const Named inputs = {{"x", floats({2, 2}, {0, 0, 0.25, 0})}, {"weight.y", floats({2, 2}, {1, -2, 3, 4})}};
  EXPECT_THAT(as_stored(text, inputs)["y"].data, testing::ElementsAre(0, 0, 0.5, 0));
  EXPECT_THAT(as_stored(gradient_graph(text, {"y"}), inputs)["grad.x"].data, testing::ElementsAre(2, -4, 6, 8));
}

TEST(Composites, ALossOnASavedResultIsRefused) {
  const std::string text = "input %x: f32[4, 8]\ninput %w: f32[8]\n%y, %s = rms_norm(%x, %w) {eps: 1e-05}: f32[4, 8], f32[4, 1]";
  try {
    gradient_graph(text, {"y", "s"});
    FAIL();
  } catch (const ir::UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rms_norm: the saved result `rstd` has no gradient"));
  }
}

// ---------------------------------------------------------------- the loss

std::string loss_text(const std::string& l2wrap = "0.0") {
  return "input %x: f32[3, 4]\ninput %t: i32[3]\n%loss, %n, %e = cross_entropy(%x, %t) {ignore: -100, l2wrap: " + l2wrap +
         "}: f32[], f32[], f32[3]";
}
std::vector<double> loss_gradient(const std::string& text, const Named& inputs) {
  Named all = inputs;
  all["weight.loss"] = floats({}, {1});
  return as_stored(gradient_graph(text, {"loss"}), all)["grad.x"].data;
}

TEST(CrossEntropy, ACommonOffsetCostsNoDigits) {
  const Named inputs = {{"x", grid({3, 4}, -2, 2, 4096)}, {"t", ids({3}, {0, 3, 1})}};
  const double want = exactly(loss_text(), inputs)["loss"].data[0];
  EXPECT_NEAR(as_stored(loss_text(), inputs)["loss"].data[0] / want, 1, 1e-6);
}

TEST(CrossEntropy, RowsThatDoNotCountTouchNothing) {
  const double inf = std::numeric_limits<double>::infinity();
  const Named inputs = {{"x", floats({3, 4}, {1, 2, 3, 4, std::nan(""), inf, 0, 0, 4, 3, 2, 1})}, {"t", ids({3}, {3, -100, 0})}};
  const Named got = as_stored(loss_text("0.5"), inputs);
  EXPECT_NEAR(got.at("loss").data[0], 2 * 0.44018969856, 1e-6);
  EXPECT_EQ(got.at("n").data[0], 2);
  const std::vector<double> dx = loss_gradient(loss_text("0.5"), inputs);
  for (size_t i = 0; i < 12; ++i)
    EXPECT_TRUE(i < 4 || i >= 8 ? std::isfinite(dx[i]) && dx[i] != 0 : dx[i] == 0) << i << ": " << dx[i];
}

TEST(CrossEntropy, NoneCountsIsZeroAndSoIsItsGradient) {
  const Named inputs = {{"x", grid({3, 4}, -2, 2)}, {"t", ids({3}, {-100, -100, -100})}};
  const Named got = as_stored(loss_text("0.5"), inputs);
  EXPECT_EQ(got.at("loss").data[0], 0);
  EXPECT_EQ(got.at("n").data[0], 0);
  EXPECT_THAT(loss_gradient(loss_text("0.5"), inputs), testing::Each(0));
}

TEST(CrossEntropy, TheWrapPullsTheFirstLargestLogitAndLeavesTheLoss) {
  const Named inputs = {{"x", floats({3, 4}, {1, 5, 5, 0, 2, 2, 2, 2, -1, -3, -2, -4})}, {"t", ids({3}, {0, 1, 2})}};
  EXPECT_EQ(as_stored(loss_text("0.25"), inputs)["loss"].data, as_stored(loss_text(), inputs)["loss"].data);
  const std::vector<double> plain = loss_gradient(loss_text(), inputs), wrapped = loss_gradient(loss_text("0.25"), inputs);
  const double pull[] = {0, 1.25, 0, 0, 0.5, 0, 0, 0, -0.25, 0, 0, 0};
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(wrapped[i] - plain[i], pull[i], 1e-6) << i;
}

// ---------------------------------------------------------------- sequences

std::string wkv7_text(int64_t time, const std::string& ports, int64_t chunk = 4) {
  const std::string t = std::to_string(time), x = "f32[1, " + t + ", 1, 16]", chunks = std::to_string((time + chunk - 1) / chunk);
  std::string text = "input %s0: f32[1, 1, 16, 16]\ninput %d: i32[1, " + t + "]\n";
  for (const char* name : {"r", "w", "k", "v", "a", "b"}) text += std::string("input %") + name + ": " + x + "\n";
  return text + "%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b" + ports + ") {chunk: " + std::to_string(chunk) + "}: " + x +
         ", f32[1, 1, 16, 16], f32[1, 1, " + chunks + ", 16, 16]";
}

Named wkv7_inputs(int64_t time) {
  Named inputs = {{"s0", grid({1, 1, 16, 16}, -0.5, 0.5)},
                  {"d", ids({1, time}, std::vector<double>(static_cast<size_t>(time), 0))}};
  uint32_t seed = 5;
  for (const char* name : {"r", "w", "k", "v", "a", "b"}) inputs[name] = grid({1, time, 1, 16}, -0.5, 0.5, 0, ++seed);
  inputs["weight.y"] = grid({1, time, 1, 16}, -1, 1, 0, 40);
  return inputs;
}

/// Positions [first, first + count) of every [1, T, ...] input; states as they are.
Named window(const Named& inputs, int64_t first, int64_t count) {
  Named out = inputs;
  for (auto& [name, tensor] : out) {
    if (name == "s0" || name == "state") continue;
    ir::Type type = tensor.type;
    const int64_t width = type.elements() / type.shape[1];
    type.shape[1] = count;
    Tensor part(type);
    std::copy_n(tensor.data.begin() + first * width, count * width, part.data.begin());
    tensor = std::move(part);
  }
  return out;
}

std::vector<double> joined(const Tensor& a, const Tensor& b) {
  std::vector<double> all = a.data;
  all.insert(all.end(), b.data.begin(), b.data.end());
  return all;
}

Named gradients(const std::string& text, const Named& inputs) {
  return ir::interpret(gradient_graph(text, {"y"}), inputs, {}).outputs;
}

TEST(Sequences, Wkv7InTwoWindowsEqualsOneRun) {
  const Named inputs = wkv7_inputs(7);
  const Named whole = exactly(wkv7_text(7, ", %s0"), inputs), first = exactly(wkv7_text(3, ", %s0"), window(inputs, 0, 3));
  Named rest = window(inputs, 3, 4);
  rest["s0"] = first.at("s");
  const Named second = exactly(wkv7_text(4, ", %s0"), rest);
  EXPECT_EQ(whole.at("y").data, joined(first.at("y"), second.at("y")));
  EXPECT_EQ(whole.at("s").data, second.at("s").data);
}

TEST(Sequences, Wkv7ForgetsAtADocumentStart) {
  Named inputs = wkv7_inputs(7);
  inputs["d"].data[3] = 1;
  const Named whole = exactly(wkv7_text(7, ", %s0, %d"), inputs), first = exactly(wkv7_text(3, ", %s0"), window(inputs, 0, 3));
  const Named second = exactly(wkv7_text(4, ""), window(inputs, 3, 4));
  EXPECT_EQ(whole.at("y").data, joined(first.at("y"), second.at("y")));
  EXPECT_EQ(whole.at("s").data, second.at("s").data);
  // A start at the first position beats the state that is handed in.
  inputs["d"].data = {1, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(exactly(wkv7_text(7, ", %s0, %d"), inputs)["y"].data, exactly(wkv7_text(7, ""), inputs)["y"].data);
}

TEST(Sequences, Wkv7GradientStopsAtADocumentStart) {
  Named inputs = wkv7_inputs(7);
  inputs["d"].data[3] = 1;
  const Named whole = gradients(wkv7_text(7, ", %s0, %d"), inputs),
              first = gradients(wkv7_text(3, ", %s0"), window(inputs, 0, 3));
  const Named second = gradients(wkv7_text(4, ""), window(inputs, 3, 4));
  for (const char* name : {"grad.r", "grad.w", "grad.k", "grad.v", "grad.a", "grad.b"}) {
    EXPECT_EQ(whole.at(name).data, joined(first.at(name), second.at(name))) << name;
  }
  EXPECT_EQ(whole.at("grad.s0").data, first.at("grad.s0").data);
}

TEST(Sequences, Wkv7ChunksChangeNothingButWhatIsSaved) {
  const Named inputs = wkv7_inputs(7);
  const Named whole = gradients(wkv7_text(7, ", %s0", 7), inputs);
  for (const int64_t chunk : {1, 3, 16}) {
    for (const auto& [name, tensor] : gradients(wkv7_text(7, ", %s0", chunk), inputs)) {
      EXPECT_EQ(tensor.data, whole.at(name).data) << name << ", chunk " << chunk;
    }
  }
}

std::string shift_text(int time, const std::string& ports) {
  const std::string t = std::to_string(time), x = "f32[1, " + t + ", 2]";
  return "input %x: " + x + "\ninput %state: f32[1, 2]\ninput %d: i32[1, " + t + "]\n%y, %l = shift(%x, " + ports + "): " + x +
         ", f32[1, 2]";
}
Named shift_inputs() {
  return {{"x", floats({1, 3, 2}, {1, 2, 3, 4, 5, 6})}, {"state", floats({1, 2}, {8, 9})}, {"d", ids({1, 3}, {0, 0, 0})}};
}

TEST(Sequences, ShiftCarriesItsLastPosition) {
  const Named inputs = shift_inputs();
  const Named whole = as_stored(shift_text(3, "%state"), inputs),
              first = as_stored(shift_text(1, "%state"), window(inputs, 0, 1));
  EXPECT_THAT(whole.at("y").data, testing::ElementsAre(8, 9, 1, 2, 3, 4));
  EXPECT_THAT(whole.at("l").data, testing::ElementsAre(5, 6));
  Named rest = window(inputs, 1, 2);
  rest["state"] = first.at("l");
  EXPECT_EQ(whole.at("y").data, joined(first.at("y"), as_stored(shift_text(2, "%state"), rest)["y"]));
}

TEST(Sequences, ShiftGivesZeroAtADocumentStart) {
  Named inputs = shift_inputs();
  inputs["d"].data = {1, 0, 1};
  EXPECT_THAT(as_stored(shift_text(3, "%state, %d"), inputs)["y"].data, testing::ElementsAre(0, 0, 1, 2, 0, 0));
  inputs["weight.y"] = floats({1, 3, 2}, {5, 6, 7, 8, 9, 10});
  const Named got = as_stored(gradient_graph(shift_text(3, "%state, %d"), {"y"}), inputs);
  EXPECT_THAT(got.at("grad.x").data, testing::ElementsAre(7, 8, 0, 0, 0, 0));
  EXPECT_THAT(got.at("grad.state").data, testing::ElementsAre(0, 0));
}

}  // namespace
}  // namespace ingot::tests
