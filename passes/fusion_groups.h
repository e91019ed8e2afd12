// Which ops become one kernel: groups over a core graph, found by bytes alone. The pass `fuse` writes them down as regions.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "passes/fusion_model.h"
#include "passes/storage.h"

namespace ingot::passes {

/// Ops in graph order. One fusible op alone is a group too; so is each op that is never fused (gemm, kernel, gather, ...).
struct FusionGroup {
  std::vector<ir::OpId> ops;
  std::vector<ir::OpId> copies;  ///< those of them that another group does too and stores
  bool fusible = false;
  int64_t rows = 0;  ///< R of its row space
};

/// Groups in an order that respects every dependency. What `storage` says goes along (views, constants, casts that storing does)
/// belongs to no group. `remarks`: one line per producer-consumer edge left between two kernels, with the reason.
std::vector<FusionGroup> find_fusion_groups(const ir::Graph& graph, const Storage& storage, const FusionOptions& options,
                                            std::vector<std::string>* remarks = nullptr);

/// By value: does an op outside the group that makes it read it? (Outputs and updates read nothing.)
std::vector<bool> crossing_values(const ir::Graph& graph, const Storage& storage, const std::vector<FusionGroup>& groups);

}  // namespace ingot::passes
