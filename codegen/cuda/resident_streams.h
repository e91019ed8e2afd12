// The streams of a resident region: read into registers, or through the ring (ring.h).
#pragma once
#include <set>
#include <string>
#include <utility>

#include "codegen/cuda/region_text.h"
#include "codegen/cuda/ring.h"

namespace ingot::codegen::cuda {

/// Streams read from the ring, and how many rows back.
using RingReads = std::set<std::pair<int, int>>;

class ResidentStreams : public RegionText {
 protected:
  ResidentStreams(const Site& site, passes::RegionPlan plan, const RowLayout& layout);

  int e() const { return layout_.at_once; }
  int k() const { return layout_.chunks; }

  void declare_stream(size_t index);
  void load_stream(size_t index, const std::string& row, const char* indent);
  /// Element of a stream for the reader at hand; zero where `inside` is false.
  std::string stream_text(const passes::RowAccess& read, passes::RowClass reader, int lead, const std::string& inside);
  /// Where chunk k of a stream begins. Neighbouring columns: one address for all chunks, told apart by constants.
  std::string element_pointer(const Stream& s, const std::string& row) const;
  void fill_stream(size_t index, const std::string& base, const std::string& row);
  void declare_ring();
  void start_ring();
  void move_ring();
  /// The loop's reads of the ring: those of one element a row, or the others.
  std::string waited_text(const RingReads& waited, bool uniform) const;

  RowLayout layout_;
  RowRing ring_;
  bool ragged_ = false;  ///< some of the team's columns lie beyond the row
  int first_ = 0;        ///< iteration, relative to the range's first row, from which values are computed
  int earliest_ = 0;     ///< from which streams are read
  RingReads kept_;       ///< read once a row, to arrays kept<stream>_<rows back>[K]
  RingReads waited_;     ///< of the loop being written
};

}  // namespace ingot::codegen::cuda
