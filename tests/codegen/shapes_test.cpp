// The CPU target on shapes the examples do not reach: odd sizes, axes of length 1, every kind of broadcast, lengths that cross
// task and block boundaries, every dtype.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/collapse.h"
#include "tests/codegen/emulated_machine.h"
#include "tests/codegen/kernel_bench.h"

namespace ingot {
namespace {

class Shapes : public ingot::testing::OnEachMachine {};
INSTANTIATE_TEST_SUITE_P(On, Shapes, ingot::testing::kMachines, ingot::testing::machine_name);

using ir::Shape;

Shape random_shape(testing::Random& random, int64_t rank, int64_t most) {
  static constexpr int64_t kSizes[] = {1, 1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 65};
  Shape shape;
  for (int64_t elements = 1; static_cast<int64_t>(shape.size()) < rank;) {
    int64_t size = kSizes[random.bits() % std::size(kSizes)];
    if (elements * size > most) size = 1;
    elements *= size;
    shape.push_back(size);
  }
  return shape;
}

/// The shape with some axes made 1 and some leading axes left out.
Shape broadcast_of(testing::Random& random, const Shape& shape) {
  Shape out;
  for (int64_t size : shape) out.push_back(random.integer(0, 2) == 0 ? 1 : size);
  if (!out.empty() && random.integer(0, 2) == 0)
    out.erase(out.begin(), out.begin() + random.integer(0, static_cast<int64_t>(out.size())));
  return out;
}

std::string any_float(testing::Random& random) {
  static constexpr const char* kFloats[] = {"f32", "bf16", "f16"};
  return kFloats[random.bits() % 3];
}

std::string any_dtype(testing::Random& random) {
  static constexpr const char* kDtypes[] = {"f32", "bf16", "f16", "i32", "i64"};
  return kDtypes[random.bits() % 5];
}

ir::Type type_of(const std::string& dtype, const Shape& shape) { return {*ir::dtype_from_name(dtype), shape}; }

TEST_P(Shapes, BroadcastsOfEveryKind) {
  testing::KernelBench bench(machine());
  testing::Random random(11);
  for (int n = 0; n < 120; ++n) {
    const Shape shape = random_shape(random, random.integer(0, 5), 6000);
    // Few dtypes, many patterns of axes: each pair of them is a kernel.
    const std::string dtype = n % 8 == 0 ? any_float(random) : "f32";
    const ir::Type a = type_of(dtype, broadcast_of(random, shape)),
                   b = type_of(n % 8 == 1 ? any_float(random) : dtype, broadcast_of(random, shape));
    const ir::Type c{ir::promote({a, b}), *ir::broadcast_shapes(a.shape, b.shape)};
    bench.add(fmt::format("input %a: {}\ninput %b: {}\n%c = sub(%a, %b): {}\n", a.text(), b.text(), c.text()), -2, 2, {},
              random.bits());
  }
  bench.run();
}

TEST_P(Shapes, SelectOfThreeShapesAndIntegers) {
  testing::KernelBench bench(machine());
  bench.add("input %m: bool[7, 1]\ninput %a: f32[7, 33]\ninput %b: f32[33]\n%c = select(%m, %a, %b): f32[7, 33]\n");
  bench.add("input %m: bool[33]\ninput %a: bf16[5, 7, 33]\ninput %b: bf16[7, 1]\n%c = select(%m, %a, %b): bf16[5, 7, 33]\n");
  bench.add("range a -50..50\nrange b -7..7\ninput %a: i32[9, 37]\ninput %b: i64[37]\n%c = mod(%a, %b): i64[9, 37]\n");
  bench.add("input %a: f32[3, 41]\n%c = cast(%a) {dtype: i32}: i32[3, 41]\n%d = cast(%a) {dtype: bool}: bool[3, 41]\n", -90, 90);
  bench.add("input %a: f32[20000]\n%c = exp(%a): f32[20000]\n%d = tanh(%a): f32[20000]\n", -20, 20);
  bench.add("input %a: f32[3, 40000]\ninput %b: f32[3, 1]\n%c = mul(%a, %b): f32[3, 40000]\n");
  bench.add("input %a: f16[300, 70]\n%c = sigmoid(%a): f16[300, 70]\n%d = cast(%c) {dtype: bf16}: bf16[300, 70]\n", -9, 9);
  bench.run();
}

TEST_P(Shapes, SpecialValuesPassThroughEveryFloat) {
  testing::KernelBench bench(machine());
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    ir::Tensor x(type_of(dtype, {40}));
    const double special[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1e-8, -1e-8, 6e4};
    for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = ir::round_to(x.type.dtype, special[i % std::size(special)]);
    for (const char* op : {"neg", "relu", "exp", "sigmoid", "tanh", "isfinite"}) {
      const bool yes = std::string(op) == "isfinite";
      bench.add(fmt::format("input %x: {0}[40]\n%y = {1}(%x): {2}[40]\n", dtype, op, yes ? "bool" : dtype), {{"x", x}});
    }
    bench.add(fmt::format("input %x: {0}[40]\n%y = max(%x) {{axes: [0], keep: false}}: {0}[]\n", dtype), {{"x", x}});
  }
  bench.run();
}

std::string list(const std::vector<int64_t>& items) { return fmt::format("[{}]", fmt::join(items, ", ")); }

TEST_P(Shapes, ReductionsOverEveryChoiceOfAxes) {
  testing::KernelBench bench(machine());
  testing::Random random(12);
  for (int n = 0; n < 150; ++n) {
    const Shape shape = random_shape(random, random.integer(1, 5), 40000);
    std::vector<int64_t> axes;
    Shape left;
    const bool keep = random.integer(0, 1) == 1;
    for (size_t k = 0; k < shape.size(); ++k) {
      const bool reduced = random.integer(0, 1) == 1;
      if (reduced) axes.push_back(static_cast<int64_t>(k));
      if (!reduced)
        left.push_back(shape[k]);
      else if (keep)
        left.push_back(1);
    }
    const char* op = n % 3 == 0 ? "max" : n % 3 == 1 ? "min" : "sum";
    if (axes.empty()) continue;
    const ir::Type x = type_of(n % 2 == 0 ? "f32" : any_dtype(random), shape), y{x.dtype, left};
    bench.add(fmt::format("input %x: {}\n%y = {}(%x) {{axes: {}, keep: {}}}: {}\n", x.text(), op, list(axes), keep, y.text()), -1,
              1, {}, random.bits());
  }
  bench.run();
}

TEST_P(Shapes, LongReductionsGoThroughPartialResults) {
  testing::KernelBench bench(machine());
  bench.add("input %x: f32[100003]\n%y = sum(%x) {axes: [0]}: f32[]\n");
  bench.add("input %x: f32[3, 70001]\n%y = sum(%x) {axes: [1]}: f32[3]\n%z = max(%x) {axes: [0, 1]}: f32[]\n");
  bench.add("input %x: f32[3001, 37]\n%y = sum(%x) {axes: [0]}: f32[37]\n");
  bench.add(
      "input %x: bf16[2, 1500, 65]\n%y = sum(%x) {axes: [1], dtype: f32}: f32[2, 65]\n%z = sum(%x) {axes: [0, 1]}: bf16[65]\n");
  bench.add("input %x: f32[40, 3000]\n%y = sum(%x) {axes: [0]}: f32[3000]\n%z = min(%x) {axes: [0]}: f32[3000]\n");
  bench.add("input %x: f32[9, 33, 7, 65]\n%y = sum(%x) {axes: [0, 2]}: f32[33, 65]\n%z = sum(%x) {axes: [1, 3]}: f32[9, 7]\n");
  bench.add(
      "range x -1000000..1000000\ninput %x: i64[50000]\n%y = sum(%x) {axes: [0]}: i64[]\n%z = max(%x) {axes: [0]}: i64[]\n");
  bench.add("input %x: f32[40000, 2]\n%y = sum(%x) {axes: [0]}: f32[2]\n");
  bench.run();
}

TEST_P(Shapes, Scans) {
  testing::KernelBench bench(machine());
  testing::Random random(13);
  for (int n = 0; n < 40; ++n) {
    const Shape shape = random_shape(random, random.integer(1, 4), 5000);
    const ir::Type x = type_of(n % 4 == 0 ? any_dtype(random) : "f32", shape);
    const int64_t axis = random.integer(0, static_cast<int64_t>(shape.size()) - 1);
    bench.add(fmt::format("input %x: {0}\n%y = cumsum(%x) {{axis: {1}, reverse: {2}, exclusive: {3}}}: {0}\n", x.text(), axis,
                          random.integer(0, 1) == 1, random.integer(0, 1) == 1),
              -1, 1, {}, random.bits());
  }
  bench.run();
}

TEST_P(Shapes, ViewsOfEveryKind) {
  testing::KernelBench bench(machine());
  testing::Random random(14);
  for (int n = 0; n < 60; ++n) {
    const std::string dtype = n % 5 == 0 ? any_dtype(random) : "f32";
    const Shape shape = random_shape(random, random.integer(1, 5), 9000);
    std::vector<int64_t> perm, starts, sizes;
    for (size_t k = 0; k < shape.size(); ++k) perm.push_back(static_cast<int64_t>(k));
    for (size_t k = perm.size(); k > 1; --k) std::swap(perm[k - 1], perm[random.bits() % k]);
    Shape turned;
    for (int64_t axis : perm) turned.push_back(shape[static_cast<size_t>(axis)]);
    for (int64_t size : shape) {
      starts.push_back(random.integer(0, size - 1));
      sizes.push_back(random.integer(1, size - starts.back()));
    }
    const std::string x = fmt::format("input %x: {}\n", type_of(dtype, shape).text());
    bench.add(x + fmt::format("%y = transpose(%x) {{perm: {}}}: {}\n", list(perm), type_of(dtype, turned).text()));
    bench.add(x + fmt::format("%y = slice(%x) {{starts: {}, sizes: {}}}: {}\n", list(starts), list(sizes),
                              type_of(dtype, sizes).text()));
    const auto axis = static_cast<size_t>(random.integer(0, static_cast<int64_t>(shape.size()) - 1));
    Shape longer = shape;
    longer[axis] *= 3;
    bench.add(x + fmt::format("%y = repeat(%x) {{times: 3, axis: {}}}: {}\n", axis, type_of(dtype, longer).text()));
    bench.add(fmt::format("input %x: {}\n%y = broadcast(%x) {{shape: {}}}: {}\n",
                          type_of(dtype, broadcast_of(random, shape)).text(), list(shape), type_of(dtype, shape).text()));
  }
  bench.add("input %x: f32[300, 500]\n%y = transpose(%x) {perm: [1, 0]}: f32[500, 300]\n");
  bench.add("input %x: bf16[3, 70, 5, 90]\n%y = transpose(%x) {perm: [0, 3, 2, 1]}: bf16[3, 90, 5, 70]\n");
  bench.add("input %x: f32[70, 5, 90]\n%y = transpose(%x) {perm: [2, 0, 1]}: f32[90, 70, 5]\n");
  bench.run();
}

TEST_P(Shapes, Shifts) {
  testing::KernelBench bench(machine());
  for (int64_t by : {-40, -2, -1, 1, 2, 40}) {
    for (const char* shape : {"[2, 17, 33]", "[1, 1, 5]", "[3, 40, 1]", "[2, 9, 3, 5]"}) {
      for (const char* dtype : {"f32", "bf16"})
        bench.add(fmt::format("input %x: {0}{1}\n%y = shift_rows(%x) {{by: {2}}}: {0}{1}\n", dtype, shape, by));
    }
  }
  bench.run();
}

TEST_P(Shapes, ConcatGatherAndPut) {
  testing::KernelBench bench(machine());
  bench.add(
      "input %a: f32[3, 5, 7]\ninput %b: f32[3, 1, 7]\ninput %c: f32[3, 65, 7]\n%y = concat(%a, %b, %c) {axis: 1}: f32[3, 71, "
      "7]\n");
  bench.add("input %a: bf16[9000]\ninput %b: bf16[17]\n%y = concat(%a, %b) {axis: 0}: bf16[9017]\n");
  bench.add("input %a: f32[33, 5]\ninput %b: f32[33, 64]\n%y = concat(%a, %b) {axis: 1}: f32[33, 69]\n");
  bench.add("range i 0..100\ninput %i: i32[5, 77]\ninput %t: f32[101, 65]\n%y = embedding(%i, %t): f32[5, 77, 65]\n");
  bench.add("range i 0..9\ninput %i: i64[300]\ninput %t: bf16[10, 33]\n%y = embedding(%i, %t): bf16[300, 33]\n");
  bench.add(
      "range i 0..100\ninput %i: i32[5, 77]\ninput %x: f32[5, 77, 65]\n%y = embedding_grad(%i, %x) {rows: 101}: f32[101, 65]\n");
  // More rows than one step of the scan over them takes.
  bench.add("range i 0..8999\ninput %i: i32[700]\ninput %x: bf16[700, 8]\n%y = embedding_grad(%i, %x) {rows: 9001}: f32[9001, 8]\n");
  bench.add("range i 3..5\ninput %i: i64[700]\ninput %x: bf16[700, 600]\n%y = embedding_grad(%i, %x) {rows: 40}: f32[40, 600]\n");
  bench.run();
}

/// Run apart and in place (the bench does both where an op declares aliases), over several tasks and a ragged end.
TEST_P(Shapes, TheOptimizersUpdateInPlace) {
  testing::KernelBench bench(machine());
  for (const char* shape : {"[20001]", "[33, 65]"}) {
    for (const char* grad : {"f32", "bf16"}) {
      std::string text = fmt::format("input %p: f32{0}\ninput %g: {1}{0}\ninput %m: f32{0}\ninput %v: f32{0}\n", shape, grad),
                  list;
      for (const char* name : {"lr", "decay", "beta1", "beta2", "eps", "scale", "correction1", "correction2"}) {
        text += fmt::format("input %{}: f32[]\n", name);
        list += fmt::format(", %{}", name);
      }
      text +=
          fmt::format("input %ok: bool[]\n%p1, %m1, %v1 = adamw(%p, %g, %m, %v{0}, %ok): f32{1}, f32{1}, f32{1}\n", list, shape);
      for (uint64_t seed : {1, 2, 3}) bench.add(text, 0.1, 0.9, {}, seed);
    }
  }
  bench.run();
}

TEST_P(Shapes, GeneratedValues) {
  testing::KernelBench bench(machine());
  bench.add("%i = iota() {shape: [7, 3000, 5], axis: 1}: i32[7, 3000, 5]\n");
  bench.add("%i = iota() {shape: [40000], axis: 0, dtype: i64}: i64[40000]\n");
  bench.add(
      "%c = constant() {value: 16777217.0, dtype: i32}: i32[]\n%d = constant() {value: -1e-30}: f32[]\n%e = constant() {value: "
      "inf, dtype: bf16}: bf16[]\n");
  bench.run();
}

TEST(Collapse, CollapsedAxesTellApartOnlyWhatDiffers) {
  using codegen::collapse;
  EXPECT_EQ(collapse({2, 3, 4}, {{2, 3, 4}, {2, 3, 4}}).size(), 1u);
  EXPECT_EQ(collapse({2, 3, 4}, {{2, 3, 4}, {4}}).size(), 2u);
  EXPECT_EQ(collapse({2, 3, 4}, {{2, 3, 4}, {3, 1}}).size(), 3u);
  EXPECT_EQ(collapse({2, 1, 4}, {{2, 1, 4}, {1, 1, 1}}).front().size, 8);
  EXPECT_EQ(collapse({}, {{}, {}}).front().size, 1);
}

}  // namespace
}  // namespace ingot
