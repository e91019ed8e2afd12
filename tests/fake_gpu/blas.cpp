// libcublasLt.so.13 for tests: one algorithm, which counts in its workspace and computes nothing. INGOT_FAKE_NO_BIAS=1: none for
// products with a bias.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tests/fake_gpu/loss.h"

#define CALL()                                                       \
  do {                                                               \
    if (const int failed = ingot::tests::blas_call()) return failed; \
  } while (false)

namespace {

struct HeuristicResult {
  uint64_t algo[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
constexpr HeuristicResult kOnly{{1}, 16, 0, 1, {}};

void* const kHandle = reinterpret_cast<void*>(1);

constexpr int kEpilogue = 7;
bool biased = false;  // the description of a product made last; who makes one asks for its algorithms before the next

bool refused() {
  const char* text = std::getenv("INGOT_FAKE_NO_BIAS");
  return biased && text != nullptr && std::string_view(text) == "1";
}

}  // namespace

#define RETURN() return ingot::tests::blas_return(__func__)

extern "C" {

int cublasLtCreate(void** made) {
  CALL();
  *made = kHandle;
  return 0;
}
size_t cublasLtGetVersion() { return 130000; }
int cublasLtMatmulDescCreate(void** made, int, int) {
  CALL();
  ingot::tests::give_out();
  biased = false;
  *made = kHandle;
  return 0;
}
int cublasLtMatmulDescDestroy(void*) { RETURN(); }
int cublasLtMatmulDescSetAttribute(void*, int attribute, const void*, size_t) {
  CALL();
  biased = biased || attribute == kEpilogue;
  return 0;
}
int cublasLtMatrixLayoutCreate(void** made, int, uint64_t, uint64_t, int64_t) {
  CALL();
  ingot::tests::give_out();
  *made = kHandle;
  return 0;
}
int cublasLtMatrixLayoutDestroy(void*) { RETURN(); }
int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, size_t) {
  CALL();
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** made) {
  CALL();
  ingot::tests::give_out();
  *made = kHandle;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(void*) { RETURN(); }
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) {
  CALL();
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, HeuristicResult* results, int* found) {
  CALL();
  *results = kOnly;
  *found = refused() ? 0 : 1;
  return 0;
}
int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const void*, HeuristicResult* result) {
  CALL();
  *result = kOnly;
  return 0;
}
int cublasLtMatmul(void*, void*, const void*, unsigned long long, void*, unsigned long long, void*, const void*,
                   unsigned long long, void*, unsigned long long, void*, const void*, unsigned long long workspace, size_t,
                   void*) {
  CALL();
  if (ingot::tests::capturing()) ingot::tests::captured_fill(workspace);
  return 0;
}

}  // extern "C"
