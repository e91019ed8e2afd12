#include "runtime/cuda/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "ir/base/error.h"
#include "runtime/convert.h"
#include "runtime/cuda/capture.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"

namespace ingot::runtime::cuda {
namespace {

constexpr int kCandidates = 12, kRepeats = 3, kInGraph = 4;
constexpr double kWorthIt = 0.98;      // of the first suggestion's time: less is noise
constexpr int64_t kChecked = 1 << 16;  // elements compared at either end of an answer
constexpr double kAgree = 2e-2;        // of the root mean square, where 16 bits round sums of another order
constexpr int64_t kRandomPart = 1 << 22;

/// Elements from the first to the last that a matrix touches.
int64_t extent(int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride) {
  return (batch - 1) * stride + (rows - 1) * ld + columns;
}

/// The calls of one product: equal but for where they stand.
struct Product {
  ir::Gemm gemm;
  GemmTypes types;
  uint64_t misaligned[4] = {};  ///< address of a, b, c, d modulo 256
  bool in_place = false;        ///< the result is written over what is added
  int64_t workspace_bytes = 0;
  std::vector<ir::Call*> calls;

  bool same(const Product& other) const {
    return gemm == other.gemm && types == other.types && std::equal(misaligned, misaligned + 4, other.misaligned) &&
           in_place == other.in_place && workspace_bytes == other.workspace_bytes;
  }
};

std::vector<Product> products_of(ir::Plan& plan) {
  std::vector<Product> products;
  for (ir::Program& program : plan.programs) {
    for (ir::Call& call : program.calls) {
      if (call.kind != ir::CallKind::gemm) continue;
      const auto buffer = [&](size_t arg) -> const ir::Buffer& { return plan.buffers[call.args[arg].buffer]; };
      const size_t d = call.gemm.result();
      Product made;
      made.gemm = call.gemm;
      made.gemm.algorithm.clear();
      made.types = {buffer(0).type.dtype, buffer(1).type.dtype, buffer(2).type.dtype, buffer(d).type.dtype};
      const size_t args[] = {0, 1, 2, d};
      for (int i = 0; i < 4; ++i) made.misaligned[i] = static_cast<uint64_t>(buffer(args[i]).offset % 256);
      made.in_place = buffer(2).arena == buffer(d).arena && buffer(2).offset == buffer(d).offset;
      if (call.workspace() != ir::kNoBuffer) made.workspace_bytes = plan.buffers[call.workspace()].bytes;
      const auto known = std::find_if(products.begin(), products.end(), [&](const Product& p) { return p.same(made); });
      Product& product = known == products.end() ? products.emplace_back(std::move(made)) : *known;
      product.calls.push_back(&call);
    }
  }
  return products;
}

class Tuner {
 public:
  void tune(Product& product) {
    const ir::Gemm& g = product.gemm;
    now_running(fmt::format("tuning a product of {} x {} x {}", g.m, g.n, g.k), "--no-tune leaves tuning out");
    const Matrix a = matrix(0, product.types.a, extent(g.ta ? g.k : g.m, g.ta ? g.m : g.k, g.lda, g.batch, g.stride_a), product);
    const Matrix b = matrix(1, product.types.b, extent(g.tb ? g.n : g.k, g.tb ? g.k : g.n, g.ldb, g.batch, g.stride_b), product);
    Matrix c, d = matrix(3, product.types.d, extent(g.m, g.n, g.ldd, g.batch, g.stride_d), product);
    if (g.beta != 0) c = matrix(2, product.types.c, extent(g.m, g.n, g.ldc, g.batch, g.stride_c), product);
    const bool in_place = g.beta != 0 && product.in_place;
    const GemmPointers at{a.at, b.at, in_place ? d.at : c.at, d.at};
    const auto answer = [&](const Gemm& by) { return in_place ? answer_over(by, at, c, d) : answer_into(by, at, d); };
    if (product.workspace_bytes > workspace_bytes_) {
      workspace_ = DeviceMemory(product.workspace_bytes, "tuning");
      workspace_bytes_ = product.workspace_bytes;
    }
    Gemm gemm(g, product.types, at, product.workspace_bytes);
    std::string best = gemm.algorithm();
    const std::vector<float> want = answer(gemm);
    double least = seconds(gemm, at);
    for (const std::string& candidate : gemm.candidates(kCandidates)) {
      if (candidate == best || !gemm.use(candidate) || !agrees(answer(gemm), want)) continue;
      const double time = seconds(gemm, at);
      if (time >= least * kWorthIt) continue;
      least = time;
      best = candidate;
    }
    for (ir::Call* call : product.calls) call->gemm.algorithm = best;
  }

 private:
  struct Matrix {
    DevicePointer at = 0;
    ir::DType dtype = ir::DType::f32;
    int64_t elements = 0;
  };

  /// Memory of place `i`, grown to what is asked, random numbers in all of it.
  Matrix matrix(int i, ir::DType dtype, int64_t elements, const Product& product) {
    const int64_t bytes = elements * ir::dtype_bytes(dtype) + 256;
    Place& place = places_[i];
    if (place.bytes < bytes || place.dtype != dtype) {
      place.memory = DeviceMemory();
      place.memory = DeviceMemory(bytes, "tuning a product");
      place.bytes = bytes;
      place.dtype = dtype;
      fill(place);
    }
    return {place.memory.pointer() + product.misaligned[i], dtype, elements};
  }

  struct Place {
    DeviceMemory memory;
    int64_t bytes = 0;
    ir::DType dtype = ir::DType::f32;
  };

  void fill(const Place& place) {
    const int64_t width = ir::dtype_bytes(place.dtype);
    const int64_t count = std::min(kRandomPart, (place.bytes + width - 1) / width);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& x : values) x = static_cast<float>(random_()) * 0x1p-31f - 1.0f;
    std::vector<std::byte> part(static_cast<size_t>(count * width));
    from_f32(place.dtype, values.data(), part.data(), count);
    for (int64_t at = 0; at < place.bytes; at += static_cast<int64_t>(part.size())) {
      const int64_t bytes = std::min<int64_t>(static_cast<int64_t>(part.size()), place.bytes - at);
      check(Driver::get().to_device(place.memory.pointer() + static_cast<DevicePointer>(at), part.data(),
                                    static_cast<size_t>(bytes), stream_),
            "tuning");
    }
    stream_.wait();
  }

  /// One run by the card's clock, the least of some replays of several in a graph: as a step will run it.
  double seconds(const Gemm& gemm, const GemmPointers& at) {
    const bool counts = gemm.only_counts();
    const OwnedGraph graph = capture(
        stream_, counters_,
        [&] {
          for (int i = 0; i < kInGraph; ++i) gemm.run(at, counts ? counters_.slot(i) : workspace_.pointer(), stream_);
        },
        "a product for tuning");
    double least = INFINITY;
    for (int i = 0; i < kRepeats; ++i) {
      check(Driver::get().record(begin_, stream_), "tuning");
      check(Driver::get().replay(graph, stream_), "tuning");
      check(Driver::get().record(end_, stream_), "tuning");
      check(Driver::get().wait_event(end_), "tuning");
      float milliseconds = 0;
      check(Driver::get().elapsed(&milliseconds, begin_, end_), "tuning");
      least = std::min(least, milliseconds / 1e3 / kInGraph);
    }
    return least;
  }

  /// Both ends of a product whose result has bytes of its own.
  std::vector<float> answer_into(const Gemm& gemm, const GemmPointers& at, const Matrix& d) {
    check(Driver::get().fill8(d.at, 0xff, static_cast<size_t>(d.elements * ir::dtype_bytes(d.dtype)), stream_), "tuning");
    gemm.run(at, workspace_.pointer(), stream_);
    return ends(d);
  }

  /// The same where the result is written over what is added: `c` afresh each time.
  std::vector<float> answer_over(const Gemm& gemm, const GemmPointers& at, const Matrix& c, const Matrix& d) {
    check(Driver::get().on_device(d.at, c.at, static_cast<size_t>(d.elements * ir::dtype_bytes(d.dtype)), stream_), "tuning");
    gemm.run(at, workspace_.pointer(), stream_);
    return ends(d);
  }

  std::vector<float> ends(const Matrix& d) {
    const int64_t count = std::min(kChecked, d.elements), width = ir::dtype_bytes(d.dtype);
    std::vector<std::byte> stored(static_cast<size_t>(2 * count * width));
    const DevicePointer last = d.at + static_cast<DevicePointer>((d.elements - count) * width);
    check(Driver::get().to_host(stored.data(), d.at, static_cast<size_t>(count * width), stream_), "tuning");
    check(Driver::get().to_host(stored.data() + count * width, last, static_cast<size_t>(count * width), stream_), "tuning");
    stream_.wait();
    std::vector<float> values(static_cast<size_t>(2 * count));
    to_f32(d.dtype, stored.data(), values.data(), 2 * count);
    return values;
  }

  /// Elements between rows and batches are NaN in both.
  static bool agrees(const std::vector<float>& got, const std::vector<float>& want) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(got[i]) != std::isnan(want[i])) return false;
      if (std::isnan(want[i])) continue;
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      size += want[i] * want[i];
    }
    return std::sqrt(difference) <= kAgree * std::sqrt(size);
  }

  OwnedStream stream_;
  OwnedEvent begin_{true}, end_{true};
  Counters counters_{kInGraph};
  DeviceMemory workspace_;
  int64_t workspace_bytes_ = 0;
  std::map<int, Place> places_;
  std::mt19937 random_{1};
};

}  // namespace

ir::Plan with_algorithms_of(ir::Plan plan, const ir::Plan& tuned) {
  ir::Plan other = tuned;
  const std::vector<Product> known = products_of(other);
  for (Product& product : products_of(plan)) {
    const auto same = std::find_if(known.begin(), known.end(), [&](const Product& p) { return p.same(product); });
    if (same == known.end()) continue;
    for (ir::Call* call : product.calls) call->gemm.algorithm = same->calls.front()->gemm.algorithm;
  }
  return plan;
}

ir::Plan tune(ir::Plan plan) {
  const Device device;
  if (plan.target != fmt::format("cuda:sm_{}", device.capability())) return plan;
  Tuner tuner;
  for (Product& product : products_of(plan)) tuner.tune(product);
  return plan;
}

bool lacks_bias_kernels(const ir::Plan& plan, const Blas& blas) {
  ir::Plan seen = plan;
  const std::vector<Product> products = products_of(seen);
  return std::any_of(products.begin(), products.end(), [&](const Product& p) {
    if (!p.gemm.has_bias()) return false;
    // Addresses matter by their alignment alone here.
    const auto at = [&](int i) { return DevicePointer{256} + p.misaligned[i]; };
    return !Gemm::has_kernel(p.gemm, p.types, {at(0), at(1), at(2), at(3)}, p.workspace_bytes, blas);
  });
}

bool lacks_bias_kernels(const ir::Plan& plan) {
  const bool any = std::any_of(plan.programs.begin(), plan.programs.end(), [](const ir::Program& program) {
    return std::any_of(program.calls.begin(), program.calls.end(), [](const ir::Call& call) { return call.gemm.has_bias(); });
  });
  if (!any) return false;
  const Device device;
  return plan.target == fmt::format("cuda:sm_{}", device.capability()) && lacks_bias_kernels(plan, Blas::get());
}

}  // namespace ingot::runtime::cuda
