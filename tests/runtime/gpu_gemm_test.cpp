// Products with a bias through cuBLASLt, every algorithm it suggests for one, against sums in double. Skips itself where there is
// no card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/base/error.h"
#include "runtime/convert.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/session.h"

namespace ingot::runtime::cuda {
namespace {

using ir::DType;

/// Random numbers here and on the card.
struct Matrix {
  DType dtype;
  std::vector<double> values;
  DeviceMemory memory;

  Matrix(DType type, int64_t elements, unsigned seed, Stream stream)
      : dtype(type), values(static_cast<size_t>(elements)), memory(elements * ir::dtype_bytes(type), "a test") {
    std::mt19937 random(seed);
    std::vector<std::byte> stored(static_cast<size_t>(elements * ir::dtype_bytes(type)));
    for (size_t i = 0; i < values.size(); ++i) {
      std::byte* at = stored.data() + static_cast<int64_t>(i) * ir::dtype_bytes(type);
      store_double(type, std::uniform_real_distribution<double>(-1, 1)(random), at);
      values[i] = load_double(type, at);
    }
    check(Driver::get().to_device(memory.pointer(), stored.data(), stored.size(), stream), "a test");
    check(Driver::get().synchronize(), "a test");
  }

  std::vector<double> fetch(Stream stream) const {
    std::vector<std::byte> stored(values.size() * static_cast<size_t>(ir::dtype_bytes(dtype)));
    check(Driver::get().to_host(stored.data(), memory.pointer(), stored.size(), stream), "a test");
    check(Driver::get().synchronize(), "a test");
    std::vector<double> got(values.size());
    for (size_t i = 0; i < got.size(); ++i)
      got[i] = load_double(dtype, stored.data() + static_cast<int64_t>(i) * ir::dtype_bytes(dtype));
    return got;
  }
};

struct Case {
  GemmTypes types;
  int64_t batch, m, n, k, stride_c;
  bool ta, tb;
};

ir::Gemm gemm_of(const Case& c) {
  ir::Gemm g;
  g.m = c.m, g.n = c.n, g.k = c.k, g.batch = c.batch, g.ta = c.ta, g.tb = c.tb;
  g.lda = c.ta ? c.m : c.k, g.ldb = c.tb ? c.k : c.n, g.ldd = c.n;
  g.stride_a = c.m * c.k, g.stride_b = c.k * c.n, g.stride_c = c.stride_c, g.stride_d = c.m * c.n;
  g.beta = 1;
  return g;
}

// Largest error relative to the sum of magnitudes.
double worst_error(const Case& c, const Matrix& a, const Matrix& b, const Matrix& bias, const std::vector<double>& got) {
  double worst = 0;
  for (int64_t e = 0; e < c.batch * c.m * c.n; ++e) {
    const int64_t p = e / (c.m * c.n), i = e / c.n % c.m, j = e % c.n;
    double sum = bias.values[static_cast<size_t>(p * c.stride_c + j)], size = std::abs(sum);
    for (int64_t k = 0; k < c.k; ++k) {
      const double product = a.values[static_cast<size_t>(p * c.m * c.k + (c.ta ? k * c.m + i : i * c.k + k))] *
                             b.values[static_cast<size_t>(p * c.k * c.n + (c.tb ? j * c.k + k : k * c.n + j))];
      sum += product;
      size += std::abs(product);
    }
    const double error = std::abs(sum - got[static_cast<size_t>(e)]) / (size + 1e-3);
    if (!(error <= worst)) worst = error;  // NaN too
  }
  return worst;
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      present_architecture();
    } catch (const ir::MachineError&) {
      GTEST_SKIP() << "no GPU on this machine";
    }
  }
};

TEST_F(Gpu, ProductsWithABias) {
  constexpr int64_t kWorkspace = int64_t{32} << 20;
  const Device device;
  const OwnedStream stream;
  const DeviceMemory workspace(kWorkspace, "a test");
  const DType f = DType::f32, b16 = DType::bf16, h = DType::f16;
  int algorithms = 0;
  for (const GemmTypes& types : {GemmTypes{f, f, f, f}, {b16, b16, b16, b16}, {b16, b16, f, f}, {h, h, h, h}, {h, h, f, f}}) {
    for (int t = 0; t < 4; ++t) {
      using Sizes = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;
      for (const auto& [batch, m, n, k, own] :
           {Sizes{1, 200, 96, 64, 0}, {1, 64, 8, 520, 0}, {3, 40, 72, 32, 0}, {3, 40, 72, 32, 80}}) {
        const Case c{types, batch, m, n, k, own, (t & 1) != 0, (t & 2) != 0};
        SCOPED_TRACE(fmt::format("{} to {}, {} of {} x {} x {}, bias stride {}, transposes {}", ir::dtype_name(types.a),
                                 ir::dtype_name(types.d), batch, m, n, k, own, t));
        const Matrix a(types.a, batch * m * k, 1, stream), b(types.b, batch * k * n, 2, stream),
            bias(types.c, (batch - 1) * own + n, 3, stream), d(types.d, batch * m * n, 4, stream);
        const GemmPointers at{a.memory.pointer(), b.memory.pointer(), bias.memory.pointer(), d.memory.pointer()};
        Gemm gemm(gemm_of(c), types, at, kWorkspace);
        for (const std::string& algorithm : gemm.candidates(8)) {
          ASSERT_TRUE(gemm.use(algorithm));
          check(Driver::get().fill8(d.memory.pointer(), 0xff, d.values.size() * static_cast<size_t>(ir::dtype_bytes(types.d)),
                                    stream),
                "a test");
          gemm.run(at, workspace.pointer(), stream);
          EXPECT_LE(worst_error(c, a, b, bias, d.fetch(stream)), types.d == f ? 2e-6 : types.d == b16 ? 4e-3 : 5e-4);
          ++algorithms;
        }
      }
    }
  }
  EXPECT_GE(algorithms, 80);
  fmt::print("{} algorithms\n", algorithms);
}

}  // namespace
}  // namespace ingot::runtime::cuda
