// Sums of partial rows, added by one launch for many of them: each gets the bits that a launch of its own gives it.
#include "codegen/sums.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ir/graph/text.h"
#include "tests/codegen/emulated_machine.h"
#include "tests/codegen/kernel_bench.h"

namespace ingot {
namespace {

using codegen::Launch;
using codegen::LaunchArg;
using codegen::RowSum;
using testing::Guarded;

class Sums : public ingot::testing::OnEachMachine {};
INSTANTIATE_TEST_SUITE_P(On, Sums, ingot::testing::kMachines, ingot::testing::machine_name);

/// As many as the target lets wait: rows around rounds of loads, widths around blocks, dtypes mixed.
std::vector<RowSum> some_sums(const codegen::Target& target) {
  static constexpr int64_t kRows[] = {1, 7, 8, 9, 127, 128, 129, 264, 265}, kWidths[] = {1, 31, 32, 33, 64, 100, 257};
  static constexpr ir::DType kTypes[] = {ir::DType::f32, ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  testing::Random random(11);
  std::vector<RowSum> sums(target.sum_limits().sums);
  for (RowSum& sum : sums) {
    sum = {kRows[random.bits() % std::size(kRows)], kWidths[random.bits() % std::size(kWidths)],
           kTypes[random.bits() % std::size(kTypes)]};
    sum.plus = sum.dtype == ir::DType::f32 && random.bits() % 2 == 0;
  }
  return sums;
}

struct Data {
  ir::Type partial_type, result_type;
  Guarded partials, plus, result;
  explicit Data(const RowSum& sum)
      : partial_type{ir::DType::f32, {sum.rows, sum.width}},
        result_type{sum.dtype, {sum.width}},
        partials(partial_type.bytes(), 0),
        plus(result_type.bytes(), 0xff),
        result(result_type.bytes(), 0xff) {}
};

TEST_P(Sums, AddedTogetherAsEachByItself) {
  const auto machine = this->machine();
  const std::vector<RowSum> sums = some_sums(machine->target());
  std::vector<Launch> launches = {machine->target().add_sums(sums)};
  for (const RowSum& sum : sums) launches.push_back(machine->target().add_sums({sum}));
  std::map<std::string, std::string> names;  // of texts
  std::vector<codegen::KernelText> kernels;
  for (const Launch& launch : launches) {
    const auto [at, fresh] = names.try_emplace(launch.text, fmt::format("sums{}", names.size()));
    if (!fresh) continue;
    std::string text = launch.text;
    for (size_t hit; (hit = text.find("KERNEL")) != std::string::npos;) text.replace(hit, 6, at->second);
    kernels.push_back({at->second, text});
  }
  EXPECT_EQ(kernels.size(), 5u) << "no shape stands in a text: all together, three dtypes, and one with what it is added to";
  machine->build(kernels);

  testing::Random random(12);
  std::vector<Data> together;
  for (const RowSum& sum : sums) {
    Data& data = together.emplace_back(sum);
    std::vector<double> values(static_cast<size_t>(data.partial_type.elements()));
    for (double& value : values) value = random.uniform(-1, 1);
    testing::store_doubles(data.partial_type, values, data.partials.data());
    values.resize(static_cast<size_t>(sum.width));
    for (double& value : values) value = random.uniform(-1, 1);
    if (sum.plus) testing::store_doubles(data.result_type, values, data.plus.data());
  }
  std::vector<Data> apart = together;
  const auto run = [&](const Launch& launch, Data* data) {
    std::vector<Guarded*> args;
    for (const LaunchArg& arg : launch.args) {
      Data& of = data[arg.index];
      const bool plus = &data[0] == together.data() ? sums[static_cast<size_t>(arg.index)].plus : launch.args.size() > 2;
      args.push_back(arg.kind == LaunchArg::Kind::workspace ? &of.partials
                     : arg.kind == LaunchArg::Kind::result  ? &of.result
                     : plus                                 ? &of.plus
                                                            : nullptr);
    }
    machine->run(names.at(launch.text), launch, args);
  };
  run(launches[0], together.data());
  for (size_t k = 0; k < sums.size(); ++k) run(launches[k + 1], &apart[k]);

  for (size_t k = 0; k < sums.size(); ++k) {
    Data& data = together[k];
    const std::string what = fmt::format("sum {} of {} x {}", k, sums[k].rows, sums[k].width);
    EXPECT_TRUE(data.partials.intact() && data.result.intact()) << what;
    EXPECT_EQ(data.result.storage(), apart[k].result.storage()) << what;
    const std::vector<double> rows = testing::load_doubles(data.partial_type, data.partials.data());
    const std::vector<double> got = testing::load_doubles(data.result_type, data.result.data());
    for (size_t c = 0; c < got.size(); ++c) {
      double want = sums[k].plus ? testing::load_doubles(data.result_type, data.plus.data())[c] : 0;
      for (int64_t row = 0; row < sums[k].rows; ++row) want += rows[static_cast<size_t>(row) * got.size() + c];
      const double rounding = (sums[k].dtype == ir::DType::f32 ? 1e-6 : 4e-3) * (std::fabs(want) + 1);
      ASSERT_NEAR(got[c], want, rounding + 1e-6 * static_cast<double>(sums[k].rows)) << what << " column " << c;
    }
  }
}

// A number comes out the same whether a call adds its partials or the region that reads it.
TEST_P(Sums, ANumberHasTheSameBitsWhoeverAddsIt) {
  const auto machine = this->machine();
  const ir::Graph graph = ir::parse_graph(
      "graph @main at fused {\ninput %x: f32[40, 64]\ninput %n: f32[]\n%y = fuse(%x, %n) {kind: \"row\", rows: 40} (%a: f32[40, "
      "64], "
      "%b: f32[]) {\n  %0 = mul(%a, %b): f32[40, 64]\n  yield %0\n}: f32[40, 64]\n}");
  const ir::Op& op = graph.ops().back();
  std::vector<codegen::KernelText> kernels;
  const auto named = [&](const Launch& launch, const std::string& name) {
    std::string text = launch.text;
    for (size_t hit; (hit = text.find("KERNEL")) != std::string::npos;) text.replace(hit, 6, name);
    kernels.push_back({name, text});
  };
  static constexpr int64_t kRows[] = {1, 7, 8, 9, 127, 128, 129, 264, 1000};
  std::vector<codegen::OpLaunches> readers;
  named(machine->target().add_sums({{kRows[0], 1, ir::DType::f32}}), "sum");
  for (const int64_t rows : kRows) {
    readers.push_back(machine->target().lower({graph, op, {false}, {}, {{1, rows}}}));
    ASSERT_EQ(readers.back().added, std::vector<int>{1});
    named(readers.back().launches.at(0), fmt::format("reader{}", rows));
  }
  machine->build(kernels);
  testing::Random random(5);
  for (size_t k = 0; k < std::size(kRows); ++k) {
    Data data({kRows[k], 1, ir::DType::f32});
    std::vector<double> values(static_cast<size_t>(kRows[k]));
    for (double& value : values) value = random.uniform(-1, 1);
    testing::store_doubles(data.partial_type, values, data.partials.data());
    machine->run("sum", machine->target().add_sums({{kRows[k], 1, ir::DType::f32}}), {&data.partials, &data.result});
    const ir::Type full{ir::DType::f32, {40, 64}};
    Guarded x(full.bytes(), 0), y(full.bytes(), 0xff);
    testing::store_doubles(full, std::vector<double>(40 * 64, 1.0), x.data());
    machine->run(fmt::format("reader{}", kRows[k]), readers[k].launches[0], {&x, &data.partials, &y});
    const double number = testing::load_doubles(data.result_type, data.result.data())[0];
    for (const double value : testing::load_doubles(full, y.data())) ASSERT_EQ(value, number) << kRows[k];
  }
}

}  // namespace
}  // namespace ingot
