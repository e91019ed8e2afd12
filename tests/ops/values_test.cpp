// Values worked out by hand where a formula has a corner: kinks, ties, signs, NaN, edges. The references are the oracle of
// everything else, so they are held to numbers here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/graph/builder.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "tests/ops/gradient_engine.h"

namespace ingot::tests {
namespace {

using ir::DType;
using ir::Graph;
using ir::Tensor;
using ir::ValueId;
using testing::ElementsAre;
using testing::ElementsAreArray;
using Values = std::vector<double>;
using Given = std::map<std::string, Values>;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

std::map<std::string, Tensor> tensors(const Graph& graph, const Given& given) {
  std::map<std::string, Tensor> named;
  for (const auto& [name, values] : given) {
    Tensor tensor(graph.type(graph.find(name)));
    tensor.data = values;
    named[name] = std::move(tensor);
  }
  return named;
}

/// The first result of the last line.
Values run(const std::string& text, const Given& given = {}, ir::InterpretOptions options = {}) {
  Graph graph = ir::parse_graph(text);
  graph.add_output({"y", graph.ops().back().results[0], {}});
  return ir::interpret(graph, tensors(graph, given), {}, options).outputs.at("y").data;
}

/// The gradient of the sum of the last line's first result to an input.
Values gradient(const std::string& text, const std::string& input, const Given& given) {
  const Graph graph = ir::parse_graph(text);
  const auto ones = [&](ir::Builder& b, ValueId result) {
    return result == graph.ops().back().results[0] ? b.full(1, graph.type(result)) : ir::kNone;
  };
  const Graph made = with_gradients(graph, ones);
  return ir::interpret(made, tensors(graph, given), {}).outputs.at("grad." + input).data;
}

TEST(Values, ModHasTheSignOfTheDivisor) {
  const std::string text = "input %a: f32[4]\ninput %b: f32[4]\n%y = mod(%a, %b): f32[4]";
  EXPECT_THAT(run(text, {{"a", {5, -5, 5, -5}}, {"b", {3, 3, -3, -3}}}), ElementsAre(2, 1, -1, -2));
  const std::string integers = "input %a: i32[3]\ninput %b: i32[3]\n%y = mod(%a, %b): i32[3]";
  EXPECT_THAT(run(integers, {{"a", {-7, 6, 5}}, {"b", {4, 3, 0}}}), ElementsAre(1, 0, 0));
}

TEST(Values, CastTruncatesToIntegersAndComparesWithZeroForBools) {
  EXPECT_THAT(run("input %x: f32[4]\n%y = cast(%x) {dtype: i32}: i32[4]", {{"x", {2.9, -2.9, 0.5, -0.0}}}),
              ElementsAre(2, -2, 0, 0));
  EXPECT_THAT(run("input %x: f32[3]\n%y = cast(%x) {dtype: bool}: bool[3]", {{"x", {0.25, 0, -3}}}), ElementsAre(1, 0, 1));
}

TEST(Values, CastRoundsWhenTheRunRounds) {
  const std::string text = "input %x: f32[2]\n%y = cast(%x) {dtype: bf16}: bf16[2]";
  ir::InterpretOptions rounding;
  rounding.round = true;
  EXPECT_THAT(run(text, {{"x", {1.001, 1.00390625}}}, rounding), ElementsAre(1, 1));  // half of 2^-7 ties to even
  EXPECT_THAT(run(text, {{"x", {1.001, 1.00390625}}}), ElementsAre(1.001, 1.00390625));
}

TEST(Values, CastInsideARegionRoundsAndNothingElseDoes) {
  const std::string text =
      "graph @main at fused {\ninput %x: f32[1]\n"
      "%y = fuse(%x) {kind: \"row\"} (%a: f32[1]) {\n"
      "  %half = cast(%a) {dtype: bf16}: bf16[1]\n  %sum = add(%half, %half): bf16[1]\n  %third = mul(%sum, %half): bf16[1]\n  "
      "yield %third\n"
      "}: bf16[1]\n}";
  ir::InterpretOptions rounding;
  rounding.round = true;
  // bf16(1.01) = 1.0078125; its square twice is 2.03137207..., which is rounded once, on the way out: 2.03125.
  EXPECT_THAT(run(text, {{"x", {1.01}}}, rounding), ElementsAre(2.03125));
  EXPECT_THAT(run(text, {{"x", {1.01}}}), ElementsAre(testing::DoubleNear(2 * 1.01 * 1.01, 1e-15)));
}

TEST(Values, NanIsNotLost) {
  for (const std::string op : {"maximum", "minimum"}) {
    const std::string text = "input %a: f32[2]\ninput %b: f32[2]\n%y = " + op + "(%a, %b): f32[2]";
    const Values y = run(text, {{"a", {kNan, 1}}, {"b", {1, kNan}}});
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1])) << op;
  }
  for (const std::string op : {"max", "min", "sum"}) {
    for (const Values& x : {Values{kNan, 1, 2}, Values{1, kNan, 2}, Values{2, 1, kNan}}) {
      EXPECT_TRUE(std::isnan(run("input %x: f32[3]\n%y = " + op + "(%x): f32[]", {{"x", x}})[0])) << op;
    }
  }
  EXPECT_TRUE(std::isnan(run("input %x: f32[1]\n%y = relu(%x): f32[1]", {{"x", {kNan}}})[0]));
  EXPECT_THAT(run("input %x: f32[4]\n%y = isfinite(%x): bool[4]", {{"x", {kNan, kInf, -kInf, 1e300}}}), ElementsAre(0, 0, 0, 1));
}

TEST(Values, WhatSelectDoesNotChooseDoesNotMatter) {
  const std::string text = "input %c: bool[2]\ninput %a: f32[2]\ninput %b: f32[2]\n%y = select(%c, %a, %b): f32[2]";
  const Given given{{"c", {1, 0}}, {"a", {1, kNan}}, {"b", {kInf, 2}}};
  EXPECT_THAT(run(text, given), ElementsAre(1, 2));
  EXPECT_THAT(gradient(text, "a", given), ElementsAre(1, 0));
  EXPECT_THAT(gradient(text, "b", given), ElementsAre(0, 1));
}

TEST(Values, LargeArgumentsNeitherOverflowNorVanish) {
  EXPECT_THAT(run("input %x: f32[3]\n%y = softplus(%x): f32[3]", {{"x", {1000, -1000, 0}}}), ElementsAre(1000, 0, std::log(2)));
  EXPECT_THAT(run("input %x: f32[2]\n%y = sigmoid(%x): f32[2]", {{"x", {1000, -1000}}}), ElementsAre(1, 0));
  EXPECT_THAT(run("input %x: f32[2]\n%y = silu(%x): f32[2]", {{"x", {1000, -1000}}}), ElementsAre(1000, 0));
  EXPECT_THAT(run("input %x: f32[1]\n%y = log1p(%x): f32[1]", {{"x", {1e-20}}}), ElementsAre(1e-20));
  EXPECT_THAT(run("input %x: f32[1]\n%y = expm1(%x): f32[1]", {{"x", {1e-20}}}), ElementsAre(1e-20));
}

TEST(Values, ReductionsTakeWhatTheyName) {
  const Given six{{"x", {1, -2, 3, 4, 5, -6}}};
  const std::string x = "input %x: f32[2, 3]\n%y = ";
  EXPECT_THAT(run(x + "sum(%x) {axes: [0]}: f32[3]", six), ElementsAre(5, 3, -3));
  EXPECT_THAT(run(x + "sum(%x) {axes: [-1], keep: true}: f32[2, 1]", six), ElementsAre(2, 3));
  EXPECT_THAT(run(x + "max(%x) {axes: [0]}: f32[3]", six), ElementsAre(4, 5, 3));
  EXPECT_THAT(run(x + "min(%x) {axes: [1]}: f32[2]", six), ElementsAre(-2, -6));
  EXPECT_THAT(run(x + "max(%x): f32[]", {{"x", {-3, -1, -2, -9, -8, -7}}}), ElementsAre(-1));
}

TEST(Values, ComparisonsAndLogicAnswerInBools) {
  const Given ab{{"a", {1, 2, 3, kNan}}, {"b", {2, 2, 2, 2}}};
  const auto compare = [&](const std::string& op) {
    return run("input %a: f32[4]\ninput %b: f32[4]\n%y = " + op + "(%a, %b): bool[4]", ab);
  };
  EXPECT_THAT(compare("lt"), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(compare("le"), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(compare("gt"), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(compare("ge"), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(compare("eq"), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(compare("ne"), ElementsAre(1, 0, 1, 1));
  const auto logic = [](const std::string& op) {
    return run("input %a: bool[4]\ninput %b: bool[4]\n%y = " + op + "(%a, %b): bool[4]",
               {{"a", {0, 0, 1, 1}}, {"b", {0, 1, 0, 1}}});
  };
  EXPECT_THAT(logic("logical_and"), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(logic("logical_or"), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(run("input %a: bool[2]\n%y = logical_not(%a): bool[2]", {{"a", {0, 1}}}), ElementsAre(1, 0));
}

TEST(Values, ArithmeticBroadcastsFromTheRight) {
  const Given ab{{"a", {1, 2, 3, 4}}, {"b", {10, 20}}};
  const std::string in = "input %a: f32[2, 2]\ninput %b: f32[2]\n%y = ";
  EXPECT_THAT(run(in + "sub(%a, %b): f32[2, 2]", ab), ElementsAre(-9, -18, -7, -16));
  EXPECT_THAT(run(in + "sub(%b, %a): f32[2, 2]", ab), ElementsAre(9, 18, 7, 16));
  EXPECT_THAT(run("input %a: f32[2, 1]\ninput %b: f32[2]\n%y = div(%a, %b): f32[2, 2]", {{"a", {1, 3}}, {"b", {2, 4}}}),
              ElementsAre(0.5, 0.25, 1.5, 0.75));
}

/// A number beside a tensor leaves the tensor's dtype alone, but half of an integer is no integer.
TEST(Values, ScalarsAreWeakInPromotion) {
  const auto type = [](const std::string& text) {
    const Graph graph = ir::parse_graph(text);
    return graph.type(graph.ops().back().results[0]).text();
  };
  const std::string half = "%h = constant() {value: 0.5}: f32[]\n";
  EXPECT_EQ(type(half + "input %x: bf16[2]\n%y = mul(%x, %h): bf16[2]"), "bf16[2]");
  EXPECT_EQ(type(half + "input %x: i32[2]\n%y = mul(%x, %h): f32[2]"), "f32[2]");
  EXPECT_EQ(type(half + "input %x: i32[2]\n%y = lt(%x, %h): bool[2]"), "bool[2]");
}

// ---------------------------------------------------------------- gradients at corners

TEST(Gradients, AreZeroAtTheKinksOfAbsAndRelu) {
  EXPECT_THAT(gradient("input %x: f32[3]\n%y = abs(%x): f32[3]", "x", {{"x", {-2, 0, 2}}}), ElementsAre(-1, 0, 1));
  EXPECT_THAT(gradient("input %x: f32[3]\n%y = relu(%x): f32[3]", "x", {{"x", {-2, 0, 2}}}), ElementsAre(0, 0, 1));
}

TEST(Gradients, AreSharedByEquals) {
  const std::string two = "input %a: f32[3]\ninput %b: f32[3]\n%y = maximum(%a, %b): f32[3]";
  const Given given{{"a", {1, 2, 3}}, {"b", {2, 2, 2}}};
  EXPECT_THAT(gradient(two, "a", given), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(gradient(two, "b", given), ElementsAre(1, 0.5, 0));
  EXPECT_THAT(gradient("input %a: f32[2]\ninput %b: f32[2]\n%y = minimum(%a, %b): f32[2]", "a", {{"a", {1, 2}}, {"b", {2, 2}}}),
              ElementsAre(1, 0.5));
  EXPECT_THAT(gradient("input %x: f32[2, 4]\n%y = max(%x) {axes: [1]}: f32[2]", "x", {{"x", {5, 1, 5, 0, 2, 3, 1, 0}}}),
              ElementsAre(0.5, 0, 0.5, 0, 0, 1, 0, 0));
  EXPECT_THAT(gradient("input %x: f32[3]\n%y = min(%x): f32[]", "x", {{"x", {1, 1, 1}}}), ElementsAre(1.0 / 3, 1.0 / 3, 1.0 / 3));
}

TEST(Gradients, OfPowAreFiniteAtZero) {
  const std::string text = "input %a: f32[4]\ninput %b: f32[4]\n%y = pow(%a, %b): f32[4]";
  const Given given{{"a", {0, 0, 0, -2}}, {"b", {0, 1, 2, 3}}};
  EXPECT_THAT(run(text, given), ElementsAre(1, 0, 0, -8));
  EXPECT_THAT(gradient(text, "a", given), ElementsAre(0, 1, 0, 12));
  EXPECT_THAT(gradient(text, "b", {{"a", {0, 0, 0, 1}}, {"b", {0, 1, 2, 3}}}), ElementsAre(0, 0, 0, 0));
}

TEST(Gradients, PassThroughACastUnrounded) {
  const Graph graph = ir::parse_graph("input %x: f32[2]\n%y = cast(%x) {dtype: bf16}: bf16[2]");
  const auto seed = [](ir::Builder& b, ValueId) { return b.input("g", {DType::f32, {2}}); };
  const Graph made = with_gradients(graph, seed);
  EXPECT_EQ(made.find_output("grad.x")->value, made.find("g"));
}

/// A parameter's gradient is the gemm's f32 accumulator, though everything the gemm reads is bf16.
TEST(Gradients, OfAParameterAreTheAccumulatorOfOneGemm) {
  const Graph graph =
      ir::parse_graph("input %x: bf16[2, 3, 4]\ninput %w: bf16[5, 4]\n%y = matmul(%x, %w) {tb: true}: bf16[2, 3, 5]");
  const auto seed = [](ir::Builder& b, ValueId) { return b.input("g", {DType::bf16, {2, 3, 5}}); };
  GradientOptions options;
  options.in_f32 = true;
  const Graph made = with_gradients(graph, seed, options);
  const ValueId gradient = made.find_output("grad.w")->value;
  EXPECT_EQ(made.type(gradient), (ir::Type{DType::f32, {5, 4}}));
  EXPECT_EQ(made.maker(gradient).name(), "matmul");
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(made.type(made.maker(gradient).operands[i]).dtype, DType::bf16);
}

// ---------------------------------------------------------------- elements that move

TEST(Values, ElementsMoveWhereTheySay) {
  const Given six{{"x", {1, 2, 3, 4, 5, 6}}};
  const std::string x = "input %x: f32[2, 3]\n%y = ";
  EXPECT_THAT(run(x + "transpose(%x) {perm: [1, 0]}: f32[3, 2]", six), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(run(x + "slice(%x) {starts: [0, 1], sizes: [2, 2]}: f32[2, 2]", six), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(run(x + "repeat(%x) {times: 2, axis: 0}: f32[4, 3]", six), ElementsAre(1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6));
  EXPECT_THAT(run(x + "repeat(%x) {times: 2, axis: 1}: f32[2, 6]", six), ElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6));
  EXPECT_THAT(run(x + "shift_rows(%x) {by: 1}: f32[2, 3]", six), ElementsAre(0, 1, 2, 0, 4, 5));
  EXPECT_THAT(run(x + "shift_rows(%x) {by: -2}: f32[2, 3]", six), ElementsAre(3, 0, 0, 6, 0, 0));
  EXPECT_THAT(run(x + "concat(%x, %x) {axis: 1}: f32[2, 6]", six), ElementsAre(1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6));
  EXPECT_THAT(run(x + "cumsum(%x) {axis: 1}: f32[2, 3]", six), ElementsAre(1, 3, 6, 4, 9, 15));
  EXPECT_THAT(run(x + "cumsum(%x) {axis: 1, exclusive: true}: f32[2, 3]", six), ElementsAre(0, 1, 3, 0, 4, 9));
  EXPECT_THAT(run(x + "cumsum(%x) {axis: 1, reverse: true}: f32[2, 3]", six), ElementsAre(6, 5, 3, 15, 11, 6));
  EXPECT_THAT(run(x + "cumsum(%x) {axis: 0, reverse: true, exclusive: true}: f32[2, 3]", six), ElementsAre(4, 5, 6, 0, 0, 0));
  EXPECT_THAT(run("%y = iota() {shape: [2, 3], axis: 1}: i32[2, 3]"), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(run("%y = iota() {shape: [2, 3], axis: 0}: i32[2, 3]"), ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST(Values, RowsAreGatheredAndPutBack) {
  EXPECT_THAT(run("input %i: i32[3]\ninput %t: f32[3, 2]\n%y = embedding(%i, %t): f32[3, 2]",
                  {{"i", {2, 0, 2}}, {"t", {1, 2, 3, 4, 5, 6}}}),
              ElementsAre(5, 6, 1, 2, 5, 6));
  EXPECT_THAT(run("input %i: i32[3]\ninput %g: f32[3, 2]\n%y = embedding_grad(%i, %g) {rows: 4}: f32[4, 2]",
                  {{"i", {2, 0, 2}}, {"g", {1, 2, 3, 4, 5, 6}}}),
              ElementsAre(3, 4, 0, 0, 6, 8, 0, 0));
}

TEST(Values, AnIdOutsideTheTableIsAnError) {
  const std::string text = "input %i: i32[1]\ninput %t: f32[3, 2]\n%y = embedding(%i, %t): f32[1, 2]";
  EXPECT_THROW(run(text, {{"i", {3}}, {"t", Values(6, 0)}}), ir::UserError);
  EXPECT_THROW(run(text, {{"i", {-1}}, {"t", Values(6, 0)}}), ir::UserError);
}

/// All four ways to give the same two matrices, and batches against one.
TEST(Values, MatmulTransposesAndBroadcasts) {
  const Values a{1, 2, 3, 4, 5, 6}, a_t{1, 4, 2, 5, 3, 6};  // [2, 3]
  const Values b{1, 0, 2, 1, 0, 3}, b_t{1, 2, 0, 0, 1, 3};  // [3, 2]
  const Values y{5, 11, 14, 23};
  const auto matmul = [](const char* as, const char* bs, const char* attrs) {
    return std::string("input %a: f32") + as + "\ninput %b: f32" + bs + "\n%y = matmul(%a, %b) " + attrs + ": f32[2, 2]";
  };
  EXPECT_EQ(run(matmul("[2, 3]", "[3, 2]", "{}"), {{"a", a}, {"b", b}}), y);
  EXPECT_EQ(run(matmul("[3, 2]", "[3, 2]", "{ta: true}"), {{"a", a_t}, {"b", b}}), y);
  EXPECT_EQ(run(matmul("[2, 3]", "[2, 3]", "{tb: true}"), {{"a", a}, {"b", b_t}}), y);
  EXPECT_EQ(run(matmul("[3, 2]", "[2, 3]", "{ta: true, tb: true}"), {{"a", a_t}, {"b", b_t}}), y);
  EXPECT_THAT(run("input %a: f32[2, 1, 2]\ninput %b: f32[2, 1]\n%y = matmul(%a, %b): f32[2, 1, 1]",
                  {{"a", {1, 2, 3, 4}}, {"b", {10, 1}}}),
              ElementsAre(12, 34));
  EXPECT_THAT(run("input %a: f32[1, 1, 1, 1]\ninput %b: f32[3, 1, 1]\n%y = matmul(%a, %b): f32[1, 3, 1, 1]",
                  {{"a", {2}}, {"b", {1, 2, 3}}}),
              ElementsAre(2, 4, 6));
}

// ---------------------------------------------------------------- adamw

TEST(Values, AdamwTakesTheStepOfThePaper) {
  const std::string text =
      "input %p: f32[1]\ninput %g: f32[1]\ninput %m: f32[1]\ninput %v: f32[1]\ninput %lr: f32[]\ninput %wd: f32[]\ninput %b1: "
      "f32[]\n"
      "input %b2: f32[]\ninput %eps: f32[]\ninput %s: f32[]\ninput %c1: f32[]\ninput %c2: f32[]\ninput %ok: bool[]\n"
      "%p1, %m1, %v1 = adamw(%p, %g, %m, %v, %lr, %wd, %b1, %b2, %eps, %s, %c1, %c2, %ok): f32[1], f32[1], f32[1]";
  Graph graph = ir::parse_graph(text);
  for (const char* name : {"p1", "m1", "v1"}) graph.add_output({name, graph.find(name), {}});
  Given given{{"p", {2}},     {"g", {8}},   {"m", {1}},   {"v", {4}},    {"lr", {0.5}},  {"wd", {0.1}}, {"b1", {0.5}},
              {"b2", {0.75}}, {"eps", {1}}, {"s", {0.5}}, {"c1", {0.5}}, {"c2", {0.25}}, {"ok", {1}}};
  // g = 4; m = 0.5 + 2 = 2.5; v = 3 + 4 = 7; step = 5 / (sqrt(28) + 1); p = 2 - 0.5 (0.2 + step)
  auto results = ir::interpret(graph, tensors(graph, given), {}).outputs;
  EXPECT_DOUBLE_EQ(results["m1"].data[0], 2.5);
  EXPECT_DOUBLE_EQ(results["v1"].data[0], 7);
  EXPECT_DOUBLE_EQ(results["p1"].data[0], 2 - 0.5 * (0.2 + 5 / (std::sqrt(28) + 1)));
  given["ok"] = {0};
  given["g"] = {kNan};
  results = ir::interpret(graph, tensors(graph, given), {}).outputs;
  EXPECT_THAT(results["p1"].data, ElementsAre(2));
  EXPECT_THAT(results["m1"].data, ElementsAre(1));
  EXPECT_THAT(results["v1"].data, ElementsAre(4));
}

}  // namespace
}  // namespace ingot::tests
