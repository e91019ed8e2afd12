// Host code for a fused row region.
#pragma once
#include <optional>
#include <string>

#include "codegen/target.h"

namespace ingot::codegen::cpu {

/// Launches for a `fuse` op of kind "row": one walk over the rows and, when the region holds column sums, one that adds the
/// partials of the tiles in order. Tiles depend on shapes only. InternalError when the body is no row region (the pass that made
/// it asks passes::plan_region first).
OpLaunches lower_row_region(const OpSite& site);

}  // namespace ingot::codegen::cpu
