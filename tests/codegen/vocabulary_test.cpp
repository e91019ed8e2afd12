// The vocabulary header compiled by this program's compiler: every function against double over dense samples.
#include "codegen/text/vocabulary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Every float whose bits are a multiple of a step, both signs, with the special values: about 130,000 of them.
std::vector<float> dense_floats() {
  std::vector<float> out = {0.0f,   -0.0f,   kInf,          -kInf,     1.0f,    -1.0f, 1.17549435e-38f,
                            1e-45f, -1e-45f, 3.4028235e38f, 88.72284f, -103.97f};
  for (uint64_t bits = 0; bits < 0x7f800000u; bits += 0x7fe1u) {
    out.push_back(ig_float(static_cast<uint32_t>(bits)));
    out.push_back(-out.back());
  }
  for (int i = -20000; i <= 20000; ++i) out.push_back(static_cast<float>(i) * 0.00517f);
  return out;
}

/// Distance in units of the last place of the nearest float to `want`.
double ulps(float got, double want) {
  const float nearest = static_cast<float>(want);
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : 1e30;
  if (std::isinf(nearest) || std::isinf(got)) return nearest == got ? 0 : (std::fabs(want) > 3.4028e38 ? 1 : 1e30);
  int exponent = 0;
  std::frexp(nearest, &exponent);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

void expect_near(const char* name, const std::function<float(float)>& mine, const std::function<double(double)>& exact,
                 double limit, double largest = 4e38) {
  double worst = 0;
  float where = 0;
  for (float x : dense_floats()) {
    if (std::fabs(x) > largest) continue;
    const double error = ulps(mine(x), exact(static_cast<double>(x)));
    if (error > worst) worst = error, where = x;
  }
  EXPECT_LE(worst, limit) << fmt::format("{} at {:.9g}: {:.9g}, exactly {:.9g}", name, where, mine(where), exact(where));
  EXPECT_TRUE(std::isnan(mine(std::nanf("")))) << name << " of NaN";
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

TEST(Vocabulary, ExponentialsAndLogarithms) {
  expect_near(
      "exp", [](float x) { return ig_exp(x); }, [](double x) { return std::exp(x); }, 1.5);
  expect_near(
      "expm1", [](float x) { return ig_expm1(x); }, [](double x) { return std::expm1(x); }, 2);
  expect_near(
      "log", [](float x) { return ig_log(x); }, [](double x) { return std::log(x); }, 1.5);
  expect_near(
      "log1p", [](float x) { return ig_log1p(x); }, [](double x) { return std::log1p(x); }, 2);
  expect_near(
      "tanh", [](float x) { return ig_tanh(x); }, [](double x) { return std::tanh(x); }, 3.5);
  expect_near(
      "sigmoid", [](float x) { return ig_sigmoid(x); }, sigmoid, 2.5);
  expect_near(
      "silu", [](float x) { return ig_silu(x); }, [](double x) { return x * sigmoid(x); }, 3.5, 87);  // before denormals
  expect_near(
      "softplus", [](float x) { return ig_softplus(x); }, softplus, 3);
}

TEST(Vocabulary, RootsAndTurns) {
  expect_near(
      "sqrt", [](float x) { return ig_sqrt(x); }, [](double x) { return std::sqrt(x); }, 0.51);
  expect_near(
      "rsqrt", [](float x) { return ig_rsqrt(x); }, [](double x) { return 1 / std::sqrt(x); }, 1.5);
  expect_near(
      "floor", [](float x) { return ig_floor(x); }, [](double x) { return std::floor(x); }, 0);
  expect_near(
      "sin", [](float x) { return ig_sin(x); }, [](double x) { return std::sin(x); }, 1, 1e6);
  expect_near(
      "cos", [](float x) { return ig_cos(x); }, [](double x) { return std::cos(x); }, 1, 1e6);
  EXPECT_TRUE(std::isnan(ig_sin(kInf)));
  EXPECT_TRUE(std::isnan(ig_cos(-kInf)));
}

TEST(Vocabulary, PowersOfEveryKindOfBaseAndExponent) {
  const std::vector<float> exponents = {0, -0.0f, 1, -1, 2, 3, -3, 0.5f, -0.5f, 0.3f, 7.25f, 100, 101, -1000, 1e9f, kInf, -kInf};
  for (float b : exponents) {
    for (float a : dense_floats()) {
      const double exact = std::pow(static_cast<double>(a), static_cast<double>(b));
      ASSERT_LE(ulps(ig_pow(a, b), exact), 1)
          << fmt::format("pow({:.9g}, {:.9g}) = {:.9g}, exactly {:.9g}", a, b, ig_pow(a, b), exact);
    }
  }
  EXPECT_TRUE(std::isnan(ig_pow(std::nanf(""), 2.0f)));
  EXPECT_TRUE(std::isnan(ig_pow(2.0f, std::nanf(""))));
  EXPECT_EQ(ig_pow(std::nanf(""), 0.0f), 1.0f);
}

double python_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

TEST(Vocabulary, RemainderHasTheDivisorsSign) {
  for (float b : {1.0f, -1.0f, 0.1f, -0.1f, 3.0f, 7.5f, -1e-3f, 1e9f, kInf, -kInf, 0.0f}) {
    for (int i = -3000; i <= 3000; ++i) {
      const float a = static_cast<float>(i) * 0.37f;
      const double exact = python_mod(static_cast<double>(a), static_cast<double>(b));
      ASSERT_LE(ulps(ig_mod(a, b), exact), 1)
          << fmt::format("mod({:.9g}, {:.9g}) = {:.9g}, exactly {:.9g}", a, b, ig_mod(a, b), exact);
    }
  }
  EXPECT_TRUE(std::isnan(ig_mod(std::nanf(""), 1.0f)));
  EXPECT_TRUE(std::isnan(ig_mod(1.0f, std::nanf(""))));
  for (int a = -9; a <= 9; ++a) {
    EXPECT_EQ(ig_mod(a, 0), 0);
    for (int b : {1, -1, 2, -2, 5, -5}) EXPECT_EQ(ig_mod(a, b), static_cast<int>(python_mod(a, b)));
  }
  EXPECT_EQ(ig_mod(std::numeric_limits<int64_t>::min(), int64_t(-1)), 0);
}

TEST(Vocabulary, MaximumAndMinimumPassNaN) {
  const float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(ig_max(nan, 1.0f)) && std::isnan(ig_max(1.0f, nan)));
  EXPECT_TRUE(std::isnan(ig_min(nan, 1.0f)) && std::isnan(ig_min(1.0f, nan)));
  EXPECT_EQ(ig_max(-kInf, 2), 2.0f);
  EXPECT_EQ(ig_min(3, 2), 2);
  EXPECT_EQ(ig_abs(-3), 3);
  EXPECT_EQ(ig_bits(ig_abs(-0.0f)), 0u);
  EXPECT_TRUE(ig_isfinite(3e38f));
  EXPECT_FALSE(ig_isfinite(-kInf) || ig_isfinite(nan));
}

/// The exact value of a half, the long way.
double half_value(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(Vocabulary, EveryHalfIsReadExactlyAndWrittenBack) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    const float x = ig_from_f16(bits);
    if (std::isnan(half_value(bits))) {
      EXPECT_TRUE(std::isnan(x));
      EXPECT_TRUE(std::isnan(ig_from_f16(ig_to_f16(x))));
    } else {
      ASSERT_EQ(static_cast<double>(x), half_value(bits)) << h;
      ASSERT_EQ(ig_to_f16(x), bits);
    }
    const float y = ig_from_bf16(bits);
    if (std::isnan(y))
      EXPECT_TRUE(std::isnan(ig_from_bf16(ig_to_bf16(y))));
    else
      ASSERT_EQ(ig_to_bf16(y), bits);
  }
}

/// Nearest of two neighbouring encodings, ties to the even one.
template <class Value>
uint16_t nearest(double x, uint16_t low, Value value) {
  const auto high = static_cast<uint16_t>(low + 1);
  const double below = std::fabs(x - value(low)), above = std::fabs(value(high) - x);
  if (below != above) return below < above ? low : high;
  return (low & 1) == 0 ? low : high;
}

TEST(Vocabulary, RoundsToNearestEven) {
  // Past the largest half, infinity stands where 65536 would.
  const auto half = [](uint16_t h) { return h == 0x7c00 ? 65536.0 : half_value(h); };
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const auto low = static_cast<uint16_t>(h);
    const double a = half(low), b = half(static_cast<uint16_t>(h + 1));
    for (double part : {0.001, 0.25, 0.499, 0.5, 0.501, 0.75, 0.999}) {
      const float x = static_cast<float>(a + (b - a) * part);
      ASSERT_EQ(ig_to_f16(x), nearest(static_cast<double>(x), low, half)) << x;
      ASSERT_EQ(ig_to_f16(-x), nearest(static_cast<double>(x), low, half) | 0x8000) << x;
    }
  }
  const auto brain = [](uint16_t h) { return h == 0x7f80 ? 0x1p128 : static_cast<double>(ig_from_bf16(h)); };
  for (uint32_t h = 0; h < 0x7f80; ++h) {
    const auto low = static_cast<uint16_t>(h);
    const double a = brain(low), b = brain(static_cast<uint16_t>(h + 1));
    for (double part : {0.01, 0.5, 0.51, 0.99}) {
      const float x = static_cast<float>(a + (b - a) * part);
      if (std::isinf(x)) continue;
      ASSERT_EQ(ig_to_bf16(x), nearest(static_cast<double>(x), low, brain)) << x;
    }
  }
  EXPECT_EQ(ig_to_f16(1e-30f), 0);
  EXPECT_EQ(ig_to_f16(kInf), 0x7c00);
  EXPECT_EQ(ig_to_f16(1e30f), 0x7c00);
  EXPECT_EQ(ig_to_bf16(-kInf), 0xff80);
}

}  // namespace
