// Products of mixed rows taken apart: values and gradients are those of what the author wrote, and the rule is kept to.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "passes/algebra.h"
#include "passes/pass.h"
#include "tests/common/random_graph.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

using testing::HasSubstr;

/// Three products of mixes of x over batch * time rows of 16, with a loss that reads all; `shift` is how rows move.
std::string model(int64_t batch, int64_t time, const std::string& shift) {
  const std::string rows = fmt::format("f32[{}, {}, 16]", batch, time);
  std::string text = "module m\n";
  for (const char* name : {"mu.a", "mu.b", "mu.c"}) text += fmt::format("param %{}: f32[1, 1, 16] = \"0\"\n", name);
  text +=
      "param %w.a: f32[16, 1] = \"0\"\nparam %w.b: f32[16, 2] = \"0\"\nparam %w.c: f32[16, 2] = \"0\"\nparam %g: f32[16] = "
      "\"0\"\n";
  text += fmt::format(
      "graph @loss at model {{\n  input %in: {0}\n  param %g: f32[16]\n  %x = mul(%in, %g): {0}\n  {1}\n  %d = sub(%p, %x): "
      "{0}\n",
      rows, fmt::format(fmt::runtime(shift), rows, fmt::format("f32[{}, 16]", batch)));
  std::string sum;
  for (const auto& [name, width] : {std::pair("a", 1), std::pair("b", 2), std::pair("c", 2)}) {
    text += fmt::format(
        "  param %mu.{0}: f32[1, 1, 16]\n  param %w.{0}: f32[16, {1}]\n  %s.{0} = mul(%d, %mu.{0}): {2}\n  %m.{0} = add(%x, "
        "%s.{0}): {2}\n  %y.{0} = matmul(%m.{0}, %w.{0}): f32[{3}, {4}, {1}]\n  %t.{0} = tanh(%y.{0}): f32[{3}, {4}, {1}]\n"
        "  %l.{0} = sum(%t.{0}) {{axes: [0, 1, 2]}}: f32[]\n",
        name, width, rows, batch, time);
  }
  return text +
         "  %l.ab = add(%l.a, %l.b): f32[]\n  %loss = add(%l.ab, %l.c): f32[]\n  output loss = %loss\n  output y = %y.b\n}\n";
}

constexpr const char* kShift = "%p, %last = shift(%x): {0}, {1}";

int products(const ir::Graph& graph) {
  int count = 0;
  for (const ir::Op& op : graph.ops()) count += passes::is_gemm(op);
  return count;
}

struct Both {
  ir::Graph before, after;
  double apart = 0;
};

Both both_ways(const std::string& text, const std::string& lerp, const std::string& rest) {
  ir::Module module = read_module(text);
  const ir::Graph loss = module.graphs.front();
  const auto through = [&](const std::string& pipeline) {
    return passes::run_pipeline(loss, module, passes::parse_pipeline(pipeline));
  };
  Both both{through(rest), through(lerp + ", " + rest)};
  Random random(3);
  const Named inputs = random_inputs(loss, random), variables = random_variables(loss, random);
  both.apart =
      distance(evaluate(both.before, inputs, variables, {false, false}), evaluate(both.after, inputs, variables, {false, false}));
  return both;
}

constexpr const char* kGradients = "autodiff, decompose, canonicalize, cse, dce";

TEST(Lerp, ValuesAndGradientsAreTheSame) {
  const struct {
    int64_t batch, time;
    const char* shift;
  } cases[] = {{8, 600, kShift},
               {4800, 1, kShift},
               {1, 4800, "%p = shift_rows(%x) {{by: 3}}: {0}"},
               {24, 200, "%p = shift_rows(%x) {{by: -1}}: {0}"},
               {2400, 2, "%p = shift_rows(%x) {{by: 2}}: {0}"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(fmt::format("{} {} {}", c.batch, c.time, c.shift));
    for (const char* rest : {"decompose", kGradients}) {
      const Both f32 = both_ways(model(c.batch, c.time, c.shift), "lerp{flops_per_byte=1000, gradients=true}", rest);
      EXPECT_LE(f32.apart, 1e-11);
      EXPECT_LT(products(f32.after), products(f32.before));
    }
    // Without its roundings the 16-bit graph is the same, too.
    const Both narrow = both_ways(model(c.batch, c.time, c.shift), "lerp{flops_per_byte=1000, gradients=true, dtype=bf16}",
                                  std::string("autocast{dtype=bf16}, ") + kGradients);
    EXPECT_LE(narrow.apart, 1e-11);
    EXPECT_LT(products(narrow.after), products(narrow.before));
  }
}

// The gradient of the one product is put side by side, and that of the weights is not rounded on its way.
TEST(Lerp, OneProductEachWay) {
  const Both both = both_ways(model(8, 600, kShift), "lerp{flops_per_byte=1000, gradients=true, dtype=bf16}",
                              std::string("autocast{dtype=bf16}, ") + kGradients);
  EXPECT_EQ(products(both.before), 9);
  EXPECT_EQ(products(both.after), 3) << text_of(both.after);
  int packs = 0;
  for (const ir::Op& op : both.after.ops()) {
    if (ir::lowering_as<ir::PackLowering>(op)) ++packs;
    if (!passes::is_gemm(op) || !op.attrs.boolean("ta")) continue;
    EXPECT_EQ(both.after.type(op.results[0]), (ir::Type{ir::DType::f32, {16, 10}}));
  }
  EXPECT_EQ(packs, 3);  // weights; gradients, and these beside themselves moved
}

TEST(Lerp, SaysWhatItSavesAndCosts) {
  ir::Module module = read_module(model(8, 600, kShift));
  passes::PipelineOptions options;
  std::vector<std::string> remarks;
  options.remarks = &remarks;
  const auto run = [&](const std::string& pipeline) {
    remarks.clear();
    return passes::run_pipeline(module.graphs.front(), module, passes::parse_pipeline(pipeline), options);
  };
  run("lerp{flops_per_byte=10, gradients=true, explain=true}");
  ASSERT_EQ(remarks.size(), 3u);
  EXPECT_THAT(remarks[0], HasSubstr(": taken: %y.a [1 columns]: -"));
  EXPECT_THAT(remarks[2], HasSubstr(": taken: %y.c [2 columns] with the 2 narrower ones over %x: "));
  // 2 * 4800 * 16 * 5 operations, and as many for each gradient.
  EXPECT_THAT(remarks[2], HasSubstr("; 0.002304 GFLOP more"));
  run("lerp{flops_per_byte=0.5, gradients=true, explain=true}");
  ASSERT_EQ(remarks.size(), 3u);
  for (const std::string& remark : remarks) EXPECT_THAT(remark, HasSubstr(": not taken: "));
  run("lerp{flops_per_byte=1}");
  EXPECT_TRUE(remarks.empty());
}

// 60000 rows are one tile of which 4 are made at once: the device has room for the columns that are added.
TEST(Lerp, ColumnsOfTilesThatAreMadeAnywayCostNothing) {
  ir::Module module = read_module(model(20, 3000, kShift));
  passes::PipelineOptions options;
  std::vector<std::string> remarks;
  options.remarks = &remarks;
  const ir::Graph after = passes::run_pipeline(
      module.graphs.front(), module,
      passes::parse_pipeline("lerp{flops_per_byte=1e-6, tile_rows=65536, tile_columns=128, tiles_at_a_time=4, explain=true}"),
      options);
  EXPECT_EQ(products(after), 1);
  ASSERT_EQ(remarks.size(), 3u);
  // One round of 4 tiles instead of three, of sums over 16.
  EXPECT_THAT(remarks[2], HasSubstr("; -2.147 GFLOP more"));
}

// No member of the family is taken when taking it would lose: wide products stay.
TEST(Lerp, TakesTheNarrowOnesOfAFamily) {
  ir::Module module = read_module(R"(
module m
param %mu: f32[64] = "0"
param %nu: f32[64] = "0"
param %w: f32[64, 2] = "0"
param %v: f32[64, 512] = "0"
graph @loss at model {
  input %x: f32[2, 512, 64]
  param %mu: f32[64]
  param %nu: f32[64]
  param %w: f32[64, 2]
  param %v: f32[64, 512]
  %p = shift_rows(%x) {by: 1}: f32[2, 512, 64]
  %d = sub(%p, %x): f32[2, 512, 64]
  %s = mul(%d, %mu): f32[2, 512, 64]
  %m = add(%x, %s): f32[2, 512, 64]
  %wide = matmul(%m, %v): f32[2, 512, 512]
  %s2 = mul(%d, %nu): f32[2, 512, 64]
  %m2 = add(%x, %s2): f32[2, 512, 64]
  %narrow = matmul(%m2, %w): f32[2, 512, 2]
  output wide = %wide
  output narrow = %narrow
}
)");
  const ir::Graph after = passes::run_pipeline(module.graphs.front(), module, passes::parse_pipeline("lerp{flops_per_byte=20}"));
  std::vector<ir::Shape> shapes;
  for (const ir::Op& op : after.ops()) {
    if (passes::is_gemm(op)) shapes.push_back(after.type(op.results[0]).shape);
  }
  EXPECT_EQ(shapes, (std::vector<ir::Shape>{{2, 512, 512}, {2, 512, 4}}));
}

}  // namespace
}  // namespace ingot::tests
