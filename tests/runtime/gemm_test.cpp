// Matrix products against sums in double, and against themselves with other numbers of threads.
#include "runtime/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "runtime/convert.h"

namespace ingot::runtime {
namespace {

using ir::DType;

struct Matrix {
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;
  double get(int64_t i) const { return load_double(dtype, bytes.data() + i * ir::dtype_bytes(dtype)); }
  void set(int64_t i, double v) { store_double(dtype, v, bytes.data() + i * ir::dtype_bytes(dtype)); }
};

Matrix random_matrix(DType dtype, int64_t elements, unsigned seed) {
  Matrix m{dtype, std::vector<std::byte>(static_cast<size_t>(elements * ir::dtype_bytes(dtype)))};
  std::mt19937 random(seed);
  for (int64_t i = 0; i < elements; ++i) m.set(i, std::uniform_real_distribution<double>(-1, 1)(random));
  return m;
}

struct Case {
  ir::Gemm gemm;
  GemmTypes types;
};

// Rows without gaps, batches end to end.
Case dense(int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb, GemmTypes types = {}) {
  Case c;
  c.types = types;
  c.gemm.m = m, c.gemm.n = n, c.gemm.k = k, c.gemm.batch = batch;
  c.gemm.ta = ta, c.gemm.tb = tb;
  c.gemm.lda = ta ? m : k;
  c.gemm.ldb = tb ? k : n;
  c.gemm.ldc = c.gemm.ldd = n;
  c.gemm.stride_a = m * k;
  c.gemm.stride_b = n * k;
  c.gemm.stride_c = c.gemm.stride_d = m * n;
  return c;
}

struct Operands {
  Matrix a, b, c, d;
};

Operands operands(const Case& c) {
  const ir::Gemm& g = c.gemm;
  const auto extent = [&](int64_t rows, int64_t ld, int64_t stride) {
    return (g.batch - 1) * stride + (ld == 0 ? g.n : rows * ld);
  };
  return {random_matrix(c.types.a, extent(g.ta ? g.k : g.m, g.lda, g.stride_a), 1),
          random_matrix(c.types.b, extent(g.tb ? g.n : g.k, g.ldb, g.stride_b), 2),
          random_matrix(c.types.c, extent(g.m, g.ldc, g.stride_c), 3),
          random_matrix(c.types.d, extent(g.m, g.ldd, g.stride_d), 4)};
}

void run(const Case& c, Operands& o, int threads) {
  GemmRunner runner(c.gemm, c.types, threads);
  std::vector<std::byte> scratch(static_cast<size_t>(runner.scratch_bytes()) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  runner.run(o.a.bytes.data(), o.b.bytes.data(), o.c.bytes.data(), o.d.bytes.data(), aligned);
}

std::vector<double> doubles(const Matrix& m) {
  std::vector<double> out(m.bytes.size() / static_cast<size_t>(ir::dtype_bytes(m.dtype)));
  for (size_t i = 0; i < out.size(); ++i) out[i] = m.get(static_cast<int64_t>(i));
  return out;
}

// Largest error against double sums, relative to the sum of magnitudes (what rounding is proportional to).
double worst_error(const Case& c, const Operands& before, const Matrix& got) {
  const ir::Gemm& g = c.gemm;
  const std::vector<double> x = doubles(before.a), y = doubles(before.b);  // each is read many times
  double worst = 0;
  for (int64_t b = 0; b < g.batch; ++b) {
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < g.n; ++j) {
        double sum = 0, size = 1e-3;
        for (int64_t k = 0; k < g.k; ++k) {
          const double product = g.alpha * x[static_cast<size_t>(b * g.stride_a + (g.ta ? k * g.lda + i : i * g.lda + k))] *
                                 y[static_cast<size_t>(b * g.stride_b + (g.tb ? j * g.ldb + k : k * g.ldb + j))];
          sum += product;
          size += std::abs(product);
        }
        if (g.beta != 0) sum += g.beta * before.c.get(b * g.stride_c + i * g.ldc + j);
        worst = std::max(worst, std::abs(sum - got.get(b * g.stride_d + i * g.ldd + j)) / (size + std::abs(sum)));
      }
    }
  }
  return worst;
}

double tolerance(const Case& c) { return c.types.d == DType::bf16 ? 4e-3 : c.types.d == DType::f16 ? 5e-4 : 1e-6; }

void check_against_double(const Case& c, const char* what) {
  Operands o = operands(c);
  const Operands before = o;
  run(c, o, 2);
  EXPECT_LE(worst_error(c, before, o.d), tolerance(c)) << what;
}

TEST(Gemm, AllTransposesAndSizes) {
  for (int t = 0; t < 4; ++t) {
    for (auto [m, n, k] : {std::tuple{1, 1, 1}, {5, 7, 3}, {64, 32, 65}, {33, 17, 1024}, {3, 40, 1025}, {31, 9, 3000}}) {
      check_against_double(dense(1, m, n, k, t & 1, t & 2), "f32");
      check_against_double(dense(3, m, n, k, t & 1, t & 2), "f32 batched");
    }
  }
}

// Large enough for several tiles in each of m, n and batch, none of which divides evenly.
TEST(Gemm, TilesCoverTheResult) {
  for (int t = 0; t < 4; ++t) {
    check_against_double(dense(1, 150, 300, 130, t & 1, t & 2), "tiles of m and n");
    check_against_double(dense(3, 70, 200, 130, t & 1, t & 2), "tiles of m and n in batches");
    check_against_double(dense(37, 64, 32, 128, t & 1, t & 2), "tiles of batches");
  }
}

// Tall enough for its B to be packed: rows, columns and depths that divide evenly and that do not, with and without C.
TEST(Gemm, TallProductsWithPackedB) {
  for (DType type : {DType::f32, DType::bf16}) {
    for (int t = 0; t < 4; ++t) {
      for (auto [m, n, k] : {std::tuple{512, 512, 64}, {300, 257, 33}, {1100, 256, 17}, {257, 640, 130}}) {
        Case c = dense(1, m, n, k, t & 1, t & 2, {type, type, DType::f32, DType::f32});
        check_against_double(c, "packed");
        c.gemm.beta = 1, c.gemm.alpha = 0.5;
        check_against_double(c, "packed, onto C");
      }
      check_against_double(dense(1, 384, 256, 64, t & 1, t & 2, {type, type, type, type}), "packed, rounded");
    }
  }
}

TEST(Gemm, EveryMixOfDtypes) {
  const DType all[] = {DType::f32, DType::bf16, DType::f16};
  for (DType a : all) {
    for (DType b : all) {
      for (DType d : all) {
        for (int64_t k : {40, 1500}) check_against_double(dense(2, 9, 20, k, false, true, {a, b, d, d}), "dtypes");
      }
    }
  }
}

TEST(Gemm, AlphaBetaAndSeparateC) {
  for (DType d : {DType::f32, DType::bf16}) {
    for (DType c_type : {DType::f32, DType::bf16}) {
      for (int64_t k : {0, 70, 2500}) {
        Case c = dense(2, 11, 13, k, true, false, {d, d, c_type, d});
        c.gemm.alpha = -0.5;
        c.gemm.beta = 2;
        check_against_double(c, "beta, C apart");
        c.gemm.stride_c = 0;
        check_against_double(c, "beta, C shared");
        c.gemm.alpha = c.gemm.beta = 1;
        check_against_double(c, "accumulate");
      }
    }
  }
}

Case with_bias(Case c) {
  c.gemm.beta = 1, c.gemm.ldc = 0, c.gemm.stride_c = 0;
  return c;
}

// Small products, tiles of each kind, packed ones; f16 and biases the library does not take among them.
TEST(Gemm, ABiasIsAddedToEveryRow) {
  const DType f = DType::f32, b = DType::bf16, h = DType::f16;
  for (const GemmTypes& types : {GemmTypes{f, f, f, f},
                                 {b, b, f, f},
                                 {b, b, f, b},
                                 {b, b, b, b},
                                 {h, h, f, f},
                                 {h, h, f, h},
                                 {h, h, h, h},
                                 {f, f, b, f}}) {
    for (int t = 0; t < 4; ++t) {
      for (auto [batch, m, n, k] : {std::tuple{1, 1, 1, 1},
                                    {1, 5, 7, 3},
                                    {1, 1, 33, 70},
                                    {1, 31, 9, 2100},
                                    {1, 150, 300, 13},
                                    {3, 70, 200, 13},
                                    {37, 64, 32, 12},
                                    {1, 513, 257, 9},
                                    {1, 6, 10, 0}}) {
        Case c = with_bias(dense(batch, m, n, k, t & 1, t & 2, types));
        check_against_double(c, "one bias");
        c.gemm.stride_c = n + 3;
        check_against_double(c, "a bias per batch");
      }
    }
  }
}

// The whole sum is rounded once: 257 in bf16 is 256, but 257 - 1 is not 255.
TEST(Gemm, ABiasIsAddedBeforeTheSumIsRounded) {
  Case c = with_bias(dense(1, 3, 5, 2, false, false, {DType::bf16, DType::bf16, DType::f32, DType::bf16}));
  Operands o = operands(c);
  for (int64_t i = 0; i < 6; ++i) o.a.set(i, 1);
  for (int64_t i = 0; i < 10; ++i) o.b.set(i, i < 5 ? 256 : 1);
  for (int64_t i = 0; i < 5; ++i) o.c.set(i, -1);
  run(c, o, 1);
  for (int64_t i = 0; i < 15; ++i) EXPECT_EQ(o.d.get(i), 256) << i;
}

TEST(Gemm, ABiasCostsNoSlowPath) {
  for (DType type : {DType::f32, DType::bf16}) {
    for (auto [m, n, k] : {std::tuple{40, 70, 30}, {512, 512, 64}}) {
      const Case plain = dense(1, m, n, k, false, true, {type, type, DType::f32, type});
      const GemmRunner with(with_bias(plain).gemm, plain.types, 2), without(plain.gemm, plain.types, 2);
      EXPECT_EQ(with.implementation(), without.implementation());
      EXPECT_EQ(with.scratch_bytes(), without.scratch_bytes());
    }
  }
}

TEST(Gemm, ResultOverC) {
  Case c = dense(1, 20, 30, 2100, false, false);
  c.gemm.beta = 1;
  Operands o = operands(c);
  const Operands before = o;
  GemmRunner runner(c.gemm, c.types, 2);
  std::vector<std::byte> scratch(static_cast<size_t>(runner.scratch_bytes()) + 64);
  runner.run(o.a.bytes.data(), o.b.bytes.data(), o.c.bytes.data(), o.c.bytes.data(), scratch.data());
  EXPECT_LE(worst_error(c, before, o.c), 1e-6);
}

TEST(Gemm, StridesAndBroadcastBatches) {
  for (DType t : {DType::f32, DType::bf16}) {
    for (int share = 0; share < 4; ++share) {
      for (int turn = 0; turn < 4; ++turn) {
        Case c = dense(4, 6, 10, 12, turn & 1, turn & 2, {t, t, t, t});
        c.gemm.lda += 3, c.gemm.ldb += 5, c.gemm.ldd += 2;
        c.gemm.stride_a = share & 1 ? 0 : 12 * 20, c.gemm.stride_b = share & 2 ? 0 : 12 * 20, c.gemm.stride_d = 6 * 12 + 1;
        check_against_double(c, "strided");
      }
    }
  }
  Case flat = dense(4, 6, 10, 12, false, true);  // one weight for a whole batch
  flat.gemm.stride_b = 0;
  check_against_double(flat, "shared weight");
}

TEST(Gemm, GapsBetweenRowsStayUntouched) {
  for (DType t : {DType::f32, DType::bf16}) {
    Case c = dense(2, 3, 4, 1500, false, false, {t, t, t, t});
    c.gemm.ldd = 6, c.gemm.stride_d = 20;
    Operands o = operands(c);
    const Matrix before = o.d;
    run(c, o, 1);
    for (int64_t row = 0; row < 3; ++row) EXPECT_EQ(o.d.get(row * 6 + 5), before.get(row * 6 + 5));
    EXPECT_EQ(o.d.get(19), before.get(19));
  }
}

TEST(Gemm, EmptyProducts) {
  for (auto [m, n, k] : {std::tuple{0, 4, 4}, {4, 0, 4}, {4, 4, 0}})
    check_against_double(dense(1, m, n, k, false, false), "empty");
}

TEST(Gemm, SameBitsForAnyNumberOfThreads) {
  const DType f = DType::f32, h = DType::bf16;
  for (GemmTypes types : {GemmTypes{f, f, f, f}, GemmTypes{h, h, f, f}, GemmTypes{h, h, h, h}}) {
    for (int t = 0; t < 4; ++t) {
      for (auto [m, n, k] : {std::tuple{32, 32, 4096},
                             {32, 64, 4096},
                             {64, 32, 4096},
                             {64, 64, 4096},
                             {48, 40, 4096},
                             {7, 5, 4096},
                             {64, 64, 1536},
                             {128, 32, 1025},
                             {1, 64, 3000},
                             {64, 1, 3000},
                             {256, 64, 2048},
                             {100, 300, 1024},
                             {512, 256, 96},
                             {290, 300, 70}}) {
        const Case plain = dense(1, m, n, k, t & 1, t & 2, types);
        for (const Case& c : {plain, with_bias(plain)}) {
          Operands one = operands(c);
          Operands many = one;
          run(c, one, 1);
          for (int threads : {2, 3, 5}) {
            run(c, many, threads);
            ASSERT_EQ(one.d.bytes, many.d.bytes) << m << "x" << n << "x" << k << " transposes " << t << " threads " << threads;
          }
        }
      }
    }
  }
}

TEST(Convert, HalfPrecisionMatchesOneRoundingFromDouble) {
  std::mt19937 random(5);
  for (DType t : {DType::bf16, DType::f16}) {
    for (int i = 0; i < 200000; ++i) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
      uint16_t bits = 0;
      float back = 0;
      from_f32(t, &value, &bits, 1);
      to_f32(t, &bits, &back, 1);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(back));
      } else {
        EXPECT_EQ(static_cast<double>(back), ir::round_to(t, value)) << value;
      }
    }
  }
}

}  // namespace
}  // namespace ingot::runtime
