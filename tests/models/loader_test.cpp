// What the language allows, on small models; and what cannot be a file in tests/models/errors/.
#include "models/loader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "ir/base/error.h"
#include "ir/graph/op_def.h"
#include "ir/graph/verify.h"
#include "tests/common/places.h"

namespace ingot::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Overrides = std::vector<std::pair<std::string, std::string>>;

const std::string kTiny = tests::source_file("tests/models/errors/base_tiny.yaml");

/// A model laid over base_tiny.yaml.
LoadedModel load(const std::string& text, LoadOptions options = {}) {
  LoadedModel model = load_model_text("extends: base_tiny.yaml\n" + text,
                                      std::filesystem::path(kTiny).replace_filename("m.yaml").string(), options);
  ir::verify(model.module);
  return model;
}

std::string mistakes(const std::string& text, LoadOptions options = {}) {
  try {
    load_model_text(text, std::filesystem::path(kTiny).replace_filename("m.yaml").string(), options);
  } catch (const ir::UserError& e) {
    std::string out;
    for (const ir::Diagnostic& d : e.diagnostics()) out += fmt::format("{}:{}: {}\n", d.loc.line, d.loc.col, d.message);
    return out;
  }
  return "";
}

/// "op(operand, ...)" of the op that makes a value of @loss.
std::string maker(const LoadedModel& model, const std::string& value, std::string_view graph_name = "loss") {
  const ir::Graph& graph = model.module.graph(graph_name);
  const ir::ValueId id = graph.find(value);
  if (id == ir::kNone) return "nothing";
  std::string out(graph.maker(id).name());
  std::string operands;
  for (ir::ValueId operand : graph.maker(id).operands)
    operands += (operands.empty() ? "" : ", ") + (operand == ir::kNone ? "none" : graph.value(operand).name);
  return out + "(" + operands + ")";
}

std::string type(const LoadedModel& model, const std::string& value) {
  const ir::Graph& graph = model.module.graph("loss");
  return graph.find(value) == ir::kNone ? "nothing" : graph.type(graph.find(value)).text();
}

TEST(Loader, LaterModelsWaitForTheirOps) {
  const auto first = [](const std::string& name) {
    try {
      load_model(tests::source_file("models/" + name));
    } catch (const ir::UserError& e) {
      return fmt::format("{}: {}", std::filesystem::path(e.diagnostics()[0].loc.text()).filename().string(),
                         e.diagnostics()[0].message);
    }
    return std::string("loads");
  };
  EXPECT_THAT(first("rwkvx.yaml"), HasSubstr("rwkvx.yaml:33:29: unknown op `moba`"));
  EXPECT_THAT(first("mamba3.yaml"), HasSubstr("mamba3.yaml:65:12: unknown op `mamba3_scan`"));
}

TEST(Loader, TheTinyModel) {
  const LoadedModel model = load("");
  EXPECT_EQ(model.module.name, "m");
  EXPECT_EQ(maker(model, "e"), "embedding(tokens, emb.weight)");
  EXPECT_EQ(maker(model, "logits"), "linear(e, head.weight, none)");
  EXPECT_EQ(model.sources.size(), 2u);
  EXPECT_EQ(model.module.info.front(), std::pair(std::string("vocab"), std::string("7")));
}

TEST(Loader, MapsMergeKeyByKeyAndTheRestIsReplaced) {
  const LoadedModel model = load(
      "model: other\nconfig:\n  width: 2 * vocab\n  twice: 2\ngraph:\n  - e: twice * embedding(tokens, emb.weight)\n  - logits: "
      "linear(e, head.weight)\n");
  EXPECT_EQ(model.module.name, "other");
  EXPECT_EQ(type(model, "e"), "f32[2, 3, 14]");  // a key of the file laid over, in a size of the file below
  EXPECT_EQ(maker(model, "e"), "mul(0, e.embedding)");
}

TEST(Loader, OverridesBeatTheFileAndTheLastWins) {
  LoadOptions options;
  options.overrides = {{"width", "5"}, {"vocab", "width + 1"}, {"width", "6"}, {"lr", "2e-3"}};
  const LoadedModel model = load("", options);
  EXPECT_EQ(type(model, "logits"), "f32[2, 3, 7]");
  EXPECT_EQ(model.config.at("vocab").number(), 7);
  EXPECT_EQ(model.train.at("lr"), 2e-3);
}

TEST(Loader, EveryModelTakesTheTokenThatEndsADocument) {
  LoadOptions options;
  options.overrides = {{"eod", "vocab - 1"}};
  const LoadedModel model = load("", options);
  EXPECT_THAT(model.module.info, testing::Contains(std::pair<std::string, std::string>("eod", "6")));
  EXPECT_THAT(load("config:\n  eod: 2\n").module.info, testing::Contains(std::pair<std::string, std::string>("eod", "2")));
  EXPECT_THAT(load("").module.info, testing::Not(testing::Contains(testing::Key("eod"))));
}

TEST(Loader, EveryUnquotedNumberIsOne) {
  for (const std::string number : {"1e-4", "1.e-4", "1E-4", "0.0001  # a comment", ".0001"}) {
    EXPECT_EQ(load("train:\n  lr: " + number + "\n").train.at("lr"), 1e-4) << number;
  }
}

TEST(Loader, TextAndBooleansInConfig) {
  const std::string graph =
      "graph:\n  - e: embedding(tokens, emb.weight) when kind == \"plain\" and not flag\n  - e: tanh(embedding(tokens, "
      "emb.weight)) when kind != \"plain\" or flag\n  - logits: linear(e, head.weight)\n";
  EXPECT_THAT(maker(load("config:\n  kind: \"plain\"\n  flag: false\n" + graph), "e"), HasSubstr("embedding"));
  LoadOptions options;
  options.overrides = {{"kind", "other"}};
  EXPECT_THAT(maker(load("config:\n  kind: \"plain\"\n  flag: false\n" + graph, options), "e"), HasSubstr("tanh"));
}

TEST(Loader, AnchorsAreAllowed) {
  std::string text = "precision:\n  pin: [";
  for (int i = 0; i < 20; ++i) text += fmt::format("{}&p{} \"*.weight\"", i ? ", " : "", i);
  for (int i = 0; i < 20; ++i) text += fmt::format(", *p{}", i);
  EXPECT_THAT(load(text + "]\n").module.precision.pin, ElementsAre("*.weight"));
}

TEST(Loader, CarriageReturnsBeforeLineFeeds) {
  const LoadedModel model = load("config:\r\n  width: 3 + 2\r\n");
  EXPECT_EQ(model.config.at("width").number(), 5);
}

TEST(Loader, ArgumentsMeetTheSignature) {
  const LoadedModel model = load(R"(graph:
  - e: embedding(table=emb.weight, ids=tokens)
  - total: sum(e, axis=-1, keep=true)
  - all: sum(e)
  - biggest: max(e, total)
  - most: max(e, axis=[0, 1])
  - joined: concat(e, e, axis=2)
  - listed: concat([e, total], axis=-1)
  - half: cast(e, bf16)
  - y, last: shift(e)
  - z: shift(y, state=last)
  - logits: linear(z, head.weight, none) + all + sum(most) + sum(joined) + sum(listed) + sum(half) + sum(biggest)
)");
  EXPECT_EQ(type(model, "total"), "f32[2, 3, 1]");
  EXPECT_EQ(type(model, "all"), "f32[]");
  EXPECT_EQ(maker(model, "biggest"), "maximum(e, total)");
  EXPECT_EQ(type(model, "most"), "f32[4]");
  EXPECT_EQ(type(model, "joined"), "f32[2, 3, 8]");
  EXPECT_EQ(type(model, "listed"), "f32[2, 3, 5]");
  EXPECT_EQ(type(model, "half"), "bf16[2, 3, 4]");
  EXPECT_EQ(type(model, "last"), "f32[2, 4]");
  EXPECT_EQ(maker(model, "z"), "shift(y, last, none)");
  EXPECT_EQ(maker(model, "logits.linear"), "linear(z, head.weight, none)");
}

TEST(Loader, OperatorsAndConstantParts) {
  const LoadedModel model = load(R"(graph:
  - e: embedding(tokens, emb.weight)
  - f: -e % (2 * width + 1) + e @ reshape(e, [batch, width, time]) @ e
  - g: select(e >= 0 and not (f == e), e, sqrt(4) - f)
  - logits: linear(g, head.weight)
)");
  const ir::Graph& graph = model.module.graph("loss");
  EXPECT_EQ(maker(model, "f"), "add(f.mod, f.matmul.2)");
  EXPECT_EQ(graph.maker(graph.maker(graph.find("f.mod")).operands[1]).attrs.real("value"), 9);  // folded before the model runs
  EXPECT_EQ(maker(model, "g"), "select(g.logical_and, e, g.sub)");
  EXPECT_EQ(graph.maker(graph.maker(graph.find("g.sub")).operands[0]).attrs.real("value"), 2);
}

TEST(Loader, SplitMakesSlices) {
  const LoadedModel model = load(R"(graph:
  - e: embedding(tokens, emb.weight)
  - a, b: split(e, [1, width - 1])
  - c, d: split(e, [1, 2], axis=1)
  - logits: linear(e, head.weight) + sum(a) + sum(b) + sum(c) + sum(d)
)");
  EXPECT_EQ(type(model, "a"), "f32[2, 3, 1]");
  EXPECT_EQ(type(model, "b"), "f32[2, 3, 3]");
  EXPECT_EQ(type(model, "d"), "f32[2, 2, 4]");
  const ir::Graph& graph = model.module.graph("loss");
  EXPECT_THAT(graph.maker(graph.find("d")).attrs.integers("starts"), ElementsAre(0, 1, 0));
}

/// Three blocks of two kinds; `first` is made by the first and passes the second by.
const std::string kStack = R"(config:
  kinds: [plain, side, plain]
blocks:
  plain:
    in: x, first
    out: y, f
    use: {mix: half}
    params:
      w: f32[width, width] = (1 + layer) / (10 * layers)
      g: f32[width] = 0 when nth > 0
    graph:
      - f: mix(x) when nth == 0
      - f: first + g when nth > 0
      - y: linear(x, w) + f
  side:
    in: x
    out: x
    graph:
      - _note: tanh(x)
  half:
    in: a
    out: b
    params:
      w: f32[width] = nth + 2 when nth == 0
    graph:
      - b: 0.5 * a * w
stack:
  blocks: kinds
  prefix: deep.{layer}
  carry: x, first
graph:
  - e: embedding(tokens, emb.weight)
  - last, first: stack(e, none)
  - logits: linear(last, head.weight)
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(Loader, TheStackCarriesValuesAndBlocksUseBlocks) {
  const LoadedModel model = load(kStack);
  EXPECT_EQ(model.module.find_variable("deep.0.w")->init, "0.03333333333333333");  // (1 + 0) / (10 * 3)
  EXPECT_EQ(model.module.find_variable("deep.2.w")->init, "0.1");
  EXPECT_EQ(model.module.find_variable("deep.0.mix.w")->init, "2");
  EXPECT_EQ(model.module.find_variable("deep.0.g"), nullptr);
  EXPECT_EQ(model.module.find_variable("deep.2.g")->init, "0");
  EXPECT_EQ(maker(model, "deep.0.mix.b"), "mul(deep.0.mix.b.mul, deep.0.mix.w)");
  EXPECT_EQ(maker(model, "deep.2.y"), "add(deep.2.y.linear, deep.2.f)");
  EXPECT_EQ(maker(model, "deep.2.f"), "add(deep.0.mix.b, deep.2.g)");
  EXPECT_EQ(maker(model, "logits"), "linear(deep.2.y, head.weight, none)");
}

TEST(Loader, AParameterThatNoTakenStatementReadsIsReported) {
  const std::string text = replaced(kStack, " when nth == 0\n    graph", "\n    graph");
  EXPECT_THAT(mistakes("extends: base_tiny.yaml\n" + text), HasSubstr("the parameter deep.2.mix.w exists, but no statement"));
}

TEST(Loader, TwoParametersOfOneName) {
  const std::string text = kStack + "params:\n  deep.0.mix.w: f32[width] = 1\n";
  EXPECT_THAT(mistakes("extends: base_tiny.yaml\n" + text), HasSubstr("two parameters would be called deep.0.mix.w"));
}

TEST(Loader, AListOfBlocksOnTheCommandLineSetsLayers) {
  LoadOptions options;
  options.overrides = {{"width", "64"}, {"vocab", "11"}, {"blocks", "[rwkv7, rwkv7]"}};
  const LoadedModel model = load_model(tests::source_file("models/rwkv7.yaml"), options);
  EXPECT_EQ(model.config.at("layers").number(), 2);
  EXPECT_EQ(model.module.find_variable("blocks.1.att.ln_x.weight")->init, "1");  // pow((1 + 1) / 2, 0.7)
}

TEST(Loader, ARandomLetIsDrawnOnceAndTheRestIsFolded) {
  const LoadedModel model = load(R"(config:
  kinds: [b]
blocks:
  b:
    in: x
    out: y
    let:
      lo: log(0.5)
      dt: max(exp(uniform(lo, log(1))), 1e-4)
      twice: 2 * dt
      ramp: i / (width - 1)
      mixed: ramp * layers
    params:
      bias: f32[width] = dt + log(-expm1(-dt)) + twice
      slope: f32[width] = mixed - pow(ramp, 2 + 1)
      both: f32[vocab, width] = select(i < j, -1, 2 * lo)
    graph:
      - y: x + bias * slope + sum(both)
stack: {blocks: kinds, prefix: "b.{layer}", carry: x}
graph:
  - last: stack(embedding(tokens, emb.weight))
  - logits: linear(last, head.weight)
)");
  const auto init = [&](const std::string& name) { return model.module.find_variable(name)->init; };
  EXPECT_EQ(init("b.0.bias"),
            "let dt = max(exp(uniform(-0.6931471805599453, 0)), 0.0001); let twice = 2 * dt; dt + log(-expm1(-dt)) + twice");
  EXPECT_EQ(init("b.0.slope"), "i / 3 * 1 - pow(i / 3, 3)");
  EXPECT_EQ(init("b.0.both"), "select(i < j, -1, -1.3862943611198906)");
}

TEST(Loader, ATrainScalarIsReadFromItsVariable) {
  const LoadedModel model = load("train:\n  weight: 0.5\nloss: weight * sum(logits) + sum(targets)\n");
  EXPECT_EQ(maker(model, "loss.mul"), "mul(weight, loss.sum)");
  EXPECT_EQ(model.module.find_variable("weight")->role, ir::VariableRole::hyper);
}

TEST(Loader, ALossOfOneResultCountsOne) {
  const LoadedModel model = load("loss: sum(logits) + sum(targets)\n");
  const ir::Graph& graph = model.module.graph("loss");
  EXPECT_EQ(graph.type(graph.find_output("loss")->value).text(), "f32[]");
  EXPECT_EQ(graph.maker(graph.find_output("count")->value).attrs.real("value"), 1);
}

TEST(Loader, DebugOutputsByFullName) {
  LoadOptions options;
  options.outputs = {"e", "deep.0.mix.b", "deep.0.f"};  // deep.0.f is another name of deep.0.mix.b
  const LoadedModel model = load(kStack, options);
  const ir::Graph& graph = model.module.graph("loss");
  EXPECT_NE(graph.find_output("deep.0.mix.b"), nullptr);
  EXPECT_EQ(graph.find_output("deep.0.f")->value, graph.find_output("deep.0.mix.b")->value);
  EXPECT_EQ(model.module.graph("decode").find_output("e"), nullptr);
  options.outputs = {"deep.0.mix.c"};
  EXPECT_THAT(mistakes("extends: base_tiny.yaml\n" + kStack, options),
              HasSubstr("the model has no value `deep.0.mix.c`; did you mean `deep.0.mix.b`?"));
}

TEST(Loader, PinsMeanNamesAndTheResidualIsTheFirstCarriedValue) {
  const LoadedModel model = load(kStack + "precision:\n  residual: f32\n  pin: [\"*.f\", \"*.g\"]\n");
  // deep.0.f is a name of deep.0.mix.b, which is made of `e` elementwise; `side` returns what it got.
  EXPECT_THAT(model.module.precision.pin,
              ElementsAre("*.f", "*.g", "deep.0.mix.b", "e", "deep.0.mix.b.mul", "deep.0.y", "deep.2.y"));
}

TEST(Loader, APatternMaySpeakOfBlocksThatThisStackLeavesOut) {
  LoadOptions options;
  options.overrides = {{"kinds", "[plain]"}};
  EXPECT_THAT(load(kStack + "precision:\n  pin: [\"deep.0._note\"]\n", options).module.precision.pin,
              ElementsAre("deep.0._note"));
  EXPECT_THAT(mistakes("extends: base_tiny.yaml\n" + kStack + "precision:\n  pin: [\"deep.1._note\"]\n", options),
              HasSubstr("no value and no parameter is called deep.1._note"));
}

TEST(Loader, TheResidualHoldsTheSumsInsideBlocks) {
  LoadOptions options;
  options.overrides = {{"width", "64"}, {"vocab", "11"}, {"layers", "2"}};
  const std::string file = tests::source_file("models/m.yaml");
  const LoadedModel model = load_model_text("extends: rwkv7.yaml\nprecision:\n  residual: f32\n", file, options);
  EXPECT_THAT(model.module.precision.pin, ElementsAre("x0", "blocks.0.x1", "blocks.0.y", "blocks.1.x1", "blocks.1.y"));
}

TEST(Loader, TheDecodeGraphNeedsNoTargets) {
  const LoadedModel model = load(R"(graph:
  - e: embedding(tokens, emb.weight)
  - logits: linear(e, head.weight)
  - seen: select(targets >= 0, 1, 0)
loss: sum(logits) + sum(seen)
)");
  EXPECT_EQ(model.no_decode, "");
  const ir::Graph& decode = model.module.graph("decode");
  EXPECT_EQ(decode.find("targets"), ir::kNone);
  EXPECT_EQ(decode.find("seen"), ir::kNone);
  EXPECT_EQ(decode.type(decode.find("logits")).text(), "f32[1, 1, 7]");
}

TEST(Loader, SomeModelsCannotDecode) {
  const LoadedModel position = load(R"(params:
  place.weight: f32[time, width] = 0
graph:
  - e: embedding(tokens, emb.weight) + place.weight
  - logits: linear(e, head.weight)
)");
  EXPECT_EQ(position.module.find_graph("decode"), nullptr);
  EXPECT_THAT(position.no_decode, HasSubstr("place.weight depends on batch or time"));
}

TEST(Loader, ReplacedTextsCountAsUses) {
  // `depth` and the block `side` are used by what the command line replaces.
  LoadOptions options;
  options.overrides = {{"kinds", "[plain]"}, {"scale", "2"}};
  const std::string text = replaced(kStack, "  kinds:", "  depth: 3\n  scale: 2 * depth\n  kinds:");
  EXPECT_EQ(load(replaced(text, "linear(last,", "scale * linear(last,"), options).config.at("layers").number(), 1);
}

TEST(Loader, TheExampleOfTheReadmeLoads) {
  std::ifstream in(tests::source_file("models/README.md"));
  std::string text, line;
  while (std::getline(in, line) && line != "```yaml") {
  }
  while (std::getline(in, line) && line != "```") text += line + "\n";
  const LoadedModel model = load_model_text(text, "readme.yaml");
  ir::verify(model.module);
  EXPECT_EQ(type(model, "logits"), "f32[8, 128, 256]");
  EXPECT_EQ(model.no_decode, "");
}

// ---------------------------------------------------------------- files that are not text, or no files

TEST(Loader, FilesThatCannotBeModels) {
  EXPECT_THAT(mistakes(""), HasSubstr("1:1: this file is empty"));
  EXPECT_THAT(mistakes("\n\n  \n"), HasSubstr("1:1: this file is empty"));
  EXPECT_THAT(mistakes("# nothing but a comment\n"), HasSubstr("1:1: this file is empty"));
  EXPECT_THAT(mistakes("---\n"), HasSubstr("this file is empty"));
  EXPECT_THAT(mistakes("\xef\xbb\xbfmodel: a\n"), HasSubstr("byte order mark"));
  EXPECT_THAT(mistakes(std::string("\xff\xfem\0", 4)), HasSubstr("UTF-16"));
  EXPECT_THAT(mistakes("a: " + std::string(2000000, 'x')), HasSubstr("a model file has at most 1048576"));
  EXPECT_THAT(mistakes("a: b\rc: d\n"), HasSubstr("1:5: a carriage return inside a line"));
}

TEST(Loader, DamagedFilesEndInASentenceOrLoad) {
  std::ifstream in(tests::source_file("models/rwkv7.yaml"));
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const std::string pieces[] = {"[",   "]",  "{",   "}", "(", ")", ": ", "- ", "\n",    "  ",    "\"", "'",
                                "&a ", "*a", " # ", "|", ">", "!", "%",  "@",  "1e300", "when ", ",",  "="};
  LoadOptions options;
  options.overrides = {{"layers", "1"}, {"width", "64"}, {"vocab", "11"}};
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string text = whole;
    const size_t at = random() % text.size();
    if (i % 3 == 0) text.erase(at, 1 + random() % 12);
    if (i % 3 == 1) text.insert(at, pieces[random() % std::size(pieces)]);
    if (i % 3 == 2) text.insert(at, whole.substr(random() % whole.size(), random() % 30));
    try {
      ir::verify(load_model_text(text, "damaged.yaml", options).module);
    } catch (const ir::UserError& e) {  // anything else fails the test
      EXPECT_TRUE(e.diagnostics()[0].loc.known()) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
}

TEST(Loader, AFileThatIsNotThere) {
  try {
    load_model("/nowhere/x.yaml");
    FAIL();
  } catch (const ir::UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("/nowhere/x.yaml: cannot read this file: No such file or directory"));
  }
  EXPECT_THROW(load_model("/tmp"), ir::UserError);
}

TEST(Loader, HostileLengthsEndInASentence) {
  std::string chain = "extends: base_tiny.yaml\nconfig:\n";
  for (int i = 0; i < 5000; ++i) chain += fmt::format("  _k{}: _k{}\n", i, i + 1);
  EXPECT_THAT(mistakes(chain + "  _k5000: 1\n"), HasSubstr("chain of more than 100 keys"));
  EXPECT_THAT(mistakes("extends: base_tiny.yaml\nconfig:\n  _a: " + std::string(5000, '(') + "1\n"),
              HasSubstr("nests more than 200 deep"));
  std::string lets;
  for (int i = 0; i < 40; ++i) lets += fmt::format("      l{}: l{} + l{}\n", i, i + 1, i + 1);
  const std::string text = replaced(kStack, "    params:\n", "    let:\n" + lets + "      l40: i\n    params:\n");
  EXPECT_THAT(mistakes("extends: base_tiny.yaml\n" + replaced(text, "(1 + layer)", "l0")),
              HasSubstr("too long when its `let` names are put in"));
  LoadOptions options;
  options.overrides = {{"layers", "1e9"}};
  try {
    load_model(tests::source_file("models/rwkv7.yaml"), options);
    FAIL();
  } catch (const ir::UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("a list of 0 to 10000 items"));
  }
}

}  // namespace
}  // namespace ingot::models
