#include "codegen/cuda/held.h"

#include <fmt/format.h>

namespace ingot::codegen::cuda {

HeldRows::HeldRows(const std::vector<Stream>& streams, const RowLayout& layout) : layout_(layout) {
  if (!used()) return;
  for (const Stream& stream : streams) {
    const bool held = stream.kind == Stream::Kind::vector && stream.row != 0 && stream.can_wait();
    offsets_.push_back(held ? slot_bytes_ : -1);
    if (held) slot_bytes_ += layout_.lanes() * layout_.at_once * static_cast<int>(ir::dtype_bytes(stream.dtype));
  }
}

std::string HeldRows::fill(const Stream& stream, size_t index, const std::string& slot, const std::string& pointer) const {
  return fmt::format("ig_ring_fill<{}, E, lanes>({} + {}, lane, {})", storage_type(stream.dtype), slot, offsets_[index], pointer);
}

std::string HeldRows::read(const Stream& stream, size_t index, const std::string& slot) const {
  return fmt::format("ig_ring_read<{}, E, lanes>({} + {}, lane)", storage_type(stream.dtype), slot, offsets_[index]);
}

}  // namespace ingot::codegen::cuda
