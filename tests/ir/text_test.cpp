// The text form: what prints, what parses back, and what is refused where.
#include "ir/graph/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/base/error.h"
#include "ir/graph/builder.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {
namespace {

constexpr PrintOptions kNoLocations{false};

/// The text of a graph that prints as itself.
void expect_fixpoint(const std::string& text) {
  const Graph graph = parse_graph(text, "t.ir");
  EXPECT_EQ(print(graph, kNoLocations), text);
  const std::string located = print(graph);
  const Graph again = parse_graph(located, "other.ir");
  EXPECT_TRUE(same(graph, again)) << located;
  EXPECT_EQ(print(again), located);
}

std::string module_error(const std::string& text) {
  try {
    parse_module(text, "t.ir");
  } catch (const UserError& error) {
    const Diagnostic& d = error.diagnostics().at(0);
    return d.loc.text() + ": " + d.message;
  }
  return "accepted";
}

std::string graph_error(const std::string& text) {
  try {
    parse_graph(text, "t.ir");
  } catch (const UserError& error) {
    const Diagnostic& d = error.diagnostics().at(0);
    return d.loc.text() + ": " + d.message;
  }
  return "accepted";
}

TEST(Text, GraphPrintsAsWritten) {
  expect_fixpoint(R"(graph @loss at model {
  input %x: f32[2, 3]
  param %w: f32[3]
  %0 = constant() {dtype: f32, value: 0.5}: f32[]
  %h = mul(%x, %w): f32[2, 3]
  backward %h.grad = add(%h, %0): f32[2, 3]
  output loss = %h
  output "a b" = %h.grad
  update %w = %w
}
)");
}

TEST(Text, BareLinesMakeAGraph) {
  const Graph graph = parse_graph("input %x: f32[2]\n// a remark\n%y = neg(%x): f32[2]  output y = %y\n");
  EXPECT_EQ(graph.name(), "main");
  EXPECT_EQ(graph.level(), Level::model);
  EXPECT_EQ(graph.ops().size(), 2u);
  EXPECT_EQ(graph.outputs().at(0).name, "y");
}

TEST(Text, RangesBeforeAGraph) {
  std::vector<InputRange> ranges;
  parse_graph("range x 0..4 or [-100]\nrange \"a b\" -1..-1\ninput %x: i32[2]\n", "t.ir", &ranges);
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].hi, 4);
  EXPECT_EQ(ranges[0].also, std::vector<int64_t>{-100});
  EXPECT_EQ(ranges[1].input, "a b");
  EXPECT_EQ(ranges[1].lo, -1);
}

TEST(Text, NamesThatNeedQuotes) {
  expect_fixpoint(
      "graph @\"my graph\" at train {\n"
      "  input %\"a b\": f32[2]\n"
      "  param %\"größe\\\"\\\\\\n\": f32[2]\n"
      "  %0.x = add(%\"a b\", %\"größe\\\"\\\\\\n\"): f32[2]\n"
      "  output \"0\" = %0.x\n"
      "}\n");
}

TEST(Text, AttributesOfEveryReal) {
  Graph graph("g");
  Builder b(graph);
  const double values[] = {0.0,
                           -0.0,
                           1e-5,
                           1.0 / 3,
                           1e300,
                           5e-324,
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()};
  for (double value : values) b.constant(value);
  const Graph again = parse_graph(print(graph));
  EXPECT_TRUE(same(graph, again)) << print(graph);
  EXPECT_TRUE(std::signbit(again.ops()[1].attrs.real("value")));
}

TEST(Text, IntegersStandForReals) {
  const Graph graph = parse_graph("%c = constant() {value: 2}: f32[]\n");
  EXPECT_EQ(graph.ops()[0].attrs.real("value"), 2.0);
}

TEST(Text, HugeIntegers) {
  expect_fixpoint("graph @g at model {\n  input %x: i32[2]\n  output y = %x\n}\n");
  EXPECT_EQ(module_error("range x -9223372036854775808..9223372036854775807 or [-1]"), "accepted");
  EXPECT_EQ(module_error("range x 0..9223372036854775808"),
            "t.ir:1:12: the highest value does not fit 64 bits: 9223372036854775808");
}

TEST(Text, LocationsAndOriginsSurvive) {
  const char* text = R"(graph @g at train {
  input %x: f32[2] loc("models/a b.yaml":3:4)
  %y = neg(%x): f32[2] loc("m.yaml":41:30 from "gradient")
  %z = neg(%y): f32[2] loc(unknown)
  %u = neg(%z): f32[2] loc(unknown from "fold")
  output y = %y loc("m.yaml":50:1)
  update %w = %u loc("m.yaml":51:2)
}
)";
  const Graph graph = parse_graph(text);
  EXPECT_EQ(print(graph), text);
  EXPECT_EQ(graph.ops()[1].loc, derived(make_loc("m.yaml", 41, 30), "gradient"));
  EXPECT_EQ(graph.ops()[2].loc, Loc{});
  EXPECT_EQ(*graph.ops()[3].loc.origin, "fold");
  EXPECT_EQ(graph.outputs()[0].loc, make_loc("m.yaml", 50, 1));
}

TEST(Text, AnAbsentLocationIsThePlaceInTheText) {
  const Graph graph = parse_graph("input %x: f32[2]\n%y = neg(%x): f32[2]\n", "t.ir");
  EXPECT_EQ(graph.ops()[0].loc, make_loc("t.ir", 1, 1));
  EXPECT_EQ(graph.ops()[1].loc, make_loc("t.ir", 2, 6));
}

TEST(Text, AbsentOperandsAndSeveralResults) {
  expect_fixpoint(R"(graph @g at model {
  input %x: f32[2, 5, 3]
  input %starts: i32[2, 5]
  %y, %last = shift(%x, none, %starts): f32[2, 5, 3], f32[2, 3]
  %z, %last.2 = shift(%y, %last, none): f32[2, 5, 3], f32[2, 3]
  output y = %z
}
)");
  const Graph graph = parse_graph("input %x: f32[2, 5, 3]\n%y, %l = shift(%x): f32[2, 5, 3], f32[2, 3]");
  EXPECT_EQ(graph.ops()[1].operands, (std::vector<ValueId>{0, kNone, kNone}));
}

TEST(Text, Regions) {
  expect_fixpoint(R"(graph @g at core {
  input %x: f32[2]
  %0 = fuse(%x) {kind: "row"} (%a: f32[2]) {
    %1 = neg(%a): f32[2]
    yield %1
  }: f32[2]
  %1, %2 = fuse(%x, %0) {kind: "around"} @body at fused (%a: f32[2], backward %b: f32[2]) {
    recompute %c = add(%a, %b): f32[2]
    yield %c, %a
  }: f32[2], f32[2]
  output y = %1
}
)");
}

TEST(TextErrors, Regions) {
  auto error = [](const std::string& rest) {
    return graph_error("input %x: f32[2]\n%y = fuse(%x) {kind: \"row\"} " + rest + ": f32[2]");
  };
  EXPECT_EQ(error("(%a: f32[3]) { yield %a }"), "t.ir:2:6: input %a of the region is f32[3], but %x is f32[2]");
  EXPECT_EQ(error("() { %c = constant() {value: 1.0}: f32[] yield %c }"), "t.ir:2:6: the region has 0 inputs for 1 operands");
  EXPECT_EQ(error("(%a: f32[2]) { yield %x }"), "t.ir:2:50: %x is not made before it is used here; did you mean 'a'?");
  EXPECT_EQ(error("(%a: f32[2]) { }"), "t.ir:2:44: expected 'yield' as the last statement of the region, found '}'");
  EXPECT_EQ(error("(%a: f32[2]) { yield %a, %a }"), "t.ir:2:1: fuse has 2 results, here 1 name stands on the left");
  std::string nested = "(%a: f32[2]) { yield %a }";
  for (int i = 0; i < 20; ++i) nested = "(%a: f32[2]) { %b = fuse(%a) {kind: \"row\"} " + nested + ": f32[2] yield %b }";
  EXPECT_NE(error(nested).find("regions are nested more than 16 deep"), std::string::npos);
}

TEST(Text, AVariableReadUnderAnotherName) {
  expect_fixpoint(R"(graph @g at train {
  param %w: f32[2]
  %w.2 = variable() {name: "w", role: "param"}: f32[2]
  output y = %w.2
}
)");
}

TEST(Text, ModuleWithEveryField) {
  const char* text = R"~(module "my model"
info width = "64"
info "odd key" = "a \"quoted\" text\nof two lines"
param %w: f32[2] = "uniform(-1, 1)" {lr: 2.0, decay: 0.0} loc("m.yaml":7:5)
param %frozen: bf16[2, 3] = "0" {trainable: false} loc("m.yaml":8:5)
state %step: i32[] = "0" loc(unknown)
state %carry: f32[2] = "0" {saved: false} loc(unknown)
hyper %lr: f32[] = "6e-4" loc("m.yaml":9:5)
compute %w.bf16: bf16[2] = "0" loc("m.yaml":7:5 from "autocast")
range tokens 0..100 or [-100, -1] loc("m.yaml":12:1)
range targets -5..5 loc(unknown)
optimizer rule "adamw(lr)" loc("m.yaml":13:1)
optimizer clip "global_norm(clip)" loc("m.yaml":14:1)
pin "*.dt_t"
pin "x"
checkpoint_ignore "blocks.0.*"

graph @a at model {
  input %x: f32[2] loc("m.yaml":20:1)
  param %w: f32[2] loc("m.yaml":20:2)
  %y = mul(%x, %w): f32[2] loc("m.yaml":20:3)
  output y = %y loc("m.yaml":20:4)
}

graph @b at train {
  state %step: i32[] loc("m.yaml":21:1)
  optimizer %0 = neg(%step): i32[] loc("m.yaml":21:2)
  update %step = %0 loc("m.yaml":21:3)
}
)~";
  const Module module = parse_module(text);
  EXPECT_EQ(print(module), text);
  EXPECT_EQ(module.variables[0].lr_factor, 2.0);
  EXPECT_EQ(module.variables[0].decay_factor, 0.0);
  EXPECT_FALSE(module.variables[1].trainable);
  EXPECT_FALSE(module.variables[3].saved);
  EXPECT_EQ(module.variables[5].role, VariableRole::compute);
  EXPECT_EQ(module.ranges[0].also, (std::vector<int64_t>{-100, -1}));
  EXPECT_EQ(module.ranges[1].lo, -5);
  EXPECT_EQ(module.optimizer.clip, "global_norm(clip)");
  EXPECT_EQ(module.optimizer.schedule_loc, Loc{});
  EXPECT_EQ(module.info[1].second, "a \"quoted\" text\nof two lines");
  EXPECT_EQ(module.graph("b").ops()[1].phase, Phase::optimizer);
  EXPECT_TRUE(same(module, parse_module(print(module))));
}

TEST(Text, SameSeesEveryField) {
  const Module base = parse_module(
      "module m\ninfo a = \"1\"\nparam %w: f32[2] = \"0\"\nrange x 0..1\noptimizer rule \"r\"\npin \"p\"\n"
      "checkpoint_ignore \"c\"\ngraph @g { param %w: f32[2] output y = %w update %w = %w }",
      "t.ir");
  EXPECT_TRUE(same(base, base));
  auto differs = [&](auto change) {
    Module other = base;
    change(other);
    return !same(base, other) && !same(other, base);
  };
  EXPECT_TRUE(differs([](Module& m) { m.name = "n"; }));
  EXPECT_TRUE(differs([](Module& m) { m.info[0].second = "2"; }));
  EXPECT_TRUE(differs([](Module& m) { m.variables[0].init = "1"; }));
  EXPECT_TRUE(differs([](Module& m) { m.variables[0].loc = Loc{}; }));
  EXPECT_TRUE(differs([](Module& m) { m.variables[0].decay_factor = -0.0; }));
  EXPECT_TRUE(differs([](Module& m) { m.variables[0].saved = false; }));
  EXPECT_TRUE(differs([](Module& m) { m.ranges[0].hi = 7; }));
  EXPECT_TRUE(differs([](Module& m) { m.optimizer.rule_loc = Loc{}; }));
  EXPECT_TRUE(differs([](Module& m) { m.precision.pin.clear(); }));
  EXPECT_TRUE(differs([](Module& m) { m.checkpoint_ignore.clear(); }));
  EXPECT_TRUE(differs([](Module& m) { m.graphs[0].set_level(Level::train); }));
  EXPECT_TRUE(differs([](Module& m) { m.graphs[0].set_name("h"); }));
  EXPECT_TRUE(differs([](Module& m) { m.graphs[0].add_output({"z", 0, Loc{}}); }));
  EXPECT_TRUE(differs([](Module& m) { m.graphs[0].add_update({"z", 0, Loc{}}); }));
  EXPECT_TRUE(differs([](Module& m) { Builder(m.graphs[0]).neg(0); }));
}

TEST(Text, StructuralHashIgnoresNamesAndPlacesOnly) {
  auto hash = [](const std::string& text) { return structural_hash(parse_graph(text)); };
  const uint64_t base = hash("input %x: f32[2] param %w: f32[2] %y = mul(%x, %w): f32[2] output y = %y");
  EXPECT_EQ(base, hash("graph @other {\n\ninput %a: f32[2] param %v: f32[2] %b = mul(%a, %v): f32[2] output z = %b }"));
  EXPECT_NE(base, hash("input %x: f32[3] param %w: f32[3] %y = mul(%x, %w): f32[3] output y = %y"));
  EXPECT_NE(base, hash("input %x: f32[2] param %w: f32[2] %y = mul(%w, %x): f32[2] output y = %y"));
  EXPECT_NE(base, hash("input %x: f32[2] param %w: f32[2] %y = add(%x, %w): f32[2] output y = %y"));
  EXPECT_NE(base, hash("input %x: f32[2] param %w: f32[2] %y = mul(%x, %w): f32[2] output y = %x"));
  EXPECT_NE(base, hash("input %x: f32[2] state %w: f32[2] %y = mul(%x, %w): f32[2] output y = %y"));
  EXPECT_NE(hash("%c = constant() {value: 0.0}: f32[]"), hash("%c = constant() {value: -0.0}: f32[]"));
}

// ---------------------------------------------------------------- mistakes

TEST(TextErrors, NamesAreSuggested) {
  EXPECT_EQ(graph_error("input %hidden: f32[2]\n%y = neg(%hiden): f32[2]"),
            "t.ir:2:10: %hiden is not made before it is used here; did you mean 'hidden'?");
  EXPECT_EQ(graph_error("input %x: f32[2]\n%y = tahn(%x): f32[2]"), "t.ir:2:6: unknown op 'tahn'; did you mean 'tanh'?");
  EXPECT_EQ(graph_error("input %x: fp32[2]"), "t.ir:1:11: unknown dtype 'fp32'; did you mean 'f32'?");
  EXPECT_EQ(graph_error("%c = constant() {valu: 1.0}: f32[]"),
            "t.ir:1:18: constant has no attribute 'valu'; did you mean 'value'?");
  EXPECT_EQ(graph_error("graph @g at trian { }"),
            "t.ir:1:13: unknown level 'trian' (model, train, core, fused); did you mean 'train'?");
  EXPECT_EQ(graph_error("ouput y = %x"), "t.ir:1:1: expected a statement, found 'ouput'; did you mean 'output'?");
  EXPECT_EQ(module_error("pram %w: f32[2]"), "t.ir:1:1: expected a declaration or a graph, found 'pram'; did you mean 'param'?");
  EXPECT_EQ(module_error("param %weight: f32[2]\ngraph @g {\n  param %wieght: f32[2]\n}"),
            "t.ir:3:9: variable %wieght is not declared before this graph; did you mean 'weight'?");
  EXPECT_EQ(module_error("param %w: f32[2] {decya: 0.0}"), "t.ir:1:19: a variable has no field 'decya'; did you mean 'decay'?");
}

TEST(TextErrors, TypesAreChecked) {
  EXPECT_EQ(graph_error("input %x: f32[2, 3]\n%y = neg(%x): f32[3, 2]"),
            "t.ir:2:1: %y is written as f32[3, 2], but neg makes f32[2, 3]");
  EXPECT_EQ(graph_error("input %x: f32[2]\n%y, %z = neg(%x): f32[2], f32[2]"),
            "t.ir:2:1: neg has 1 result, here 2 names stand on the left");
  EXPECT_EQ(graph_error("input %x: f32[2]\n%y = neg(%x): f32[2], f32[2]\n"),
            "t.ir:2:29: expected 1 types, one for each name on the left; 2 are written, found the end of the text");
  EXPECT_EQ(graph_error("input %x: f32[0]"), "t.ir:1:11: every axis must be at least 1 long, but the type is f32[0]");
  EXPECT_EQ(graph_error("input %x: f32[1099511627776, 1099511627776]"),
            "t.ir:1:11: f32[1099511627776, 1099511627776] is too large: more than 2^40 elements");
  EXPECT_EQ(graph_error("%c = constant() {value: \"x\"}: f32[]"),
            "t.ir:1:25: constant: attribute 'value' is a number, here stands a string");
  EXPECT_EQ(module_error("param %w: f32[2]\ngraph @g {\n  param %w: f32[3]\n}"),
            "t.ir:3:9: %w is read as f32[3], but it is declared as f32[2]");
  EXPECT_EQ(module_error("param %w: f32[2]\ngraph @g {\n  state %w: f32[2]\n}"),
            "t.ir:3:9: %w is read as a state, but it is declared as a param");
  EXPECT_EQ(module_error("param %w: f32[2]\ngraph @g {\n  input %x: f32[3]\n  update %w = %x\n}"),
            "t.ir:4:10: %w is f32[2], but its new value %x is f32[3]");
}

TEST(TextErrors, InferenceIsBlamedOnTheText) {
  try {
    parse_graph("input %x: f32[2, 3]\ninput %z: f32[4]\n%y = add(%x, %z): f32[2, 3] loc(\"m.yaml\":7:9)", "t.ir");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    const Diagnostic& d = error.diagnostics().at(0);
    EXPECT_EQ(d.loc, make_loc("t.ir", 3, 6));
    EXPECT_EQ(d.notes.at(0).loc, make_loc("m.yaml", 7, 9));
    EXPECT_NE(d.message.find("add"), std::string::npos) << d.message;
  }
}

TEST(TextErrors, ThingsNamedTwice) {
  EXPECT_EQ(graph_error("input %x: f32[2]\ninput %x: f32[2]"), "t.ir:2:7: %x is made twice; a name stands for one value");
  EXPECT_EQ(graph_error("input %x: f32[2]\noutput y = %x\noutput y = %x"), "t.ir:3:8: output 'y' is named twice");
  EXPECT_EQ(graph_error("input %x: f32[2]\nupdate %y = %x\nupdate %y = %x"), "t.ir:3:8: %y is updated twice");
  EXPECT_EQ(module_error("param %w: f32[2]\nstate %w: f32[2]"), "t.ir:2:7: %w is declared twice");
  EXPECT_EQ(module_error("graph @g { }\ngraph @g { }"), "t.ir:2:7: there are two graphs @g");
  EXPECT_EQ(graph_error("%c = constant() {value: 1.0, value: 2.0}: f32[]"), "t.ir:1:30: attribute 'value' stands here twice");
}

TEST(TextErrors, Syntax) {
  EXPECT_EQ(graph_error("input %x\n"), "t.ir:1:9: expected ':' and the type, found the end of the text");
  EXPECT_EQ(graph_error("input %x f32[2]"), "t.ir:1:10: expected ':' and the type, found 'f32'");
  EXPECT_EQ(graph_error("input %x: f32[2]\n%y = neg(%x)\noutput y = %y"),
            "t.ir:2:13: expected ':' and the type of the result, found the end of the line");
  EXPECT_EQ(graph_error("graph @g {\n  input %x: f32[2]\n"),
            "t.ir:2:19: expected '}' to end the graph, found the end of the text");
  EXPECT_EQ(graph_error("graph @g { } graph @h { }"), "t.ir:1:14: expected the end of the text, found 'graph'");
  EXPECT_EQ(graph_error("output \"y = %x\n"), "t.ir:1:8: no closing quote on this line");
  EXPECT_EQ(graph_error("output \"\\q\" = %x\n"), "t.ir:1:8: bad escape in \"\\q\" (known: \\\" \\\\ \\n \\t \\xNN)");
  EXPECT_EQ(graph_error("input %: f32[2]"), "t.ir:1:7: expected a name behind %");
  EXPECT_EQ(graph_error("input %\"\": f32[2]"), "t.ir:1:7: a value needs a name");
  EXPECT_EQ(graph_error("input %x: f32[2] \xff"), "t.ir:1:1: the file is not valid UTF-8 text");
  EXPECT_EQ(graph_error("input %x: f32[2] é"), "t.ir:1:18: expected a statement, found 'é'");
  EXPECT_EQ(graph_error(""), "accepted");
  EXPECT_EQ(module_error("\n\nparam"), "t.ir:3:6: expected a %name, found the end of the text");
}

TEST(TextErrors, ReadsAndUpdatesOfUndeclaredVariables) {
  EXPECT_EQ(module_error("graph @g {\n  input %x: f32[2]\n  update %w = %x\n}"),
            "t.ir:3:10: variable %w is not declared before this graph");
  EXPECT_EQ(module_error("graph @g {\n  %x = variable() {name: \"w\", role: \"param\"}: f32[2]\n}"),
            "t.ir:2:8: variable %w is not declared before this graph");
}

}  // namespace
}  // namespace ingot::ir
