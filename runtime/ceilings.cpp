#include "runtime/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <unordered_map>

#include "runtime/arena.h"
#include "runtime/library.h"
#include "runtime/pool.h"
#include "runtime/threads.h"

namespace ingot::runtime {
namespace {

constexpr int64_t kSide = 2048, kCopyBytes = int64_t{128} << 20, kCopyPart = int64_t{1} << 20;

/// Seconds of the fastest of `repeats` runs, after one that is not counted.
double least(int repeats, const std::function<void()>& run) {
  run();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

/// A matrix of rows x cols, or cols x rows as stored when transposed; batches `stride` elements apart, 0 for one that is shared.
dnnl::memory::desc describe(ir::DType dtype, bool transposed, int64_t rows, int64_t cols, int64_t ld, int64_t stride,
                            int64_t batch) {
  const bool shared = batch == 1 || stride == 0;
  return {{shared ? 1 : batch, rows, cols},
          library_type(dtype),
          {shared ? rows * cols : stride, transposed ? 1 : ld, transposed ? ld : 1}};
}

}  // namespace

double gemm_ceiling(ir::DType dtype, int threads) {
  ir::Gemm gemm;
  gemm.m = gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldd = kSide;
  const double seconds = library_gemm_seconds(gemm, {dtype, dtype, dtype, dtype}, threads, 5);
  return seconds > 0 ? 2.0 * static_cast<double>(kSide * kSide * kSide) / seconds : 0;
}

double copy_ceiling(int threads) {
  const Arena from(kCopyBytes), to(kCopyBytes);
  Pool& pool = Pool::of(thread_count(threads));
  std::memset(from.data(), 1, static_cast<size_t>(kCopyBytes));  // pages never written are all the same page of zeros
  const double seconds = least(7, [&] {
    pool.run(kCopyBytes, kCopyPart, [&](int64_t begin, int64_t end, int) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    });
  });
  return 2.0 * static_cast<double>(kCopyBytes) / seconds;
}

double library_gemm_seconds(const ir::Gemm& g, const GemmTypes& types, int threads, int repeats) try {
  const LibraryThreads count(thread_count(threads));
  const dnnl::engine& engine = cpu_engine();
  dnnl::stream stream(engine);
  const dnnl::memory::desc a = describe(types.a, g.ta, g.m, g.k, g.lda, g.stride_a, g.batch);
  const dnnl::memory::desc b = describe(types.b, g.tb, g.k, g.n, g.ldb, g.stride_b, g.batch);
  const dnnl::memory::desc d = describe(types.d, false, g.m, g.n, g.ldd, g.stride_d, g.batch);
  const dnnl::memory::desc bias = describe(types.c, false, 1, g.n, g.n, g.stride_c, g.batch);
  dnnl::primitive_attr attr;
  if (g.beta != 0 && !g.has_bias()) {
    dnnl::post_ops ops;
    ops.append_sum(static_cast<float>(g.beta));
    attr.set_post_ops(ops);
  }
  const dnnl::matmul product(
      dnnl::matmul::primitive_desc(g.has_bias() ? dnnl::matmul::desc(a, b, bias, d) : dnnl::matmul::desc(a, b, d), attr, engine));
  dnnl::memory ma(a, engine), mb(b, engine), md(d, engine), added(bias, engine);
  for (dnnl::memory* m : {&ma, &mb, &md, &added}) std::memset(m->get_data_handle(), 0, m->get_desc().get_size());
  std::unordered_map<int, dnnl::memory> args{{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, md}};
  if (g.has_bias()) args.emplace(DNNL_ARG_BIAS, added);
  return least(repeats, [&] {
    product.execute(stream, args);
    stream.wait();
  });
} catch (const dnnl::error&) {
  return 0;
}

}  // namespace ingot::runtime
