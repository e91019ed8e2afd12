#include "runtime/gemm.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "runtime/convert.h"
#include "runtime/library.h"
#include "runtime/packed_gemm.h"
#include "runtime/strided.h"

namespace ingot::runtime {
namespace {

using Dims = dnnl::memory::dims;

// Batches that share B and lie end to end are one taller product, which has better tiles.
ir::Gemm flattened(ir::Gemm g) {
  const bool c_follows = g.beta == 0 || g.stride_c == g.m * g.ldc;
  if (g.batch > 1 && !g.ta && g.stride_b == 0 && g.stride_a == g.m * g.lda && g.stride_d == g.m * g.ldd && c_follows) {
    g.m *= g.batch;
    g.batch = 1;
  }
  return g;
}

// Can the library add what is added as a bias of its own? It takes one in f32 or as it stores the result.
bool library_adds(const ir::Gemm& g, const GemmTypes& types) {
  const bool dtype = types.c == ir::DType::f32 || (types.c == ir::DType::bf16 && types.d == ir::DType::bf16);
  return g.has_bias() && dtype && g.alpha == 1 && g.beta == 1 && g.k > 0;
}

struct TileShape {
  int64_t batch = 1, m = 1, n = 1;
  bool operator<(const TileShape& o) const { return std::tie(batch, m, n) < std::tie(o.batch, o.m, o.n); }
};

// At least 4 MFLOP a tile up to 8 tiles, then at least 64 MFLOP up to 64: enough for many cores, few enough to stay efficient.
TileShape choose_tile(const ir::Gemm& g) {
  const double work = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(std::max<int64_t>(g.k, 1));
  const double all = work * static_cast<double>(g.batch);
  const double wanted = std::max(std::clamp(all / 4e6, 1.0, 8.0), std::min(all / 64e6, 64.0));
  const auto batches = static_cast<double>(g.batch);
  if (batches >= wanted) return {static_cast<int64_t>(batches / wanted), g.m, g.n};
  TileShape tile{1, g.m, g.n};
  while (static_cast<double>(g.batch * pieces(g.m, tile.m) * pieces(g.n, tile.n)) < wanted) {
    if (tile.m > 32 && (tile.m >= tile.n || tile.n <= 64)) {
      tile.m = pieces(tile.m, 64) * 32;
    } else if (tile.n > 64) {
      tile.n = pieces(tile.n, 128) * 64;
    } else {
      break;
    }
  }
  return tile;
}

}  // namespace

// `a`, `b`, `d` are what oneDNN sees; *_stored what the caller has.
struct GemmRunner::Impl {
  /// A product of one tile size, with the memory handles of each thread.
  struct Product {
    dnnl::matmul primitive;
    std::vector<std::array<dnnl::memory, 5>> memories;  ///< per thread: a, b, d, scratchpad, bias
    std::vector<std::unordered_map<int, dnnl::memory>> args;
  };

  ir::Gemm gemm;
  Pool& pool;
  int threads;
  Strided a_stored, b_stored, c_stored, d_stored, a, b, d;
  bool bias = false;                                               ///< c is added by oneDNN, as a bias
  bool convert = false;                                            ///< a and b go through f32 copies in scratch
  bool accumulate = false;                                         ///< d is made in f32 scratch and rounded at the end
  int64_t a_at = 0, b_at = 0, d_at = 0, pad_bytes = 0, total = 0;  ///< places in scratch; pads of all threads come first
  TileShape tile;
  std::map<TileShape, Product> products;
  std::unique_ptr<PackedGemm> packed;  ///< instead of tiles where that is faster
  std::vector<dnnl::stream> streams;
  std::string implementation = "none";

  Impl(const ir::Gemm& given, const GemmTypes& types, int thread_count);
  bool empty() const { return gemm.m * gemm.n * gemm.batch == 0; }
  ir::Gemm packable() const;  ///< the product as oneDNN sees it
  bool build();               ///< false when the library has no such product
  void build_product(const TileShape& shape);
  void place();
  void start_from_c(const void* c, void* target) const;
  void run_tile(int64_t index, int thread, const void* pa, const void* pb, const void* pc, void* pd, std::byte* scratch);
  void run(const void* pa, const void* pb, const void* pc, void* pd, std::byte* scratch);
};

GemmRunner::Impl::Impl(const ir::Gemm& given, const GemmTypes& types, int thread_count)
    : gemm(flattened(given)), pool(Pool::of(thread_count)), threads(thread_count) {
  const ir::Gemm& g = gemm;
  ir::check(g.m >= 0 && g.n >= 0 && g.k >= 0 && g.batch >= 0 && threads >= 1, "gemm: negative size or no threads");
  ir::check(g.batch <= 1 || g.stride_d != 0, "gemm: batches must not share a result");
  a_stored = a = {types.a, g.ta ? g.k : g.m, g.ta ? g.m : g.k, g.lda, g.batch > 1 ? g.stride_a : 0, g.batch};
  b_stored = b = {types.b, g.tb ? g.n : g.k, g.tb ? g.k : g.n, g.ldb, g.batch > 1 ? g.stride_b : 0, g.batch};
  c_stored = {types.c, g.m, g.n, g.ldc, g.batch > 1 ? g.stride_c : 0, g.batch};
  d_stored = d = {types.d, g.m, g.n, g.ldd, g.batch > 1 ? g.stride_d : 0, g.batch};
  if (empty()) return;
  tile = choose_tile(g);
  if (a.copies() == 1 && b.copies() == 1) tile.batch = 1;  // oneDNN has no product whose batches only the result has
  bias = library_adds(g, types);
  if (bias && c_stored.copies() > 1) tile.batch = 1;  // nor fast ones of several biases
  for (int i = 0; i < threads; ++i) streams.emplace_back(cpu_engine());

  accumulate = types.d == ir::DType::f16 || (types.d != ir::DType::f32 && g.beta != 0 && !bias && types.c != types.d);
  if (accumulate) d = d_stored.dense();
  convert = types.a != types.b || types.a == ir::DType::f16 || !build();
  if (convert) {
    a = a_stored.dense();
    b = b_stored.dense();
    bias = bias && types.c == ir::DType::f32;
    accumulate = types.d != ir::DType::f32;
    d = accumulate ? d_stored.dense() : d_stored;
    ir::check(build(), "gemm: oneDNN refused an f32 product");
  }
  place();
}

ir::Gemm GemmRunner::Impl::packable() const {
  ir::Gemm g = gemm;
  g.lda = a.ld, g.ldb = b.ld, g.ldd = d.ld;
  return g;
}

bool GemmRunner::Impl::build() try {
  if (gemm.k == 0) return true;
  packed = PackedGemm::make(packable(), {a.dtype, b.dtype, c_stored.dtype, d.dtype}, bias, threads);
  if (packed) {
    implementation = packed->implementation();
    return true;
  }
  const LibraryThreads one(1);
  products.clear();
  pad_bytes = 0;
  for (int64_t batch : {std::min(tile.batch, gemm.batch), gemm.batch % tile.batch}) {
    for (int64_t m : {std::min(tile.m, gemm.m), gemm.m % tile.m}) {
      for (int64_t n : {std::min(tile.n, gemm.n), gemm.n % tile.n}) {
        if (batch * m * n > 0 && !products.contains({batch, m, n})) build_product({batch, m, n});
      }
    }
  }
  return true;
} catch (const dnnl::error& error) {
  if (error.status == dnnl_unimplemented) return false;
  throw ir::InternalError(std::string("gemm: oneDNN: ") + error.what());
}

void GemmRunner::Impl::build_product(const TileShape& shape) {
  const auto describe = [&](const Strided& m, bool transposed, int64_t rows, int64_t cols) {
    const Dims dims{m.copies() == 1 ? 1 : shape.batch, rows, cols};
    const Dims strides{m.copies() == 1 ? m.rows * m.ld : m.stride, transposed ? 1 : m.ld, transposed ? m.ld : 1};
    return dnnl::memory::desc(dims, library_type(m.dtype), strides);
  };
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (gemm.alpha != 1) attr.set_output_scales(0, {static_cast<float>(gemm.alpha)});
  if (gemm.beta != 0 && !bias) {
    dnnl::post_ops ops;
    ops.append_sum(static_cast<float>(gemm.beta));
    attr.set_post_ops(ops);
  }
  const dnnl::memory::desc a_desc = describe(a, gemm.ta, shape.m, gemm.k);
  const dnnl::memory::desc b_desc = describe(b, gemm.tb, gemm.k, shape.n);
  const dnnl::memory::desc d_desc = describe(d, false, shape.m, shape.n);
  const dnnl::memory::desc bias_desc(Dims{1, 1, shape.n}, library_type(c_stored.dtype), Dims{shape.n, shape.n, 1});
  const auto described =
      bias ? dnnl::matmul::desc(a_desc, b_desc, bias_desc, d_desc) : dnnl::matmul::desc(a_desc, b_desc, d_desc);
  const dnnl::matmul::primitive_desc desc(described, attr, cpu_engine());
  if (products.empty()) implementation = desc.impl_info_str();
  pad_bytes = std::max(pad_bytes, aligned(static_cast<int64_t>(desc.scratchpad_desc().get_size())));

  Product product{dnnl::matmul(desc), {}, {}};
  for (int i = 0; i < threads; ++i) {
    product.memories.push_back(
        {handle(a_desc), handle(b_desc), handle(d_desc), handle(desc.scratchpad_desc()), handle(bias_desc)});
    const auto& m = product.memories.back();
    product.args.push_back({{DNNL_ARG_SRC, m[0]}, {DNNL_ARG_WEIGHTS, m[1]}, {DNNL_ARG_DST, m[2]}, {DNNL_ARG_SCRATCHPAD, m[3]}});
    if (bias) product.args.back().emplace(DNNL_ARG_BIAS, m[4]);
  }
  products.emplace(shape, std::move(product));
}

void GemmRunner::Impl::place() {
  total = packed ? aligned(packed->scratch_bytes()) : pad_bytes * threads;
  const auto take = [this](int64_t bytes) { return std::exchange(total, total + aligned(bytes)); };
  if (convert) {
    a_at = take(a_stored.dense_bytes());
    b_at = take(b_stored.dense_bytes());
  }
  if (accumulate) d_at = take(d_stored.dense_bytes());
}

// Puts C where the products will be added; with no products at all (k = 0), the whole answer.
void GemmRunner::Impl::start_from_c(const void* c, void* target) const {
  if (bias) return;
  if (gemm.beta != 0 && c != target) copy_strided(c_stored, c, d, target, pool);
  if (gemm.k == 0) scale_strided(d, target, gemm.beta, pool);
}

void GemmRunner::Impl::run_tile(int64_t index, int thread, const void* pa, const void* pb, const void* pc, void* pd,
                                std::byte* scratch) {
  const int64_t down = pieces(gemm.m, tile.m), across = pieces(gemm.n, tile.n);
  const int64_t i = index % down * tile.m, j = index / down % across * tile.n, batch = index / (down * across) * tile.batch;
  Product& product =
      products.at({std::min(tile.batch, gemm.batch - batch), std::min(tile.m, gemm.m - i), std::min(tile.n, gemm.n - j)});
  auto& memory = product.memories[static_cast<size_t>(thread)];
  memory[0].set_data_handle(const_cast<std::byte*>(element(a, pa, batch, gemm.ta ? 0 : i, gemm.ta ? i : 0)));
  memory[1].set_data_handle(const_cast<std::byte*>(element(b, pb, batch, gemm.tb ? j : 0, gemm.tb ? 0 : j)));
  memory[2].set_data_handle(element(d, pd, batch, i, j));
  memory[3].set_data_handle(scratch + pad_bytes * thread);
  if (bias) memory[4].set_data_handle(const_cast<std::byte*>(element(c_stored, pc, batch, 0, j)));
  dnnl::stream& stream = streams[static_cast<size_t>(thread)];
  product.primitive.execute(stream, product.args[static_cast<size_t>(thread)]);
  stream.wait();
}

void GemmRunner::Impl::run(const void* pa, const void* pb, const void* pc, void* pd, std::byte* scratch) {
  if (empty()) return;
  if (convert) {
    copy_strided(a_stored, pa, a, scratch + a_at, pool);
    copy_strided(b_stored, pb, b, scratch + b_at, pool);
    pa = scratch + a_at;
    pb = scratch + b_at;
  }
  void* target = accumulate ? scratch + d_at : pd;
  start_from_c(pc, target);
  if (packed) {
    packed->run(pa, pb, pc, target, scratch, pool);
  } else if (gemm.k > 0) {
    const int64_t tiles = pieces(gemm.m, tile.m) * pieces(gemm.n, tile.n) * pieces(gemm.batch, tile.batch);
    const LibraryThreads one(1);  // for the caller, who takes tiles too
    pool.run(tiles, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t index = begin; index < end; ++index) run_tile(index, thread, pa, pb, pc, target, scratch);
    });
  }
  if (accumulate) copy_strided(d, target, d_stored, pd, pool);
}

GemmRunner::GemmRunner(const ir::Gemm& gemm, const GemmTypes& types, int threads)
    : impl_(std::make_unique<Impl>(gemm, types, threads)) {}
GemmRunner::~GemmRunner() = default;
GemmRunner::GemmRunner(GemmRunner&&) noexcept = default;
GemmRunner& GemmRunner::operator=(GemmRunner&&) noexcept = default;
int64_t GemmRunner::scratch_bytes() const { return impl_->total; }
const std::string& GemmRunner::implementation() const { return impl_->implementation; }
void GemmRunner::run(const void* a, const void* b, const void* c, void* d, void* scratch) {
  impl_->run(a, b, c, d, static_cast<std::byte*>(scratch));
}

}  // namespace ingot::runtime
