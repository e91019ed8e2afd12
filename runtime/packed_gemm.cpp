#include "runtime/packed_gemm.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "runtime/library.h"

namespace ingot::runtime {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Args = std::unordered_map<int, dnnl::memory>;

constexpr int64_t kFewestRows = 256;              // packing B costs about as much as 30 rows of products
constexpr int64_t kFewestColumns = 256;           // of D when A is turned, which costs as much as 30 columns
constexpr int64_t kLargestB = int64_t{64} << 20;  // bytes of scratch
constexpr int64_t kMostBlocks = 64, kFewestBlocks = 8, kRowGroup = 32, kFullRows = 128;
constexpr double kSmallestBlockFlops = 4e6;
constexpr int64_t kPackedColumns = 64;  // the library's blocks are at most this wide

Desc stored(ir::DType dtype, bool transposed, int64_t rows, int64_t columns, int64_t ld) {
  return {{rows, columns}, library_type(dtype), {transposed ? 1 : ld, transposed ? ld : 1}};
}

/// Up to 8 blocks of at least 4 MFLOP; more blocks, up to 64, where each still has 128 rows. By shape alone.
int64_t rows_of_block(const ir::Gemm& g) {
  const double all = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  const auto few = static_cast<int64_t>(std::clamp(all / kSmallestBlockFlops, 1.0, static_cast<double>(kFewestBlocks)));
  const int64_t many = std::min(g.m / kFullRows, kMostBlocks);
  return std::min(g.m, pieces(pieces(g.m, std::max(few, many)), kRowGroup) * kRowGroup);
}

/// A primitive with the memories of each thread.
struct PerThread {
  dnnl::primitive primitive;
  std::vector<std::vector<dnnl::memory>> memories;
  std::vector<Args> args;

  PerThread(dnnl::primitive made, const std::vector<std::pair<int, Desc>>& arguments, int threads) : primitive(std::move(made)) {
    for (int i = 0; i < threads; ++i) {
      memories.emplace_back();
      args.emplace_back();
      for (const auto& [name, desc] : arguments) {
        memories.back().push_back(handle(desc));
        args.back().emplace(name, memories.back().back());
      }
    }
  }
  /// An address per argument; those behind the last one are not looked at.
  void run(dnnl::stream& stream, int thread, std::initializer_list<const void*> addresses) {
    const void* const* address = addresses.begin();
    for (dnnl::memory& memory : memories[static_cast<size_t>(thread)]) memory.set_data_handle(const_cast<void*>(*address++));
    primitive.execute(stream, args[static_cast<size_t>(thread)]);
    stream.wait();
  }
};

}  // namespace

struct PackedGemm::Impl {
  /// Rows block.. of the product: A turned when it is stored transposed, then multiplied.
  struct Block {
    std::vector<PerThread> turn;  ///< none or one
    PerThread multiply;
  };

  ir::Gemm gemm;
  GemmTypes types;
  bool bias;
  int64_t a_bytes, b_bytes, d_bytes;  ///< of an element
  int64_t rows = 0, columns = 0;      ///< of a block of D; of B packed by a task
  Desc packed;
  std::vector<PerThread> packers;  ///< of B: one for all its equal parts
  std::vector<Block> blocks;       ///< of `rows`, and of the rest
  std::vector<dnnl::stream> streams;
  int64_t packed_bytes = 0, turned_bytes = 0, pad_bytes = 0;
  std::string implementation;

  Impl(const ir::Gemm& g, const GemmTypes& given, bool adds_bias, int threads);
  void make_packers(int threads);
  void make_block(int64_t height, int threads);
  int64_t thread_bytes() const { return turned_bytes + pad_bytes; }
};

PackedGemm::Impl::Impl(const ir::Gemm& g, const GemmTypes& given, bool adds_bias, int threads)
    : gemm(g),
      types(given),
      bias(adds_bias),
      a_bytes(ir::dtype_bytes(types.a)),
      b_bytes(ir::dtype_bytes(types.b)),
      d_bytes(ir::dtype_bytes(types.d)),
      rows(rows_of_block(g)) {
  const LibraryThreads one(1);
  for (int i = 0; i < threads; ++i) streams.emplace_back(cpu_engine());
  // The layout of the first block's B is everyone's.
  packed = Desc({g.k, g.n}, library_type(types.b), dnnl::memory::format_tag::any);
  make_block(rows, threads);
  if (g.m % rows != 0) make_block(g.m % rows, threads);
  make_packers(threads);
}

void PackedGemm::Impl::make_block(int64_t height, int threads) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (gemm.alpha != 1) attr.set_output_scales(0, {static_cast<float>(gemm.alpha)});
  if (gemm.beta != 0 && !bias) {
    dnnl::post_ops ops;
    ops.append_sum(static_cast<float>(gemm.beta));
    attr.set_post_ops(ops);
  }
  const Desc source = stored(types.a, false, height, gemm.k, gemm.ta ? gemm.k : gemm.lda);
  const Desc result = stored(types.d, false, height, gemm.n, gemm.ldd);
  const Desc added = stored(types.c, false, 1, gemm.n, gemm.n);
  const dnnl::matmul::primitive_desc made(
      bias ? dnnl::matmul::desc(source, packed, added, result) : dnnl::matmul::desc(source, packed, result), attr, cpu_engine());
  packed = made.weights_desc();
  implementation = made.impl_info_str();
  pad_bytes = std::max(pad_bytes, aligned(static_cast<int64_t>(made.scratchpad_desc().get_size())));
  std::vector<std::pair<int, Desc>> arguments{
      {DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, result}, {DNNL_ARG_SCRATCHPAD, made.scratchpad_desc()}};
  if (bias) arguments.emplace_back(DNNL_ARG_BIAS, added);
  blocks.push_back({{}, {dnnl::matmul(made), arguments, threads}});
  if (!gemm.ta) return;
  const Desc across = stored(types.a, true, height, gemm.k, gemm.lda);
  turned_bytes = std::max(turned_bytes, aligned(height * gemm.k * a_bytes));
  blocks.back().turn.emplace_back(dnnl::reorder(dnnl::reorder::primitive_desc(cpu_engine(), across, cpu_engine(), source)),
                                  std::vector<std::pair<int, Desc>>{{DNNL_ARG_FROM, across}, {DNNL_ARG_TO, source}}, threads);
}

// Parts of B are blocks of columns, which stand one after another once packed; one part when something must be padded.
void PackedGemm::Impl::make_packers(int threads) {
  packed_bytes = aligned(static_cast<int64_t>(packed.get_size()));
  columns = pieces(pieces(gemm.n, kFewestBlocks), kPackedColumns) * kPackedColumns;
  const bool exact = static_cast<int64_t>(packed.get_size()) == gemm.k * gemm.n * b_bytes && gemm.n % columns == 0;
  Desc part = exact ? packed.submemory_desc({gemm.k, columns}, {0, 0}, true) : Desc();
  if (part.is_zero()) {
    columns = gemm.n;
    part = packed;
  }
  const Desc source = stored(types.b, gemm.tb, gemm.k, columns, gemm.ldb);
  packers.emplace_back(dnnl::reorder(dnnl::reorder::primitive_desc(cpu_engine(), source, cpu_engine(), part)),
                       std::vector<std::pair<int, Desc>>{{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, part}}, threads);
}

std::unique_ptr<PackedGemm> PackedGemm::make(const ir::Gemm& g, const GemmTypes& types, bool bias, int threads) try {
  if (g.batch != 1 || g.m < kFewestRows || g.k == 0 || g.n == 0 || (g.ta && g.n < kFewestColumns)) return nullptr;
  if (g.ldd != g.n || g.k * g.n * ir::dtype_bytes(types.b) > kLargestB) return nullptr;
  auto made = std::make_unique<PackedGemm>(g, types, bias, threads);
  return made->implementation().starts_with("brg") ? std::move(made) : nullptr;
} catch (const dnnl::error&) {
  return nullptr;
}

PackedGemm::PackedGemm(const ir::Gemm& gemm, const GemmTypes& types, bool bias, int threads)
    : impl_(std::make_unique<Impl>(gemm, types, bias, threads)) {}
PackedGemm::~PackedGemm() = default;
const std::string& PackedGemm::implementation() const { return impl_->implementation; }
int64_t PackedGemm::scratch_bytes() const {
  return impl_->packed_bytes + impl_->thread_bytes() * static_cast<int64_t>(impl_->streams.size());
}

void PackedGemm::run(const void* a, const void* b, const void* bias, void* d, std::byte* scratch, Pool& pool) {
  Impl& p = *impl_;
  const ir::Gemm& g = p.gemm;
  const LibraryThreads one(1);  // for the caller, who takes parts too
  const auto* from_a = static_cast<const std::byte*>(a);
  const auto* from_b = static_cast<const std::byte*>(b);
  auto* to = static_cast<std::byte*>(d);
  pool.run(g.n / p.columns, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t column = part * p.columns;
      p.packers[0].run(p.streams[static_cast<size_t>(thread)], thread,
                       {from_b + column * (g.tb ? g.ldb : 1) * p.b_bytes, scratch + column * g.k * p.b_bytes});
    }
  });
  pool.run(pieces(g.m, p.rows), 1, [&](int64_t begin, int64_t end, int thread) {
    dnnl::stream& stream = p.streams[static_cast<size_t>(thread)];
    std::byte* turned = scratch + p.packed_bytes + p.thread_bytes() * thread;
    std::byte* pad = turned + p.turned_bytes;
    for (int64_t row = begin * p.rows; row < std::min(end * p.rows, g.m); row += p.rows) {
      Impl::Block& block = p.blocks[g.m - row < p.rows ? 1 : 0];
      const std::byte* rows = from_a + row * (g.ta ? 1 : g.lda) * p.a_bytes;
      if (g.ta) {
        block.turn[0].run(stream, thread, {rows, turned});
        rows = turned;
      }
      block.multiply.run(stream, thread, {rows, scratch, to + row * g.ldd * p.d_bytes, pad, bias});
    }
  });
}

}  // namespace ingot::runtime
