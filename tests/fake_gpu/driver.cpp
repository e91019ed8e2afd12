// libcuda.so.1 for tests: memory is the host's, kernels do nothing, and the context can be lost (loss.h).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fake_gpu/loss.h"

namespace ingot::tests {
namespace {

constexpr int kOutOfMemory = 2;

struct Fake {
  long calls = 0, lose_at = number("INGOT_FAKE_LOSE_AT", 0), fail_at = number("INGOT_FAKE_FAIL_AT", 0);
  long live = 0;  ///< handles given out and not back
  int lose_with = static_cast<int>(number("INGOT_FAKE_LOSE_WITH", kIllegalAddress));
  bool lost = false, told = false;  ///< told: by the driver, with the error's number
  bool capturing = false;
  std::vector<unsigned long long> fills;  ///< of the capture, in order

  ~Fake() {
    const char* path = std::getenv("INGOT_FAKE_COUNT");
    if (path == nullptr) return;
    std::FILE* file = std::fopen(path, "w");
    std::fprintf(file, "%ld %ld", calls, live);
    std::fclose(file);
  }

  static long number(const char* name, long otherwise) {
    const char* text = std::getenv(name);
    return text ? std::atol(text) : otherwise;
  }

  void count() { lost = ++calls == lose_at || lost; }

  void refuse(const char* name) const {
    if (!told) return;
    std::fprintf(stderr, "fake GPU: %s was called after the context was lost\n", name);
    std::abort();
  }
};

Fake& fake() {
  static Fake fake;
  return fake;
}

}  // namespace

int driver_call() {
  Fake& f = fake();
  f.count();
  f.told = f.lost;
  return f.lost ? f.lose_with : f.calls == f.fail_at ? kOutOfMemory : 0;
}

int blas_call() {
  fake().count();
  return fake().lost || fake().calls == fake().fail_at ? 13 : 0;
}

int driver_return(const char* name) {
  fake().refuse(name);
  --fake().live;
  return driver_call();
}

int blas_return(const char* name) {
  fake().refuse(name);
  --fake().live;
  return blas_call();
}

void give_out() { ++fake().live; }

bool capturing() { return fake().capturing; }
void captured_fill(unsigned long long workspace) { fake().fills.push_back(workspace); }

}  // namespace ingot::tests

// NOLINTBEGIN(performance-no-int-to-ptr): addresses of the card and handles are numbers
namespace {

using ingot::tests::fake;
using Pointer = unsigned long long;

template <class T>
T* handle(long number = 1) {
  return reinterpret_cast<T*>(number);
}

// Matrices for measuring ceilings are never looked at.
constexpr size_t kCopied = 1 << 22;

void copy(void* to, const void* from, size_t bytes) {
  if (bytes <= kCopied && !fake().capturing) std::memcpy(to, from, bytes);
}

struct FillNode {
  Pointer to;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
};

}  // namespace

#define CALL()                                                     \
  do {                                                             \
    if (const int lost = ingot::tests::driver_call()) return lost; \
  } while (false)

#define RETURN() return ingot::tests::driver_return(__func__)

extern "C" {

int cuInit(unsigned) {
  CALL();
  return 0;
}
int cuDriverGetVersion(int* version) {
  CALL();
  *version = 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  CALL();
  *count = 1;
  return 0;
}
int cuDeviceGet(int* device, int) {
  CALL();
  *device = 0;
  return 0;
}
int cuDeviceGetName(char* name, int length, int) {
  CALL();
  std::snprintf(name, static_cast<size_t>(length), "Fake");
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  CALL();
  *value = attribute == 75 ? 9 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  CALL();
  ingot::tests::give_out();
  *context = handle<void>();
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { RETURN(); }
int cuCtxSetCurrent(void*) {
  CALL();
  return 0;
}
int cuCtxSynchronize() {
  CALL();
  return 0;
}
// These two read a table and may be called at any time.
int cuGetErrorName(int error, const char** text) {
  *text = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : error == 214 ? "CUDA_ERROR_ECC_UNCORRECTABLE" : nullptr;
  return 0;
}
int cuGetErrorString(int error, const char** text) {
  *text = error == 700   ? "an illegal memory access was encountered"
          : error == 214 ? "uncorrectable ECC error encountered"
                         : nullptr;
  return 0;
}

int cuModuleLoadData(void** module, const void*) {
  CALL();
  ingot::tests::give_out();
  *module = handle<void>();
  return 0;
}
int cuModuleUnload(void*) { RETURN(); }
int cuModuleGetFunction(void** function, void*, const char*) {
  CALL();
  *function = handle<void>();
  return 0;
}
int cuFuncSetAttribute(void*, int, int) {
  CALL();
  return 0;
}
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) {
  CALL();
  return 0;
}

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  CALL();
  *free = *total = size_t{1} << 36;
  return 0;
}
int cuMemAlloc_v2(Pointer* pointer, size_t bytes) {
  CALL();
  // Whole pages that nobody touches cost nothing.
  void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (bytes <= kCopied) std::memset(memory, 0, bytes);
  ingot::tests::give_out();
  *pointer = reinterpret_cast<Pointer>(memory);
  return 0;
}
int cuMemFree_v2(Pointer pointer) {
  std::free(reinterpret_cast<void*>(pointer));
  RETURN();
}
int cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  CALL();
  ingot::tests::give_out();
  *pointer = std::calloc(bytes, 1);
  return 0;
}
int cuMemFreeHost(void* pointer) {
  std::free(pointer);
  RETURN();
}
int cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t bytes, void*) {
  CALL();
  copy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t bytes, void*) {
  CALL();
  copy(to, reinterpret_cast<void*>(from), bytes);
  return 0;
}
int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void*) {
  CALL();
  copy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return 0;
}
int cuMemsetD8Async(Pointer, unsigned char, size_t, void*) {
  CALL();
  return 0;
}
int cuMemsetD16Async(Pointer, unsigned short, size_t, void*) {
  CALL();
  return 0;
}
int cuMemsetD32Async(Pointer, unsigned, size_t, void*) {
  CALL();
  return 0;
}
int cuMemsetD2D32Async(Pointer, size_t, unsigned, size_t, size_t, void*) {
  CALL();
  return 0;
}

int cuStreamCreate(void** stream, unsigned) {
  CALL();
  ingot::tests::give_out();
  *stream = handle<void>();
  return 0;
}
int cuStreamDestroy_v2(void*) { RETURN(); }
int cuStreamSynchronize(void*) {
  CALL();
  return 0;
}
int cuStreamWaitEvent(void*, void*, unsigned) {
  CALL();
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  CALL();
  ingot::tests::give_out();
  *event = handle<void>();
  return 0;
}
int cuEventDestroy_v2(void*) { RETURN(); }
int cuEventRecord(void*, void*) {
  CALL();
  return 0;
}
int cuEventSynchronize(void*) {
  CALL();
  return 0;
}
int cuEventElapsedTime(float* milliseconds, void*, void*) {
  CALL();
  *milliseconds = 1;
  return 0;
}

int cuStreamBeginCapture_v2(void*, int) {
  CALL();
  fake().capturing = true;
  fake().fills.clear();
  return 0;
}
int cuStreamEndCapture(void*, void** graph) {
  CALL();
  fake().capturing = false;
  ingot::tests::give_out();
  *graph = handle<void>();
  return 0;
}
int cuGraphInstantiateWithFlags(void** exec, void*, unsigned long long) {
  CALL();
  ingot::tests::give_out();
  *exec = handle<void>();
  return 0;
}
int cuGraphDestroy(void*) { RETURN(); }
int cuGraphExecDestroy(void*) { RETURN(); }
int cuGraphLaunch(void*, void*) {
  CALL();
  return 0;
}
// The nodes of a graph are 1, 2, ...: the fills, and behind them a kernel that all others come before or after.
int cuGraphGetNodes(void*, void** nodes, size_t* count) {
  CALL();
  const size_t all = fake().fills.size() + 1;
  for (size_t i = 0; nodes != nullptr && i < std::min(*count, all); ++i) nodes[i] = handle<void>(static_cast<long>(i) + 1);
  *count = all;
  return 0;
}
int cuGraphNodeGetType(void* node, int* type) {
  CALL();
  *type = reinterpret_cast<size_t>(node) <= fake().fills.size() ? 2 : 0;
  return 0;
}
int cuGraphMemsetNodeGetParams(void* node, FillNode* fill) {
  CALL();
  *fill = {fake().fills.at(reinterpret_cast<size_t>(node) - 1), 0, 0, 4, 1, 1};
  return 0;
}
int cuGraphDestroyNode(void*) {
  CALL();
  return 0;
}
int cuGraphNodeGetDependencies(void* node, void** nodes, size_t* count) {
  CALL();
  const bool fill = reinterpret_cast<size_t>(node) <= fake().fills.size();
  if (fill && nodes != nullptr) nodes[0] = handle<void>(static_cast<long>(fake().fills.size()) + 2);
  *count = fill ? 1 : 0;
  return 0;
}
int cuGraphNodeGetDependentNodes(void*, void** nodes, size_t* count) {
  CALL();
  if (nodes != nullptr) nodes[0] = handle<void>(static_cast<long>(fake().fills.size()) + 1);
  *count = 1;
  return 0;
}
int cuGraphAddDependencies(void*, const void*, const void*, size_t) {
  CALL();
  return 0;
}

}  // extern "C"
// NOLINTEND(performance-no-int-to-ptr)
