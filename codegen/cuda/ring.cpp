#include "codegen/cuda/ring.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot::codegen::cuda {

RowRing::RowRing(const std::vector<Stream>& streams, const RowLayout& layout) : layout_(layout) {
  if (!used()) return;
  for (const Stream& stream : streams) {
    offsets_.push_back(-1);
    if (!stream.can_wait()) continue;
    int& total = stream.row == 0 ? parameter_bytes_ : row_bytes_;
    offsets_.back() = total;
    total += (chunks(stream) * chunk_bytes(stream) + 15) / 16 * 16;
    depth_ = std::max(depth_, stream.depth());
  }
}

int RowRing::chunk_bytes(const Stream& stream) const {
  return layout_.lanes() * elements(stream) * static_cast<int>(ir::dtype_bytes(stream.dtype));
}

std::string RowRing::place(const Stream& stream, size_t index, const std::string& base) const {
  const std::string chunk = chunks(stream) > 1 ? fmt::format(" + k * {}", chunk_bytes(stream)) : "";
  return fmt::format("{} + {}{}", base, offsets_[index], chunk);
}

std::string RowRing::read(const Stream& stream, size_t index, int back) const {
  const std::string base = stream.row == 0 ? "parameters" : fmt::format("row{}", back);
  const std::string pieces = fmt::format("ig_ring_read<{}, {}, lanes>({}, lane)", storage_type(stream.dtype), elements(stream),
                                         place(stream, index, base));
  return stream.full() ? pieces : fmt::format("ig_get({}, 0)", pieces);
}

}  // namespace ingot::codegen::cuda
