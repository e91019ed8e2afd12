// Where temps live: offsets in the work arena, from live ranges alone.
#pragma once
#include <cstdint>
#include <vector>

namespace ingot::codegen {

/// Bytes needed from call `first` to call `last`, both included.
struct Life {
  int64_t bytes = 0;
  int first = 0, last = 0;
};

struct Placement {
  std::vector<int64_t> offsets;  ///< per life, multiples of ir::kBufferAlignment
  int64_t bytes = 0;             ///< what the arena must hold
  /// The most that is live at one call, sizes rounded up to the alignment: no placement needs less.
  int64_t bound = 0;
};

/// One after another, each into the smallest gap that fits among those placed that are live at the same time. Largest first; when
/// that misses the bound, orders that put what is live at the fullest moment first, and in each order again with those first that
/// ended above the bound, a few times, then some orders near those: the best counts. Depends on nothing but its arguments.
/// Without `reuse` every life gets bytes of its own.
Placement place(const std::vector<Life>& lives, bool reuse = true);

}  // namespace ingot::codegen
