// How cuBLASLt is told of a product with a bias: a library that does in plain loops what cuBLASLt's documentation says, over this
// machine's memory, must get what row-major sums in double give.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "ir/base/error.h"
#include "runtime/convert.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/tune.h"

namespace ingot::runtime::cuda {
namespace {

using ir::DType;

struct FakeDesc {
  int transposed[2] = {};
  uint32_t epilogue = 1;
  DevicePointer bias = 0;
  int64_t bias_stride = 0;
  int32_t bias_type = -1;  ///< that of D
};
struct FakeLayout {
  int type = 0;
  int64_t rows = 0, columns = 0, ld = 0, stride = 0;
  int32_t batch = 1;
};

FakeDesc& of(MatmulDesc desc) { return *reinterpret_cast<FakeDesc*>(desc); }
FakeLayout& of(MatrixLayout layout) { return *reinterpret_cast<FakeLayout*>(layout); }

DType dtype(int type) { return type == kReal16BF ? DType::bf16 : type == kReal16F ? DType::f16 : DType::f32; }
std::byte* at(DevicePointer base, DType type, int64_t i) {
  return reinterpret_cast<std::byte*>(base) + i * ir::dtype_bytes(type);  // NOLINT(performance-no-int-to-ptr): this memory
}

BlasStatus set_desc(MatmulDesc desc, int attribute, const void* value, size_t bytes) {
  FakeDesc& d = of(desc);
  void* const fields[] = {&d.transposed[0], &d.transposed[1], &d.epilogue, &d.bias, &d.bias_stride, &d.bias_type};
  const int names[] = {kDescTransA, kDescTransB, kDescEpilogue, kDescBias, kDescBiasStride, kDescBiasType};
  const size_t sizes[] = {4, 4, 4, 8, 8, 4};
  for (size_t i = 0; i < 6; ++i) {
    if (names[i] != attribute) continue;
    if (sizes[i] != bytes) return 7;
    std::memcpy(fields[i], value, bytes);
    return 0;
  }
  return 7;
}

BlasStatus set_layout(MatrixLayout layout, int attribute, const void* value, size_t) {
  if (attribute == kLayoutBatchCount) std::memcpy(&of(layout).batch, value, 4);
  if (attribute == kLayoutBatchStride) std::memcpy(&of(layout).stride, value, 8);
  return 0;
}

// As documented: a bias has D's dtype, and its address says how it is aligned.
BlasStatus heuristics(BlasHandle, MatmulDesc desc, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout d, MatmulPreference,
                      int, HeuristicResult* results, int* found) {
  const FakeDesc& p = of(desc);
  const bool known = p.epilogue == 1 || (p.epilogue == kEpilogueBias && p.bias_type == of(d).type && p.bias % 16 == 0);
  results[0] = {};
  *found = known && p.bias_type != kReal16F ? 1 : 0;
  return 0;
}

// D = alpha op(A) op(B) + beta C + bias, all column-major; a bias is one number per row of D.
BlasStatus matmul(BlasHandle, MatmulDesc desc, const void* alpha, DevicePointer pa, MatrixLayout la, DevicePointer pb,
                  MatrixLayout lb, const void* beta, DevicePointer pc, MatrixLayout lc, DevicePointer pd, MatrixLayout ld,
                  const MatmulAlgo*, DevicePointer, size_t, Stream) {
  const FakeDesc& p = of(desc);
  const FakeLayout &a = of(la), &b = of(lb), &c = of(lc), &d = of(ld);
  const auto get = [](const FakeLayout& m, DevicePointer base, int64_t batch, int64_t row, int64_t column) {
    if (row >= m.rows || column >= m.columns || m.ld < m.rows) throw std::logic_error("outside a matrix");
    return load_double(dtype(m.type), at(base, dtype(m.type), batch * m.stride + column * m.ld + row));
  };
  const int64_t inner = p.transposed[0] != 0 ? a.rows : a.columns;
  for (int64_t batch = 0; batch < d.batch; ++batch) {
    for (int64_t j = 0; j < d.columns; ++j) {
      for (int64_t i = 0; i < d.rows; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k) {
          const double x = p.transposed[0] != 0 ? get(a, pa, batch, k, i) : get(a, pa, batch, i, k);
          const double y = p.transposed[1] != 0 ? get(b, pb, batch, j, k) : get(b, pb, batch, k, j);
          sum += x * y;
        }
        sum *= *static_cast<const float*>(alpha);
        const float scale = *static_cast<const float*>(beta);
        if (scale != 0) sum += scale * get(c, pc, batch, i, j);
        if (p.epilogue == kEpilogueBias)
          sum += load_double(dtype(p.bias_type), at(p.bias, dtype(p.bias_type), batch * p.bias_stride + i));
        store_double(dtype(d.type), sum, at(pd, dtype(d.type), batch * d.stride + j * d.ld + i));
      }
    }
  }
  return 0;
}

Blas fake_library() {
  Blas b{};
  b.version = [] { return size_t{130000}; };
  b.create_desc = [](MatmulDesc* made, int, int) {
    *made = reinterpret_cast<MatmulDesc>(new FakeDesc);
    return 0;
  };
  b.destroy_desc = [](MatmulDesc desc) {
    delete &of(desc);
    return 0;
  };
  b.set_desc = set_desc;
  b.create_layout = [](MatrixLayout* made, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    *made =
        reinterpret_cast<MatrixLayout>(new FakeLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld, 0, 1});
    return 0;
  };
  b.destroy_layout = [](MatrixLayout layout) {
    delete &of(layout);
    return 0;
  };
  b.set_layout = set_layout;
  b.create_preference = [](MatmulPreference*) { return 0; };
  b.destroy_preference = [](MatmulPreference) { return 0; };
  b.set_preference = [](MatmulPreference, int, const void*, size_t) { return 0; };
  b.heuristics = heuristics;
  b.matmul = matmul;
  return b;
}

/// Numbers aligned as the library asks, one matrix.
struct Matrix {
  DType dtype;
  std::vector<std::byte> bytes;
  explicit Matrix(DType type, int64_t elements, unsigned seed)
      : dtype(type), bytes(static_cast<size_t>(elements * ir::dtype_bytes(type)) + 256) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < elements; ++i) set(i, std::uniform_real_distribution<double>(-1, 1)(random));
  }
  DevicePointer address() const { return (reinterpret_cast<DevicePointer>(bytes.data()) + 255) / 256 * 256; }
  double get(int64_t i) const { return load_double(dtype, at(address(), dtype, i)); }
  void set(int64_t i, double x) { store_double(dtype, x, at(address(), dtype, i)); }
};

ir::Gemm biased(int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  ir::Gemm g;
  g.m = m, g.n = n, g.k = k, g.batch = batch, g.ta = ta, g.tb = tb;
  g.lda = ta ? m : k, g.ldb = tb ? k : n, g.ldd = n;
  g.stride_a = m * k, g.stride_b = k * n, g.stride_d = m * n;
  g.beta = 1;
  return g;
}

TEST(CudaGemm, ABiasIsAddedToEveryRow) {
  const Blas library = fake_library();
  for (const DType type : {DType::f32, DType::bf16}) {
    for (int t = 0; t < 4; ++t) {
      for (const int64_t batch : {1, 3}) {
        for (const int64_t stride : {0, 11}) {
          ir::Gemm g = biased(batch, 5, 7, 3, t & 1, t & 2);
          g.stride_c = stride;
          const Matrix a(type, batch * 15, 1), b(type, batch * 21, 2), first(type, batch * 11, 3), second(type, batch * 11, 4);
          Matrix d(type, batch * 35, 5);
          const GemmTypes types{type, type, type, type};
          const Gemm gemm(g, types, {a.address(), b.address(), first.address(), d.address()}, 0, library);
          for (const Matrix* bias : {&first, &second}) {  // one description serves equal products, wherever their bias lies
            gemm.run({a.address(), b.address(), bias->address(), d.address()}, 0, nullptr);
            for (int64_t at = 0; at < batch * 35; ++at) {
              const int64_t p = at / 35, i = at % 35 / 7, j = at % 7;
              double want = bias->get(p * stride + j);
              for (int64_t k = 0; k < 3; ++k) {
                want += a.get(p * 15 + (g.ta ? k * 5 + i : i * 3 + k)) * b.get(p * 21 + (g.tb ? j * 3 + k : k * 7 + j));
              }
              ASSERT_NEAR(d.get(at), want, type == DType::f32 ? 1e-6 : 1e-2) << "transposes " << t << " element " << at;
            }
          }
        }
      }
    }
  }
}

TEST(CudaGemm, AMatrixIsAddedAsBefore) {
  const Blas library = fake_library();
  ir::Gemm g = biased(1, 5, 7, 3, false, false);
  g.ldc = 7;
  const Matrix a(DType::f32, 15, 1), b(DType::f32, 21, 2), c(DType::f32, 35, 3);
  Matrix d(DType::f32, 35, 4);
  const GemmPointers at{a.address(), b.address(), c.address(), d.address()};
  Gemm(g, {}, at, 0, library).run(at, 0, nullptr);
  for (int64_t e = 0; e < 35; ++e) {
    double want = c.get(e);
    for (int64_t k = 0; k < 3; ++k) want += a.get(e / 7 * 3 + k) * b.get(k * 7 + e % 7);
    ASSERT_NEAR(d.get(e), want, 1e-6) << e;
  }
}

/// One product of a plan, with a bias of this dtype so many bytes into its buffer.
ir::Plan plan_of(DType result, DType bias, int64_t offset, bool has_bias = true) {
  ir::Plan plan;
  plan.arenas = {{"work", 2048}};
  for (const auto& [name, type] : {std::pair("a", result), {"b", result}, {"c", bias}, {"d", result}}) {
    ir::Buffer b;
    b.name = name;
    b.type = {type, {4, 4}};
    b.bytes = b.type.bytes();
    b.offset = static_cast<int64_t>(plan.buffers.size()) * ir::kBufferAlignment + (b.name == "c" ? offset : 0);
    plan.buffers.push_back(b);
  }
  ir::Call call;
  call.kind = ir::CallKind::gemm;
  call.gemm = biased(1, 4, 4, 4, false, false);
  if (!has_bias) call.gemm.ldc = 4;
  for (ir::BufferId id = 0; id < 4; ++id) call.args.push_back({id, id == 3 ? ir::AccessMode::write : ir::AccessMode::read});
  plan.programs = {{"train", {}, {}, {call}}};
  return plan;
}

TEST(CudaGemm, ALibraryWithoutAKernelForABiasIsFoundOut) {
  const Blas library = fake_library();
  EXPECT_FALSE(lacks_bias_kernels(plan_of(DType::bf16, DType::bf16, 0), library));
  EXPECT_TRUE(lacks_bias_kernels(plan_of(DType::bf16, DType::f32, 0), library)) << "of another dtype than the result's";
  EXPECT_TRUE(lacks_bias_kernels(plan_of(DType::bf16, DType::bf16, 2), library)) << "not aligned";
  EXPECT_TRUE(lacks_bias_kernels(plan_of(DType::f16, DType::f16, 0), library));
  EXPECT_FALSE(lacks_bias_kernels(plan_of(DType::f16, DType::f16, 0, false), library)) << "no bias at all";
  EXPECT_FALSE(lacks_bias_kernels(plan_of(DType::f16, DType::f16, 0, false))) << "nor a card asked for";
  const ir::Plan plan = plan_of(DType::f16, DType::f16, 0);
  const GemmTypes types{DType::f16, DType::f16, DType::f16, DType::f16};
  EXPECT_THROW(Gemm(plan.programs[0].calls[0].gemm, types, {256, 256, 256, 256}, 0, library), ir::MachineError);
}

}  // namespace
}  // namespace ingot::runtime::cuda
