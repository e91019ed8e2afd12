// The rewrites of the pass gemm_shape, one file each.
#pragma once
#include "passes/pass.h"

namespace ingot::passes {

/// Sums of a product and something else: gemm_add.cpp.
ir::Graph add_into_gemms(const ir::Graph& graph);

}  // namespace ingot::passes
