#include "runtime/cuda/ceilings.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "runtime/convert.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"

namespace ingot::runtime::cuda {
namespace {

constexpr int64_t kSide = 8192, kCopyBytes = int64_t{2} << 30, kWorkspace = int64_t{32} << 20;
constexpr int kRepeats = 11;

/// Seconds of one run by the card's clock: the median, after one that is not counted.
double median_seconds(Stream stream, const std::function<void()>& run) {
  const Driver& d = Driver::get();
  const OwnedEvent begin(true), end(true);
  std::vector<double> seconds;
  for (int i = -1; i < kRepeats; ++i) {
    check(d.record(begin, stream), "timing");
    run();
    check(d.record(end, stream), "timing");
    check(d.wait_event(end), "timing");
    float milliseconds = 0;
    check(d.elapsed(&milliseconds, begin, end), "timing");
    if (i >= 0) seconds.push_back(milliseconds / 1e3);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

double copy_ceiling() {
  now_running("measuring the ceiling of copies");
  const Device device;
  const OwnedStream stream;
  const DeviceMemory from(kCopyBytes, "measuring a copy"), to(kCopyBytes, "measuring a copy");
  const double seconds = median_seconds(
      stream, [&] { check(Driver::get().on_device(to.pointer(), from.pointer(), kCopyBytes, stream), "measuring a copy"); });
  return 2.0 * static_cast<double>(kCopyBytes) / seconds;
}

double gemm_ceiling(ir::DType dtype) {
  now_running("measuring the ceiling of products");
  const Device device;
  const OwnedStream stream;
  const int64_t elements = kSide * kSide, bytes = elements * ir::dtype_bytes(dtype);
  const DeviceMemory a(bytes, "measuring a product"), b(bytes, "measuring a product"), d(bytes, "measuring a product");
  const DeviceMemory workspace(kWorkspace, "measuring a product");
  std::mt19937 random(1);
  std::vector<float> values(static_cast<size_t>(elements));
  std::vector<std::byte> stored(static_cast<size_t>(bytes));
  for (const DeviceMemory* matrix : {&a, &b}) {  // zeros would run faster than numbers do
    for (float& x : values) x = static_cast<float>(random()) * 0x1p-31f - 1.0f;
    from_f32(dtype, values.data(), stored.data(), elements);
    check(Driver::get().to_device(matrix->pointer(), stored.data(), stored.size(), stream), "measuring a product");
    stream.wait();
  }
  ir::Gemm shape;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldd = kSide;
  const GemmPointers at{a.pointer(), b.pointer(), 0, d.pointer()};
  const Gemm product(shape, {dtype, dtype, dtype, dtype}, at, kWorkspace);
  const double seconds = median_seconds(stream, [&] { product.run(at, workspace.pointer(), stream); });
  return 2.0 * static_cast<double>(kSide) * static_cast<double>(kSide) * static_cast<double>(kSide) / seconds;
}

std::string card_name() { return Device().name(); }

}  // namespace ingot::runtime::cuda
