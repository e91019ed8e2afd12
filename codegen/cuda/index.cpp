// Rows put side by side (pack), picked by index (gather), and summed by index (put).
#include <fmt/format.h>

#include <numeric>

#include "codegen/cuda/emit.h"
#include "codegen/limits.h"
#include "ir/base/error.h"

namespace ingot::codegen::cuda {
namespace {

/// The widest piece that divides all of these byte counts. Buffers begin at multiples of 16 bytes.
struct Piece {
  std::string_view type;
  int64_t bytes;
};
Piece piece_of(std::initializer_list<int64_t> byte_counts) {
  int64_t unit = 16;
  for (int64_t bytes : byte_counts) unit = std::gcd(unit, bytes);
  switch (unit) {
    case 16:
      return {"ig_16", 16};
    case 8:
      return {"ig_8", 8};
    case 4:
      return {"uint32_t", 4};
    case 2:
      return {"uint16_t", 2};
    default:
      return {"uint8_t", 1};
  }
}

constexpr int64_t kPieces = 4;  // a thread moves about so many

}  // namespace

/// One launch per part: each writes its columns of every outer row.
OpLaunches lower_pack(const Site& site) {
  const ir::Op& op = site.op;
  const ir::Type& to = site.graph.type(op.results[0]);
  const auto axis = static_cast<size_t>(op.attrs.integer("axis"));
  int64_t outer = 1, inner = 1;
  for (size_t k = 0; k < to.shape.size(); ++k) {
    if (k != axis) (k < axis ? outer : inner) *= to.shape[k];
  }
  const int64_t size = ir::dtype_bytes(to.dtype), stride = to.shape[axis] * inner;
  OpLaunches out;
  int64_t offset = 0;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ir::Type& from = site.graph.type(op.operands[i]);
    const int64_t columns = from.shape[axis] * inner;
    const bool moved = from.dtype == to.dtype;
    const Piece piece = moved ? piece_of({columns * size, stride * size, offset * size}) : Piece{"", size};
    const int64_t by = piece.bytes / size > 0 ? piece.bytes / size : 1;
    KernelBuilder kernel{std::string(op.name())};
    kernel.include("copy_cuda.inc");
    kernel.argument(operand_arg(static_cast<int>(i)), moved ? piece.type : storage_type(from.dtype), "x");
    kernel.argument(result_arg(0), moved ? piece.type : storage_type(to.dtype), "y");
    kernel.size(outer, "rows");
    kernel.size(columns / by, "columns");
    kernel.size(stride / by, "stride");
    kernel.size(offset / by, "offset");
    kernel.blocks(blocks_for(site.arch, outer * columns / by, kBlock * kPieces));
    out.launches.push_back(
        kernel.finish(fmt::format("  {}(x, y, rows, columns, stride, offset);\n", moved ? "ig_pack_bits" : "ig_pack")));
    offset += columns;
  }
  return out;
}

OpLaunches lower_gather(const Site& site) {
  const ir::Op& op = site.op;
  const ir::Type& ids = site.graph.type(op.operands[0]);
  const ir::Type& table = site.graph.type(op.operands[1]);
  ir::check(table.dtype == site.graph.type(op.results[0]).dtype, "lower_gather: a result of another dtype than its table");
  const int64_t size = ir::dtype_bytes(table.dtype), rows = ids.elements();
  const Piece piece = piece_of({table.shape[1] * size});
  const int64_t columns = table.shape[1] * size / piece.bytes;
  KernelBuilder kernel{std::string(op.name())};
  kernel.include("copy_cuda.inc");
  kernel.argument(operand_arg(0), storage_type(ids.dtype), "ids");
  kernel.argument(operand_arg(1), piece.type, "table");
  kernel.argument(result_arg(0), piece.type, "y");
  kernel.size(rows, "rows");
  kernel.size(columns, "columns");
  kernel.size(table.shape[0], "table_rows");
  kernel.blocks(blocks_for(site.arch, rows * columns, kBlock * kPieces));
  return {{kernel.finish("  ig_gather(ids, table, y, rows, columns, table_rows);\n")}, {}};
}

OpLaunches lower_put(const Site& site) {
  const ir::Op& op = site.op;
  const ir::Type& ids = site.graph.type(op.operands[0]);
  const ir::Type& from = site.graph.type(op.operands[1]);
  const ir::Type& to = site.graph.type(op.results[0]);
  const int64_t rows = to.shape[0], columns = to.shape[1], positions = ids.elements();
  ir::check(exceeds_limits(site.graph, op).empty(), "lower_put: too many positions or rows");
  const int64_t tile = positions <= 32768 ? 1024 : 4096, tiles = (positions + tile - 1) / tile;
  constexpr int kCounts = 0, kTotal = 1, kFirst = 2, kOrder = 3;
  OpLaunches out;
  out.workspace_bytes = {tiles * rows * 4, rows * 4, (rows + 1) * 4, positions * 4};
  const std::string stem(op.name());
  const auto start = [](const std::string& name, int threads) {
    KernelBuilder kernel(name, threads);
    kernel.include("copy_cuda.inc");
    return kernel;
  };

  KernelBuilder count = start(stem + "_count", 1024);
  count.argument(operand_arg(0), storage_type(ids.dtype), "ids");
  count.argument(workspace_arg(kCounts, ir::AccessMode::write), "int32_t", "counts");
  count.size(positions, "positions");
  count.size(rows, "rows");
  count.blocks(tiles);
  out.launches.push_back(count.finish(fmt::format("  ig_count_ids(ids, counts, positions, rows, {});\n", tile)));

  KernelBuilder scan_tiles = start(stem + "_scan_tiles", kBlock);
  scan_tiles.argument(workspace_arg(kCounts, ir::AccessMode::inout), "int32_t", "counts");
  scan_tiles.argument(workspace_arg(kTotal, ir::AccessMode::write), "int32_t", "total");
  scan_tiles.size(tiles, "tiles");
  scan_tiles.size(rows, "rows");
  scan_tiles.blocks(blocks_for(site.arch, rows, kBlock));
  out.launches.push_back(scan_tiles.finish("  ig_scan_tiles(counts, total, tiles, rows);\n"));

  KernelBuilder scan_ids = start(stem + "_scan_ids", 1024);
  scan_ids.argument(workspace_arg(kTotal, ir::AccessMode::read), "int32_t", "total");
  scan_ids.argument(workspace_arg(kFirst, ir::AccessMode::write), "int32_t", "first");
  scan_ids.size(rows, "rows");
  out.launches.push_back(scan_ids.finish("  ig_scan_ids<32>(total, first, rows);\n"));

  KernelBuilder place = start(stem + "_place", 1024);
  place.argument(operand_arg(0), storage_type(ids.dtype), "ids");
  place.argument(workspace_arg(kCounts, ir::AccessMode::read), "int32_t", "counts");
  place.argument(workspace_arg(kFirst, ir::AccessMode::read), "int32_t", "first");
  place.argument(workspace_arg(kOrder, ir::AccessMode::write), "int32_t", "order");
  place.size(positions, "positions");
  place.size(rows, "rows");
  place.blocks(tiles);
  out.launches.push_back(place.finish(
      fmt::format("  ig_place_ids<{}, {}>(ids, counts, first, order, positions, rows);\n", storage_type(ids.dtype), tile)));

  const int64_t at_once = columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;
  KernelBuilder put = start(stem, kBlock);
  put.argument(workspace_arg(kFirst, ir::AccessMode::read), "int32_t", "first");
  put.argument(workspace_arg(kOrder, ir::AccessMode::read), "int32_t", "order");
  put.argument(operand_arg(1), storage_type(from.dtype), "x");
  put.argument(result_arg(0), storage_type(to.dtype), "y");
  put.size(rows, "rows");
  put.size(columns, "columns");
  put.blocks(blocks_for(site.arch, rows * (columns / at_once), kBlock));
  out.launches.push_back(put.finish(fmt::format("  ig_put<{}>(first, order, x, y, rows, columns);\n", at_once)));
  return out;
}

}  // namespace ingot::codegen::cuda
