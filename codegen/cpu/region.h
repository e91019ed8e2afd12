// Host code for a fused row region.
#pragma once
#include <optional>
#include <string>

#include "codegen/target.h"

namespace ingot::codegen::cpu {

/// The launch for a `fuse` op of kind "row", a walk over the rows; partial column sums of several tiles are left to be added.
/// Tiles depend on shapes only. InternalError when the body is no row region (the pass that made it asks passes::plan_region
/// first).
OpLaunches lower_row_region(const OpSite& site);

}  // namespace ingot::codegen::cpu
