// Initial values: what expressions mean, that draws are keyed by name, and that they are distributed as they say.
#include "runtime/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ir/base/error.h"
#include "runtime/convert.h"
#include "runtime/orthogonal.h"

namespace ingot::runtime {
namespace {

using testing::HasSubstr;

std::vector<double> initial(const std::string& expression, ir::Type type, std::string name = "w", uint64_t seed = 1,
                            int threads = 2) {
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()), std::byte{0x5a});
  fill_initial({std::move(name), expression, type, seed, ir::make_loc("m.yaml", 3, 7), threads}, bytes.data());
  std::vector<double> out(static_cast<size_t>(type.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = load_double(type.dtype, bytes.data() + i * static_cast<size_t>(ir::dtype_bytes(type.dtype)));
  }
  return out;
}

std::string error_of(const std::string& expression, ir::Type type = {ir::DType::f32, {4, 4}}) {
  try {
    initial(expression, type);
  } catch (const ir::UserError& e) {
    return e.what();
  }
  return "no error";
}

const ir::Type kMatrix{ir::DType::f32, {3, 4}};

TEST(Init, Constants) {
  EXPECT_THAT(initial("0", kMatrix), testing::Each(0.0));
  EXPECT_THAT(initial("-0.04", {ir::DType::f32, {2}}), testing::Each(static_cast<double>(-0.04f)));
  EXPECT_THAT(initial("1e-3", {ir::DType::f32, {}}), testing::ElementsAre(static_cast<double>(1e-3f)));
  EXPECT_THAT(initial("7", {ir::DType::i32, {2}}), testing::Each(7.0));
}

TEST(Init, IndexesCountTheLastTwoAxes) {
  EXPECT_THAT(initial("10 * j + i", {ir::DType::f32, {2, 2, 3}}), testing::ElementsAre(0, 1, 2, 10, 11, 12, 0, 1, 2, 10, 11, 12));
  EXPECT_THAT(initial("i / 4", {ir::DType::f32, {1, 1, 3}}), testing::ElementsAre(0, 0.25, 0.5));
}

TEST(Init, LetsBuildOnEachOther) {
  const auto got =
      initial("let z = (i % 4 - 1.5) / 1.5; let zig = z * abs(z); -5.5 + 2.5 * zig + pow(i / 7, 0.5)", {ir::DType::f32, {8}});
  for (int i = 0; i < 8; ++i) {
    const double z = (i % 4 - 1.5) / 1.5;
    EXPECT_FLOAT_EQ(static_cast<float>(got[static_cast<size_t>(i)]),
                    static_cast<float>(-5.5 + 2.5 * z * std::abs(z) + std::sqrt(i / 7.0)));
  }
}

TEST(Init, FunctionsAndConditions) {
  EXPECT_THAT(initial("select(i < 2 and not (i == 0), max(i, 5, 2), min(-1, i))", {ir::DType::f32, {3}}),
              testing::ElementsAre(-1, 5, -1));
  EXPECT_THAT(initial("round(i + 0.5)", {ir::DType::f32, {3}}), testing::ElementsAre(0, 2, 2));
}

TEST(Init, DrawsDependOnNameAndSeedAlone) {
  const auto base = initial("uniform(-1, 1)", {ir::DType::f32, {2000}});
  EXPECT_EQ(base, initial("uniform(-1, 1)", {ir::DType::f32, {2000}}, "w", 1, 1));
  EXPECT_NE(base, initial("uniform(-1, 1)", {ir::DType::f32, {2000}}, "v"));
  EXPECT_NE(base, initial("uniform(-1, 1)", {ir::DType::f32, {2000}}, "w", 2));
  const auto longer = initial("uniform(-1, 1)", {ir::DType::f32, {3000}});
  EXPECT_TRUE(std::equal(base.begin(), base.end(), longer.begin()));
}

TEST(Init, TwoDrawsOfOneVariableDiffer) {
  EXPECT_THAT(initial("normal(0, 1) - normal(0, 1)", {ir::DType::f32, {64}}), testing::Not(testing::Contains(0.0)));
  EXPECT_THAT(initial("let n = normal(0, 1); n - n", {ir::DType::f32, {64}}), testing::Each(0.0));
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0, lag = 0;
};
Moments moments(const std::vector<double>& x) {
  Moments m;
  const auto n = static_cast<double>(x.size());
  m.mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] - m.mean;
    m.variance += d * d / n;
    m.fourth += d * d * d * d / n;
    if (i > 0) m.lag += d * (x[i - 1] - m.mean) / n;
  }
  return m;
}

TEST(Init, UniformMoments) {
  const auto x = initial("uniform(2, 6)", {ir::DType::f32, {500, 1000}});
  EXPECT_GE(*std::min_element(x.begin(), x.end()), 2);
  EXPECT_LE(*std::max_element(x.begin(), x.end()), 6);
  const Moments m = moments(x);
  EXPECT_NEAR(m.mean, 4, 0.01);
  EXPECT_NEAR(m.variance, 16.0 / 12, 0.01);
  EXPECT_NEAR(m.lag, 0, 0.01);
}

TEST(Init, NormalMoments) {
  const Moments m = moments(initial("normal(3, 0.5)", {ir::DType::f32, {500, 1000}}));
  EXPECT_NEAR(m.mean, 3, 0.005);
  EXPECT_NEAR(m.variance, 0.25, 0.002);
  EXPECT_NEAR(m.fourth, 3 * 0.0625, 0.003);
  EXPECT_NEAR(m.lag, 0, 0.002);
}

// Largest distance of q q^T (or q^T q) from gain^2 times the identity.
double orthogonality_error(const std::vector<double>& q, int64_t rows, int64_t cols, double gain) {
  const bool wide = rows < cols;
  const int64_t n = wide ? rows : cols, length = wide ? cols : rows;
  double worst = 0;
  for (int64_t a = 0; a < n; ++a) {
    for (int64_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (int64_t k = 0; k < length; ++k) {
        dot += wide ? q[static_cast<size_t>(a * cols + k)] * q[static_cast<size_t>(b * cols + k)]
                    : q[static_cast<size_t>(k * cols + a)] * q[static_cast<size_t>(k * cols + b)];
      }
      worst = std::max(worst, std::abs(dot / (gain * gain) - (a == b ? 1 : 0)));
    }
  }
  return worst;
}

TEST(Init, OrthogonalAtAllShapes) {
  for (auto [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {9, 1}, {64, 64}, {65, 65}, {32, 200}, {300, 129}, {130, 257}}) {
    const auto q = initial("orthogonal(0.1)", {ir::DType::f32, {rows, cols}});
    EXPECT_LE(orthogonality_error(q, rows, cols, 0.1), 1e-6) << rows << "x" << cols;
    EXPECT_EQ(q, initial("orthogonal(0.1)", {ir::DType::f32, {rows, cols}}, "w", 1, 1)) << rows << "x" << cols;
  }
}

// Entries of a uniformly distributed orthogonal matrix: mean 0, variance 1/n; the sign of the first row is free.
TEST(Init, OrthogonalIsUniform) {
  double positive = 0, mean = 0;
  for (int k = 0; k < 400; ++k) {
    float q[9];
    orthogonal(q, 3, 3, 1, static_cast<uint64_t>(k), 1);
    positive += q[0] > 0;
    mean += static_cast<double>(q[4]) / 400;
  }
  EXPECT_NEAR(positive, 200, 40);
  EXPECT_NEAR(mean, 0, 0.1);
}

TEST(Init, OrthogonalInsideAnExpression) {
  const auto q = initial("orthogonal(2)", kMatrix), shifted = initial("1 + 3 * orthogonal(2)", kMatrix);
  for (size_t i = 0; i < q.size(); ++i) EXPECT_NEAR(shifted[i], 1 + 3 * q[i], 1e-6);
  const auto half = initial("orthogonal(2)", {ir::DType::bf16, {3, 4}});
  for (size_t i = 0; i < q.size(); ++i) EXPECT_EQ(half[i], ir::round_to(ir::DType::bf16, q[i]));
}

TEST(Init, Errors) {
  EXPECT_THAT(error_of("orthogonl(1)"),
              HasSubstr("m.yaml:3:7: error: initial values have no function `orthogonl`; did you mean `orthogonal`?"));
  EXPECT_THAT(error_of("width / 2"), HasSubstr("`width` is none of them"));
  EXPECT_THAT(error_of("1 / i"), HasSubstr("the initial value of w is not finite at element 0: `1 / i`"));
  EXPECT_THAT(error_of("orthogonal(i)"), HasSubstr("one number for the whole matrix"));
  EXPECT_THAT(error_of("let q = orthogonal(1); orthogonal(q)"), HasSubstr("cannot be part of another's gain"));
  EXPECT_THAT(error_of("orthogonal(1)", {ir::DType::f32, {4}}), HasSubstr("orthogonal makes a matrix; w is f32[4]"));
  EXPECT_THAT(error_of("uniform(1)"), HasSubstr("uniform takes 2 arguments, not 1"));
  EXPECT_THAT(error_of("let a 3; a"), HasSubstr("let NAME = EXPRESSION;"));
  EXPECT_THAT(error_of("\"text\""), HasSubstr("an initial value is a number"));
  EXPECT_THAT(error_of("1 +"), HasSubstr("m.yaml:3:"));
}

}  // namespace
}  // namespace ingot::runtime
