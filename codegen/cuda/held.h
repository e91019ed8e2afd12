// Rows of a looped region that shared memory holds (layout.h): each chunk of a row is copied there once, by the threads that read
// it, and every sweep finds it there. Slots are taken in turn, also across rows: the last loop over a row, as it is done with a
// chunk, has the one `slots` further on copied to its slot.
//
//   [slot][stream][plane][lane]        chunks of a row: lanes * E neighbouring columns
#pragma once
#include <string>
#include <vector>

#include "codegen/cuda/region_text.h"

namespace ingot::codegen::cuda {

class HeldRows {
 public:
  /// What `layout` holds of `streams`; nothing where it has no slots.
  HeldRows(const std::vector<Stream>& streams, const RowLayout& layout);

  bool used() const { return layout_.slots > 0; }
  bool has(size_t stream) const { return stream < offsets_.size() && offsets_[stream] >= 0; }
  int slot_bytes() const { return slot_bytes_; }
  /// Dynamic shared memory of a block.
  int bytes() const { return layout_.slots * slot_bytes_; }
  /// Has every chunk of the next row a slot while the present row is worked on?
  bool whole_row_ahead() const { return layout_.slots >= 2 * layout_.chunks; }

  /// "ig_ring_fill<...>(...)" of a chunk of the stream at `pointer` to the slot at `slot`.
  std::string fill(const Stream& stream, size_t index, const std::string& slot, const std::string& pointer) const;
  /// "ig_ring_read<...>(...)" of the chunk in the slot at `slot`.
  std::string read(const Stream& stream, size_t index, const std::string& slot) const;

 private:
  RowLayout layout_;
  std::vector<int> offsets_;  ///< in a slot; -1: the stream is read from memory
  int slot_bytes_ = 0;
};

}  // namespace ingot::codegen::cuda
