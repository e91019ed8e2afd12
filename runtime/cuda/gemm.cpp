#include "runtime/cuda/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "ir/base/error.h"
#include "runtime/cuda/capture.h"

namespace ingot::runtime::cuda {
namespace {

int real_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f32:
      return kReal32F;
    case ir::DType::bf16:
      return kReal16BF;
    case ir::DType::f16:
      return kReal16F;
    default:
      throw ir::InternalError("a matrix product of " + std::string(ir::dtype_name(dtype)));
  }
}

// The largest power of two that divides the address, 256 at most: what the library may assume of a pointer.
uint32_t alignment(DevicePointer pointer) {
  uint32_t bytes = 256;
  while (pointer % bytes != 0) bytes /= 2;
  return bytes;
}

// The text of an algorithm: its bytes in hex, then the workspace it asks for.
std::string text_of(const MatmulAlgo& algo, size_t workspace) {
  std::string text;
  for (const uint64_t word : algo.data) text += fmt::format("{:016x}", word);
  return text + fmt::format("+{}", workspace);
}

/// The inverse; false for a text of another form.
bool parse(const std::string& text, MatmulAlgo& algo) {
  constexpr size_t kDigits = 16;
  const size_t words = std::size(algo.data);
  if (text.size() < words * kDigits + 2 || text[words * kDigits] != '+') return false;
  for (size_t i = 0; i < words; ++i) {
    const char* begin = text.data() + i * kDigits;
    if (std::from_chars(begin, begin + kDigits, algo.data[i], 16).ptr != begin + kDigits) return false;
  }
  return text.find_first_not_of("0123456789", words * kDigits + 1) == std::string::npos;
}

}  // namespace

// Row-major D = op(A) op(B) is column-major D^T = op(B)^T op(A)^T: the library is given B first, and every matrix as its
// transpose. A bias, one number per column of D, is one per row of D^T, which is what its epilogue adds; then nothing is added
// as a matrix.
struct Gemm::Impl {
  const Blas& blas;
  bool bias = false;
  float alpha = 1, beta = 0;
  MatmulDesc desc = nullptr;
  MatrixLayout first = nullptr, second = nullptr, c = nullptr, d = nullptr;
  MatmulPreference preference = nullptr;
  size_t workspace_bytes = 0;
  bool large = false;  ///< a matrix of 2^31 elements or more
  HeuristicResult chosen;

  explicit Impl(const Blas& library) : blas(library) {}
  // Made whole before anything can fail: then the destructor gives back what there is.
  Impl(const ir::Gemm& g, const GemmTypes& types, const GemmPointers& typical, int64_t workspace, const Blas& library)
      : Impl(library) {
    bias = g.has_bias();
    alpha = static_cast<float>(g.alpha), beta = bias ? 0 : static_cast<float>(g.beta);
    workspace_bytes = static_cast<size_t>(workspace);
    for (const int64_t elements : {g.m * g.k, g.k * g.n, g.m * g.n}) large = large || g.batch * elements >= int64_t{1} << 31;
    check_blas(blas.create_desc(&desc, kCompute32F, kReal32F), "describing a product");
    const int first_op = g.tb ? kTranspose : kNoTranspose, second_op = g.ta ? kTranspose : kNoTranspose;
    check_blas(blas.set_desc(desc, kDescTransA, &first_op, sizeof first_op), "describing a product");
    check_blas(blas.set_desc(desc, kDescTransB, &second_op, sizeof second_op), "describing a product");
    describe(first, types.b, g.tb ? g.k : g.n, g.tb ? g.n : g.k, g.ldb, g.batch, g.stride_b);
    describe(second, types.a, g.ta ? g.m : g.k, g.ta ? g.k : g.m, g.lda, g.batch, g.stride_a);
    describe(d, types.d, g.n, g.m, g.ldd, g.batch, g.stride_d);
    if (beta != 0)
      describe(c, types.c, g.n, g.m, g.ldc, g.batch, g.stride_c);
    else
      describe(c, types.d, g.n, g.m, g.ldd, g.batch, g.stride_d);
    if (bias) describe_bias(g, types, typical.c);
    prefer(typical);
  }

  Impl(const Impl&) = delete;
  ~Impl() {
    if (context_lost()) return;
    for (const MatrixLayout l : {first, second, c, d}) {
      if (l != nullptr) blas.destroy_layout(l);
    }
    if (desc != nullptr) blas.destroy_desc(desc);
    if (preference != nullptr) blas.destroy_preference(preference);
  }

  // Algorithms are chosen with the alignment of a typical address.
  void describe_bias(const ir::Gemm& g, const GemmTypes& types, DevicePointer typical) const {
    const int32_t dtype = real_type(types.c);
    check_blas(blas.set_desc(desc, kDescEpilogue, &kEpilogueBias, sizeof kEpilogueBias), "describing a bias");
    check_blas(blas.set_desc(desc, kDescBiasType, &dtype, sizeof dtype), "describing a bias");
    if (g.batch > 1) check_blas(blas.set_desc(desc, kDescBiasStride, &g.stride_c, sizeof g.stride_c), "describing a bias");
    point_to_bias(typical);
  }

  void point_to_bias(DevicePointer at) const { check_blas(blas.set_desc(desc, kDescBias, &at, sizeof at), "describing a bias"); }

  void describe(MatrixLayout& made, ir::DType dtype, int64_t rows, int64_t columns, int64_t ld, int64_t batch,
                int64_t stride) const {
    check_blas(blas.create_layout(&made, real_type(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld),
               "describing a matrix");
    const int32_t count = static_cast<int32_t>(batch);
    check_blas(blas.set_layout(made, kLayoutBatchCount, &count, sizeof count), "describing a matrix");
    check_blas(blas.set_layout(made, kLayoutBatchStride, &stride, sizeof stride), "describing a matrix");
  }

  void prefer(const GemmPointers& typical) {
    check_blas(blas.create_preference(&preference), "choosing an algorithm");
    const uint32_t reductions = kReductionNone | kReductionComputeType;
    check_blas(blas.set_preference(preference, kPreferenceReductions, &reductions, sizeof reductions), "choosing an algorithm");
    check_blas(blas.set_preference(preference, kPreferenceWorkspace, &workspace_bytes, sizeof workspace_bytes),
               "choosing an algorithm");
    const DevicePointer pointers[] = {typical.b, typical.a, beta != 0 ? typical.c : typical.d, typical.d};
    for (int i = 0; i < 4; ++i) {
      const uint32_t bytes = alignment(pointers[i]);
      check_blas(blas.set_preference(preference, kPreferenceAlignmentA + i, &bytes, sizeof bytes), "choosing an algorithm");
    }
  }

  std::vector<HeuristicResult> heuristics(int most) const {
    std::vector<HeuristicResult> results(static_cast<size_t>(most));
    int found = 0;
    const BlasStatus status = blas.heuristics(blas.handle, desc, first, second, c, d, preference, most, results.data(), &found);
    if (status != 0) check_context("choosing an algorithm");  // or there is none
    results.resize(status == 0 ? static_cast<size_t>(found) : 0);
    std::erase_if(results, [](const HeuristicResult& r) { return r.state != 0; });
    return results;
  }

  bool accepts(const MatmulAlgo& algo, HeuristicResult& result) const {
    const BlasStatus status = blas.check_algorithm(blas.handle, desc, first, second, c, d, &algo, &result);
    if (status != 0) check_context("checking an algorithm");
    return status == 0 && result.state == 0 && result.workspace_bytes <= workspace_bytes;
  }
};

Gemm::Gemm(const ir::Gemm& gemm, const GemmTypes& types, const GemmPointers& typical, int64_t workspace_bytes, const Blas& blas)
    : impl_(std::make_unique<Impl>(gemm, types, typical, workspace_bytes, blas)) {
  if (!gemm.algorithm.empty()) {
    if (use(gemm.algorithm)) return;
    throw ir::MachineError(fmt::format("cuBLASLt {} here has no algorithm that this plan was tuned with; compile the model again",
                                       impl_->blas.version()));
  }
  const auto found = impl_->heuristics(1);
  if (found.empty()) {
    throw ir::MachineError(fmt::format("cuBLASLt has no deterministic kernel for a product of {} x {} x {} ({} by {} to {}{})",
                                       gemm.m, gemm.n, gemm.k, ir::dtype_name(types.a), ir::dtype_name(types.b),
                                       ir::dtype_name(types.d),
                                       impl_->bias ? " with a bias; the bias as a sum of its own, x @ w + b, needs none" : ""));
  }
  impl_->chosen = found[0];
  algorithm_ = text_of(found[0].algo, found[0].workspace_bytes);
}

Gemm::~Gemm() = default;

bool Gemm::has_kernel(const ir::Gemm& gemm, const GemmTypes& types, const GemmPointers& typical, int64_t workspace_bytes,
                      const Blas& blas) {
  return !Impl(gemm, types, typical, workspace_bytes, blas).heuristics(1).empty();
}

void Gemm::run(const GemmPointers& at, DevicePointer workspace, Stream stream) const {
  const Impl& g = *impl_;
  if (g.bias) g.point_to_bias(at.c);
  check_blas(
      g.blas.matmul(g.blas.handle, g.desc, &g.alpha, at.b, g.first, at.a, g.second, &g.beta, g.beta != 0 ? at.c : at.d, g.c, at.d,
                    g.d, &g.chosen.algo, workspace, only_counts() ? g.chosen.workspace_bytes : g.workspace_bytes, stream),
      "a matrix product");
}

bool Gemm::only_counts() const {
  const size_t need = impl_->chosen.workspace_bytes;
  return !impl_->large && need > 0 && need <= static_cast<size_t>(Counters::kSlot);
}

std::vector<std::string> Gemm::candidates(int most) const {
  std::vector<std::string> texts;
  for (const HeuristicResult& result : impl_->heuristics(most)) texts.push_back(text_of(result.algo, result.workspace_bytes));
  return texts;
}

bool Gemm::use(const std::string& algorithm) {
  HeuristicResult result;
  MatmulAlgo algo;
  if (!parse(algorithm, algo) || !impl_->accepts(algo, result)) return false;
  result.algo = algo;
  impl_->chosen = result;
  algorithm_ = algorithm;
  return true;
}

}  // namespace ingot::runtime::cuda
