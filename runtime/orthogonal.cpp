// Q of the QR decomposition of a normal matrix with R's diagonal positive, which is uniformly distributed.
//
// Worked on as rows in memory of its own, with a gap after each: at strides of a power of two the products run at a third of
// their speed, and so does the projection on columns. Block Gram-Schmidt, done twice: for each panel of 64 rows, subtract its
// projection on the rows already finished (two f32 products), orthonormalise the panel, and repeat both once. Twice is enough:
// the second round starts from a panel that is orthogonal to f32 rounding times the panel's condition. As many FLOP as
// Householder (4 long short^2), nearly all in products. A panel is orthonormalised through the Cholesky factor of its Gram
// matrix, in double, because the last panels of a square matrix have conditions up to 1e4 and squares of that are past f32.
#include "runtime/orthogonal.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ir/base/error.h"
#include "runtime/gemm.h"
#include "runtime/pool.h"
#include "runtime/random.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define INGOT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define INGOT_CLONES
#endif

namespace ingot::runtime {
namespace {

constexpr int64_t kPanel = 64;
constexpr int64_t kColsPerTask = 256;
constexpr int64_t kGap = 16;               // elements
constexpr int64_t kProjectionPart = 1024;  // columns projected at a time: longer sums leave the cache

// gram += P P^T for `count` columns of the panel P; four at a time so that each element of `gram` is loaded once for four
// products.
INGOT_CLONES void add_gram(const float* panel, int64_t count, int64_t ld, int64_t width, double* gram) {
  double r[4][kPanel];
  for (int64_t begin = 0; begin < count; begin += 4) {
    for (int64_t k = 0; k < 4; ++k) {
      for (int64_t j = 0; j < kPanel; ++j) r[k][j] = begin + k < count && j < width ? double{panel[j * ld + begin + k]} : 0;
    }
    for (int64_t i = 0; i < width; ++i) {
      double* to = gram + i * kPanel;
      const double a = r[0][i], b = r[1][i], c = r[2][i], d = r[3][i];
      for (int64_t j = 0; j < kPanel; ++j) to[j] += (a * r[0][j] + b * r[1][j]) + (c * r[2][j] + d * r[3][j]);
    }
  }
}

// The inverse of the upper Cholesky factor R of `gram` (gram = R^T R), row-major [kPanel, kPanel].
std::vector<double> inverse_factor(std::vector<double> g, int64_t width) {
  const auto at = [](std::vector<double>& m, int64_t i, int64_t j) -> double& { return m[static_cast<size_t>(i * kPanel + j)]; };
  for (int64_t i = 0; i < width; ++i) {
    const double floor = at(g, i, i) * 1e-15 + 1e-300;  // rounding must not make a pivot vanish
    for (int64_t k = 0; k < i; ++k) at(g, i, i) -= at(g, k, i) * at(g, k, i);
    at(g, i, i) = std::sqrt(std::max(at(g, i, i), floor));
    for (int64_t j = i + 1; j < width; ++j) {
      for (int64_t k = 0; k < i; ++k) at(g, i, j) -= at(g, k, i) * at(g, k, j);
      at(g, i, j) /= at(g, i, i);
    }
  }
  std::vector<double> inverse(g.size());
  for (int64_t j = 0; j < width; ++j) {
    at(inverse, j, j) = 1 / at(g, j, j);
    for (int64_t i = j - 1; i >= 0; --i) {
      double sum = 0;
      for (int64_t k = i + 1; k <= j; ++k) sum += at(g, i, k) * at(inverse, k, j);
      at(inverse, i, j) = -sum / at(g, i, i);
    }
  }
  return inverse;
}

class Factoriser {
 public:
  /// `matrix` has at most as many rows as columns, and rows `ld` apart.
  Factoriser(float* matrix, int64_t rows, int64_t cols, int64_t ld, int threads)
      : q_(matrix),
        rows_(rows),
        cols_(cols),
        ld_(ld),
        threads_(threads),
        copy_(static_cast<size_t>(ld * std::min(rows, kPanel))) {}

  void run() {
    for (int64_t begin = 0; begin < rows_; begin += kPanel) {
      const int64_t width = std::min(kPanel, rows_ - begin);
      for (int pass = 0; pass < 2; ++pass) {
        if (begin > 0) subtract_projection(begin, width);
        orthonormalise(begin, width);
      }
    }
  }

 private:
  void multiply(const ir::Gemm& gemm, const float* a, const float* b, float* d) {
    GemmRunner runner(gemm, {}, threads_);  // oneDNN keeps the code of shapes it has seen
    scratch_.resize(std::max(scratch_.size(), static_cast<size_t>(runner.scratch_bytes()) + 64));
    auto* aligned = scratch_.data() + (64 - reinterpret_cast<uintptr_t>(scratch_.data()) % 64) % 64;
    runner.run(a, b, d, d, aligned);
  }

  // panel -= (Q panel^T)^T Q, Q being the rows before it.
  void subtract_projection(int64_t begin, int64_t width) {
    weights_.resize(static_cast<size_t>(begin * width));
    float* panel = q_ + begin * ld_;
    for (int64_t col = 0; col < cols_; col += kProjectionPart) {
      ir::Gemm project;
      project.m = begin, project.n = width, project.k = std::min(kProjectionPart, cols_ - col), project.tb = true;
      project.beta = col > 0 ? 1 : 0;
      project.lda = project.ldb = ld_, project.ldc = project.ldd = width;
      multiply(project, q_ + col, panel + col, weights_.data());
    }
    ir::Gemm subtract;
    subtract.m = width, subtract.n = cols_, subtract.k = begin, subtract.ta = true, subtract.alpha = -1, subtract.beta = 1;
    subtract.lda = width, subtract.ldb = subtract.ldc = subtract.ldd = ld_;
    multiply(subtract, weights_.data(), q_, panel);
  }

  std::vector<double> gram(int64_t begin, int64_t width) const {
    const int64_t tasks = (cols_ + kColsPerTask - 1) / kColsPerTask;
    std::vector<double> parts(static_cast<size_t>(tasks * kPanel * kPanel));
    Pool::of(threads_).run(tasks, 1, [&](int64_t first, int64_t last, int) {
      for (int64_t task = first; task < last; ++task) {
        const int64_t col = task * kColsPerTask;
        add_gram(q_ + begin * ld_ + col, std::min(kColsPerTask, cols_ - col), ld_, width, parts.data() + task * kPanel * kPanel);
      }
    });
    std::vector<double> sum(kPanel * kPanel);
    for (size_t i = 0; i < parts.size(); ++i) sum[i % sum.size()] += parts[i];
    return sum;
  }

  // panel = R^-T panel, with R^T R the panel's Gram matrix.
  void orthonormalise(int64_t begin, int64_t width) {
    const std::vector<double> inverse = inverse_factor(gram(begin, width), width);
    std::vector<float> factor(static_cast<size_t>(width * width));
    for (int64_t i = 0; i < width * width; ++i) {
      factor[static_cast<size_t>(i)] = static_cast<float>(inverse[static_cast<size_t>(i / width * kPanel + i % width)]);
    }
    float* panel = q_ + begin * ld_;
    std::copy_n(panel, width * ld_, copy_.data());
    ir::Gemm apply;
    apply.m = apply.k = width, apply.n = cols_, apply.ta = true;
    apply.lda = width, apply.ldb = apply.ldc = apply.ldd = ld_;
    multiply(apply, factor.data(), copy_.data(), panel);
  }

  float* q_;
  int64_t rows_, cols_, ld_;
  int threads_;
  std::vector<float> copy_, weights_;
  std::vector<std::byte> scratch_;
};

void fill_normal(float* to, int64_t count, uint64_t key, int threads) {
  const Random random(key);
  constexpr int64_t kBlock = 1024;
  Pool::of(threads).run(count, 16 * kBlock, [&](int64_t first, int64_t last, int) {
    double values[kBlock];
    for (int64_t begin = first; begin < last; begin += kBlock) {
      const int64_t size = std::min(kBlock, last - begin);
      random.normals(static_cast<uint64_t>(begin), size, values);
      for (int64_t i = 0; i < size; ++i) to[begin + i] = static_cast<float>(values[i]);
    }
  });
}

}  // namespace

void orthogonal(float* out, int64_t rows, int64_t cols, double gain, uint64_t key, int threads) {
  ir::check(rows > 0 && cols > 0, "orthogonal: empty matrix");
  const bool tall = rows > cols;
  const int64_t ld = std::max(rows, cols) + kGap;
  std::vector<float> work(static_cast<size_t>(std::min(rows, cols) * ld));
  const float* q = work.data();
  fill_normal(work.data(), static_cast<int64_t>(work.size()), key, threads);
  Factoriser(work.data(), std::min(rows, cols), std::max(rows, cols), ld, threads).run();
  const auto scale = static_cast<float>(gain);
  constexpr int64_t kBlock = 64;  // turned in blocks, which stay in the cache
  Pool::of(threads).run(rows, kBlock, [&](int64_t first, int64_t last, int) {
    for (int64_t begin = 0; begin < cols; begin += kBlock) {
      for (int64_t r = first; r < last; ++r) {
        for (int64_t c = begin; c < std::min(begin + kBlock, cols); ++c) {
          out[r * cols + c] = scale * (tall ? q[c * ld + r] : q[r * ld + c]);
        }
      }
    }
  });
}

}  // namespace ingot::runtime
