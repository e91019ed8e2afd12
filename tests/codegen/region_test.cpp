// Fused row regions on the CPU against the interpreter: neighbours' rows across tiles, column sums, heads, outputs in every
// class.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/graph/text.h"
#include "passes/pass.h"
#include "tests/codegen/emulated_machine.h"
#include "tests/codegen/kernel_bench.h"
#include "tests/common/loss_region.h"
#include "tests/common/random_block.h"
#include "tests/common/random_graph.h"

namespace ingot::testing {
namespace {

class Region : public ingot::testing::OnEachMachine {};
INSTANTIATE_TEST_SUITE_P(On, Region, ingot::testing::kMachines, ingot::testing::machine_name);

// Norm, shift and two lerps, as a block's start; long enough for several tiles, T no divisor of a tile.
std::string mix(int batch, int time, int width, const std::string& dtype = "f32") {
  const std::string x = fmt::format("{}[{}, {}, {}]", dtype, batch, time, width),
                    f = fmt::format("f32[{}, {}, {}]", batch, time, width);
  const std::string row = fmt::format("f32[{}, {}, 1]", batch, time), w = fmt::format("f32[{}]", width);
  return "graph @main at fused {\ninput %x: " + x + "\ninput %w: " + w + "\ninput %m: " + w +
         "\n%y, %z, %n = fuse(%x, %w, %m) {kind: \"row\", rows: " + std::to_string(batch * time) + "} (%a: " + x + ", %b: " + w +
         ", %c: " + w + ") {\n  %f = cast(%a) {dtype: f32}: " + f + "\n  %s = sum(%f) {axes: [2], keep: true}: " + row +
         "\n  %k = constant() {value: 0.125, dtype: f32}: f32[]\n  %e = mul(%s, %k): " + row + "\n  %d = sub(%f, %e): " + f +
         "\n  %g = mul(%d, %b): " + f + "\n  %p = shift_rows(%g) {by: 1}: " + f + "\n  %q = sub(%p, %g): " + f +
         "\n  %r = mul(%q, %c): " + f + "\n  %t = add(%g, %r): " + f + "\n  %u = cast(%t) {dtype: " + dtype + "}: " + x +
         "\n  yield %g, %u, %e\n}: " + f + ", " + x + ", " + row + "\n}";
}

// Gradient of such a mix: the next row's value, column sums into a vector and a scalar, sums per head.
std::string mix_gradient(int batch, int time, int heads, int n) {
  const int width = heads * n;
  const std::string f = fmt::format("f32[{}, {}, {}]", batch, time, width), w = fmt::format("f32[{}]", width);
  const std::string h = fmt::format("f32[{}, {}, {}, {}]", batch, time, heads, n),
                    s = fmt::format("f32[{}, {}, {}, 1]", batch, time, heads);
  return "graph @main at fused {\ninput %x: " + f + "\ninput %d: " + f + "\ninput %w: " + w +
         "\n%g, %cw, %cs, %hs = fuse(%x, %d, %w) {kind: \"row\", rows: " + std::to_string(batch * time) + "} (%a: " + f +
         ", %b: " + f + ", %c: " + w + ") {\n  %m = mul(%b, %c): " + f + "\n  %p = shift_rows(%m) {by: -1}: " + f +
         "\n  %e = add(%b, %p): " + f + "\n  %q = mul(%e, %a): " + f + "\n  %v = sum(%q) {axes: [0, 1], keep: false}: " + w +
         "\n  %o = sum(%q) {axes: [0, 1, 2], keep: false}: f32[]\n  %r = reshape(%q) {shape: " +
         fmt::format("[{}, {}, {}, {}]", batch, time, heads, n) + "}: " + h + "\n  %t = sum(%r) {axes: [3], keep: true}: " + s +
         "\n  %u = mul(%r, %t): " + h + "\n  yield %u, %v, %o, %t\n}: " + h + ", " + w + ", f32[], " + s + "\n}";
}

// Sums of what the row before is part of: made of a row that is the neighbour team's too, which adds it once.
std::string mix_sums(int batch, int time, int width) {
  const std::string f = fmt::format("f32[{}, {}, {}]", batch, time, width), w = fmt::format("f32[{}]", width);
  return "graph @main at fused {\ninput %x: " + f + "\ninput %w: " + w +
         "\n%y, %v, %o = fuse(%x, %w) {kind: \"row\", rows: " + std::to_string(batch * time) + "} (%a: " + f + ", %b: " + w +
         ") {\n  %g = mul(%a, %b): " + f + "\n  %p = shift_rows(%g) {by: 1}: " + f + "\n  %q = sub(%p, %g): " + f +
         "\n  %r = mul(%q, %a): " + f + "\n  %v = sum(%r) {axes: [0, 1], keep: false}: " + w +
         "\n  %o = sum(%r) {axes: [0, 1, 2], keep: false}: f32[]\n  yield %q, %v, %o\n}: " + f + ", " + w + ", f32[]\n}";
}

// Sums along rows that come out as they are, of rows made for the next row's sake too: a row before the first has no place.
std::string row_sums(int batch, int time, int width) {
  const std::string f = fmt::format("f32[{}, {}, {}]", batch, time, width), row = fmt::format("f32[{}, {}, 1]", batch, time);
  return "graph @main at fused {\ninput %x: " + f +
         "\n%y, %s, %m = fuse(%x) {kind: \"row\", rows: " + std::to_string(batch * time) + "} (%a: " + f +
         ") {\n  %s = sum(%a) {axes: [2], keep: true}: " + row + "\n  %d = sub(%a, %s): " + f +
         "\n  %p = shift_rows(%d) {by: 1}: " + f + "\n  %q = mul(%p, %d): " + f +
         "\n  %m = max(%q) {axes: [2], keep: true}: " + row + "\n  %t = sub(%q, %m): " + f + "\n  yield %t, %s, %m\n}: " + f +
         ", " + row + ", " + row + "\n}";
}

TEST_P(Region, SumsAlongRowsOfTheNeighboursToo) {
  KernelBench bench(machine());
  bench.set_tolerance(1e-5);
  for (const auto& [batch, time, width] : {std::tuple(1, 1, 64), std::tuple(3, 17, 256), std::tuple(2, 300, 768)})
    bench.add(row_sums(batch, time, width));
  bench.run();
}

TEST_P(Region, NeighbourRowsAcrossTiles) {
  KernelBench bench(machine());
  for (const auto& [batch, time, width] :
       {std::tuple(3, 700, 40), std::tuple(1, 1, 8), std::tuple(2, 1, 5), std::tuple(1, 37, 64), std::tuple(2, 1031, 33)}) {
    bench.add(mix(batch, time, width));
  }
  bench.add(mix(2, 300, 64, "bf16"));
  bench.run();
}

// Numbers of rows that leave the last block's teams fewer rows than the others, or none.
TEST_P(Region, SumsOfNeighbourRowsAcrossTiles) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (const auto& [batch, time, width] : {std::tuple(1, 9, 32), std::tuple(1, 17, 64), std::tuple(2, 20, 512),
                                           std::tuple(1, 40, 1024), std::tuple(3, 35, 200), std::tuple(2, 700, 40)}) {
    bench.add(mix_sums(batch, time, width));
  }
  bench.run();
}

TEST_P(Region, NextRowsColumnSumsAndHeads) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (const auto& [batch, time, heads, n] :
       {std::tuple(2, 900, 3, 16), std::tuple(1, 3, 2, 4), std::tuple(2, 513, 1, 32), std::tuple(4, 257, 2, 20)}) {
    bench.add(mix_gradient(batch, time, heads, n));
  }
  bench.run();
}

// A row's norm and its gradient's sums: values of a row, a reduction along whole rows and sums over the rows in one region.
std::string row_norm(int rows, int width, const std::string& dtype) {
  const std::string x = fmt::format("{}[{}, {}]", dtype, rows, width), f = fmt::format("f32[{}, {}]", rows, width);
  const std::string row = fmt::format("f32[{}, 1]", rows), w = fmt::format("f32[{}]", width);
  return "graph @main at fused {\ninput %x: " + x + "\ninput %d: " + x + "\ninput %w: " + w +
         "\n%y, %m, %gw, %gs = fuse(%x, %d, %w) {kind: \"row\", rows: " + std::to_string(rows) + "} (%a: " + x + ", %b: " + x +
         ", %c: " + w + ") {\n  %f = cast(%a) {dtype: f32}: " + f + "\n  %m = max(%f) {axes: [1], keep: true}: " + row +
         "\n  %s = sub(%f, %m): " + f + "\n  %e = exp(%s): " + f + "\n  %t = sum(%e) {axes: [1], keep: true}: " + row +
         "\n  %p = div(%e, %t): " + f + "\n  %q = mul(%p, %c): " + f + "\n  %g = mul(%q, %b): " + f +
         "\n  %gw = sum(%g) {axes: [0], keep: false}: " + w + "\n  %gs = sum(%g) {axes: [0, 1], keep: false}: f32[]" +
         "\n  %y = cast(%q) {dtype: " + dtype + "}: " + x + "\n  yield %y, %m, %gw, %gs\n}: " + x + ", " + row + ", " + w +
         ", f32[]\n}";
}

TEST_P(Region, RowsUpToAVocabulary) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (const auto& [rows, width] : {std::pair(300, 7), std::pair(40, 96), std::pair(9, 768), std::pair(19, 2048),
                                    std::pair(2, 4096), std::pair(5, 10001), std::pair(3, 20000), std::pair(2, 65536)}) {
    bench.add(row_norm(rows, width, width % 32 == 0 ? "bf16" : "f32"));
  }
  bench.run();
}

// Softmax and its gradient in one, as the head of a language model has it: swept over again, stored where the logits were.
TEST_P(Region, GradientsStandOnLogits) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (const auto& [rows, width, dtype] : {std::tuple(70, 96, "f32"), std::tuple(5, 4096, "bf16"), std::tuple(3, 20000, "bf16"),
                                           std::tuple(2, 10001, "f32"), std::tuple(1, 640, "f32")}) {
    const std::string x = fmt::format("{}[{}, {}]", dtype, rows, width), f = fmt::format("f32[{}, {}]", rows, width);
    const std::string row = fmt::format("f32[{}, 1]", rows);
    bench.add("graph @main at fused {\ninput %x: " + x + "\ninput %t: f32[" + std::to_string(rows) +
              ", 1]\n%y, %l = fuse(%x, %t) {kind: \"row\", rows: " + std::to_string(rows) + "} (%a: " + x + ", %b: " + row +
              ") {\n  %f = cast(%a) {dtype: f32}: " + f + "\n  %m = max(%f) {axes: [1], keep: true}: " + row +
              "\n  %s = sub(%f, %m): " + f + "\n  %e = exp(%s): " + f + "\n  %z = sum(%e) {axes: [1], keep: true}: " + row +
              "\n  %g = log(%z): " + row + "\n  %l = add(%g, %m): " + row + "\n  %p = div(%e, %z): " + f +
              "\n  %q = mul(%p, %b): " + f + "\n  %y = cast(%q) {dtype: " + dtype + "}: " + x + "\n  yield %y, %l\n}: " + x +
              ", " + row + "\n}");
  }
  EXPECT_EQ(bench.in_place(), 5);
  bench.run();
}

// Rows that shared memory holds, some blocks with several of them, and such that do not fit; targets in one piece and anywhere,
// rows that do not count, largest logits that are many.
TEST_P(Region, LossesOverAVocabulary) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  int cases = 0;
  const auto add = [&](int rows, int width, const char* dtype, const std::string& targets, double lo = -4, double hi = 4) {
    bench.add(tests::loss_region(rows, width, dtype, targets), lo, hi);
    ++cases;
  };
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    for (const int width : {256, 20000, 20002, 9001}) add(3, width, dtype, fmt::format("-1..{}", width - 1));
  }
  add(2, 65536, "bf16", "0..65535");
  add(1, 50257, "f32", "50256..50256");
  add(2, 50258, "f16", "-1..0");
  add(1, 131072, "bf16", "0..131071");
  add(2, 70000, "f32", "0..69999");
  add(2, 30000, "bf16", "0..29999", 0.5, 0.5);
  EXPECT_EQ(bench.in_place(), cases);
  bench.run();
}

TEST_P(Region, SeveralWideRowsABlock) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  bench.add(tests::loss_region(280, 36008, "bf16", "-1..36007"));
  bench.run();
}

constexpr const char* kStep = R"(graph @main at fused {
input %p: f32[R, C]
input %g: GRAD[R, C]
input %m: f32[R, C]
input %v: f32[R, C]
input %s: f32[]
input %lr: f32[]
%p1, %m1, %v1, %c, %n = fuse(%p, %g, %m, %v, %s, %lr) {kind: "row", rows: R}
    (%a: f32[R, C], %b: GRAD[R, C], %d: f32[R, C], %e: f32[R, C], %h: f32[], %i: f32[]) {
  %n = sqrt(%h): f32[]
  %one = constant() {value: 1.0, dtype: f32}: f32[]
  %half = constant() {value: 0.5, dtype: f32}: f32[]
  %ok = isfinite(%n): bool[]
  %x = maximum(%n, %one): f32[]
  %y = div(%one, %x): f32[]
  %r = iota() {shape: [R, 1], axis: 0, dtype: i32}: i32[R, 1]
  %k = constant() {value: 3.0, dtype: i32}: i32[]
  %w = lt(%r, %k): bool[R, 1]
  %z = select(%w, %one, %half): f32[R, 1]
  %l = mul(%i, %z): f32[R, 1]
  %p1, %m1, %v1 = adamw(%a, %b, %d, %e, %l, %half, %half, %half, %half, %y, %one, %one, %ok): f32[R, C], f32[R, C], f32[R, C]
  %q = slice(%p1) {starts: [0, 0], sizes: [SOME, C]}: f32[SOME, C]
  %c = cast(%q) {dtype: bf16}: bf16[SOME, C]
  yield %p1, %m1, %v1, %c, %n
}: f32[R, C], f32[R, C], f32[R, C], bf16[SOME, C], f32[]
})";

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += by.size()) text.replace(at, word.size(), by);
  return text;
}

// An optimizer's step in one: numbers of the step first, a rate by row, the rule in place, a narrow copy of the first rows,
// numbers that come out.
TEST_P(Region, AnOptimizerStepIsOneKernel) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (const auto& [rows, some, columns, grad] :
       {std::tuple(40, 11, 4096, "f32"), std::tuple(300, 299, 96, "bf16"), std::tuple(7, 7, 33, "f32"),
        std::tuple(1, 1, 256, "bf16"), std::tuple(9, 2, 70000, "f32")}) {
    std::string text = replaced(replaced(kStep, "GRAD", grad), "SOME", std::to_string(some));
    text = replaced(replaced(text, "[R", "[" + std::to_string(rows)), ": R}", ": " + std::to_string(rows) + "}");
    bench.add(replaced(text, ", C]", ", " + std::to_string(columns) + "]"), 0.1, 0.9);
  }
  EXPECT_EQ(bench.in_place(), 5);
  bench.run();
}

// The same where its numbers come as partials that the kernel adds: few, one for each thread and more, not as many for each.
TEST_P(Region, ANumberIsAddedByTheRegionThatReadsIt) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  int kernels = 0;
  for (const auto& [rows, columns, partials] :
       {std::tuple(40, 4096, 264), std::tuple(7, 33, 1), std::tuple(300, 96, 1000), std::tuple(9, 70000, 31)}) {
    bench.give_partials(partials);
    std::string text = replaced(replaced(kStep, "GRAD", "f32"), "SOME", std::to_string(rows));
    text = replaced(replaced(text, "[R", "[" + std::to_string(rows)), ": R}", ": " + std::to_string(rows) + "}");
    bench.add(replaced(text, ", C]", ", " + std::to_string(columns) + "]"), 0.1, 0.9);
    ++kernels;
  }
  EXPECT_GE(bench.added(), 4 * kernels);
  bench.run();
}

// A norm of all, as the optimizer takes it: one row, whose heads may be rows; and rows of heads that are too long for registers.
TEST_P(Region, HeadsOfRowsOfAnyLength) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (const auto& [rows, heads, n] :
       {std::tuple(1, 300, 96), std::tuple(1, 2, 4096), std::tuple(3, 5, 8192), std::tuple(2, 3, 30000)}) {
    const std::string x = fmt::format("f32[{}, {}]", rows, heads * n), h = fmt::format("f32[{}, {}, {}]", rows, heads, n);
    const std::string s = fmt::format("f32[{}, {}]", rows, heads), r = fmt::format("f32[{}]", rows);
    bench.add("graph @main at fused {\ninput %x: " + x + "\n%n, %p = fuse(%x) {kind: \"row\", rows: " + std::to_string(rows) +
              "} (%a: " + x + ") {\n  %b = reshape(%a) {shape: " + fmt::format("[{}, {}, {}]", rows, heads, n) + "}: " + h +
              "\n  %q = square(%b): " + h + "\n  %s = sum(%q) {axes: [2], keep: false}: " + s +
              "\n  %n = sum(%s) {axes: [1], keep: false}: " + r + "\n  yield %n, %s\n}: " + r + ", " + s + "\n}");
  }
  bench.run();
}

TEST_P(Region, NeighbourRowsOfWideRows) {
  KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (const auto& [batch, time, width] :
       {std::tuple(2, 9, 768), std::tuple(1, 30, 2048), std::tuple(2, 5, 12288), std::tuple(1, 3, 10001)}) {
    bench.add(mix(batch, time, width));
  }
  bench.add(mix(1, 40, 1024, "bf16"));
  for (const auto& [batch, time, heads, n] :
       {std::tuple(2, 7, 16, 48), std::tuple(1, 6, 3, 96), std::tuple(1, 21, 32, 64), std::tuple(1, 5, 5, 100)}) {
    bench.add(mix_gradient(batch, time, heads, n));
  }
  bench.run();
}

// What `fuse` makes of random graphs of elementwise ops, reductions and views.
TEST_P(Region, RandomRegions) {
  KernelBench bench(machine());
  bench.set_tolerance(1e-4);
  int regions = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    tests::RandomGraphOptions options;
    options.seed = seed;
    options.ops = 8;
    options.variables = false;
    options.level = ir::Level::core;
    options.accept = [](const ir::OpDef& def) {
      return std::holds_alternative<ir::ReduceLowering>(def.lowering) || std::holds_alternative<ir::ViewLowering>(def.lowering) ||
             (std::holds_alternative<ir::ScalarLowering>(def.lowering) && def.gradient && def.aliases.empty());
    };
    ir::Module module = tests::random_module(options);
    const ir::Graph fused = passes::run_pipeline(module.graphs.front(), module, passes::parse_pipeline("dce, fuse"));
    tests::Random random(seed);
    const auto inputs = tests::random_inputs(fused, random, 0.5, 1.5, module.ranges);
    int here = 0;
    for (const ir::Op& op : fused.ops()) here += op.region != nullptr;
    if (here == 0) continue;
    regions += here;
    bench.add(ir::print(fused, {false}), inputs);
  }
  EXPECT_GT(regions, 50);
  EXPECT_GT(bench.in_place(), 10) << "some regions must be written over their operands";
  bench.run();
}

// Random blocks with their backward, stored in 16 bits: what is rounded where it is made, made again, and read at other rows.
TEST_P(Region, RandomTrainingInSixteenBits) {
  KernelBench bench(machine());
  // A value on the edge of two roundings may fall to either side, and what is made of it in the same kernel follows.
  bench.set_tolerance(8e-3);
  int regions = 0;
  for (uint64_t seed = 0; seed < 25; ++seed) {
    ir::Module module;
    module.variables = {tests::BlockMaker::vector(), tests::BlockMaker::matrix()};
    module.graphs.push_back(tests::BlockMaker(seed, ir::Level::model).make_loss(10));
    const ir::Graph fused = passes::run_pipeline(
        module.graphs.front(), module,
        passes::parse_pipeline("autocast{dtype=bf16}, autodiff, decompose, canonicalize, cse, dce, recompute{narrow=bf16}, dce, "
                               "fuse{narrow=bf16}"));
    tests::Random random(seed);
    auto inputs = tests::random_inputs(fused, random);
    inputs.merge(tests::random_variables(fused, random));
    for (const ir::Op& op : fused.ops()) regions += op.region != nullptr;
    // One graph alone: its variables are inputs.
    std::string text = ir::print(fused, {false});
    for (size_t at = 0; (at = text.find("  param %", at)) != std::string::npos;) text.replace(at, 8, "  input ");
    bench.add(text, inputs);
  }
  EXPECT_GT(regions, 50);
  bench.run();
}

}  // namespace
}  // namespace ingot::testing
