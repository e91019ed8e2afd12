// Streams of a region that reach their readers through shared memory (text/ring_cuda.inc): rows are copied there some iterations
// ahead, so that memory is kept busy across the meetings of a row and no register waits for it. Parameters lie there too, once.
//
//   a team's rows: [depth + ahead slots][stream][chunk][plane][lane]        then, for the block: [parameter][chunk][plane][lane]
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/cuda/region_text.h"

namespace ingot::codegen::cuda {

class RowRing {
 public:
  /// What `layout` sends through memory of `streams`; nothing where it copies no rows ahead.
  RowRing(const std::vector<Stream>& streams, const RowLayout& layout);

  bool has(size_t stream) const { return stream < offsets_.size() && offsets_[stream] >= 0; }
  bool used() const { return layout_.ahead > 0; }
  int slots() const { return depth_ + layout_.ahead; }
  int depth() const { return depth_; }
  int row_bytes() const { return row_bytes_; }
  int parameters_at() const { return layout_.teams * slots() * row_bytes_; }
  /// Dynamic shared memory of a block.
  int bytes() const { return parameters_at() + parameter_bytes_; }

  /// Where chunk `k` of a stream lies, `back` rows before the newest.
  std::string place(const Stream& stream, size_t index, const std::string& base) const;
  /// "ig_ring_read<...>(...)" as the stream's elements.
  std::string read(const Stream& stream, size_t index, int back) const;

 private:
  int elements(const Stream& stream) const { return stream.full() ? layout_.at_once : 1; }
  int chunks(const Stream& stream) const { return stream.kind == Stream::Kind::uniform ? 1 : layout_.chunks; }
  int chunk_bytes(const Stream& stream) const;

  RowLayout layout_;
  std::vector<int> offsets_;  ///< in a row or in the parameters; -1: the stream is read into registers
  int depth_ = 1, row_bytes_ = 0, parameter_bytes_ = 0;
};

}  // namespace ingot::codegen::cuda
