// Which ops become one kernel: groups over a core graph, found by bytes alone. The pass `fuse` writes them down as regions.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace ingot::passes {

struct FusionOptions {
  int64_t rows = 0;            ///< preferred R (batch * time); 0 = each group's own
  double launch_bytes = 10e6;  ///< what one launch costs, as bytes moved in the same time
  int most_tensors = 24;       ///< full tensors read and written by one kernel
  int most_sums = 12;          ///< column sums of one kernel
  int most_live = 64;          ///< values of one element alive at once: what registers hold
};

/// Ops in graph order. One fusible op alone is a group too; so is each op that is never fused (gemm, kernel, gather, ...).
struct FusionGroup {
  std::vector<ir::OpId> ops;
  bool fusible = false;
  int64_t rows = 0;  ///< R of its row space
};

/// Groups in an order that respects every dependency. Views, constants and generated values belong to no group: whoever
/// reads them takes them along. `remarks`: one line per producer-consumer edge left between two kernels, with the reason.
std::vector<FusionGroup> find_fusion_groups(const ir::Graph& graph, const FusionOptions& options,
                                            std::vector<std::string>* remarks = nullptr);

/// The body of a group as a region graph; `operands`: values of `graph` its inputs stand for; `results`: values its outputs make.
ir::Graph region_body(const ir::Graph& graph, const std::vector<ir::OpId>& ops, std::vector<ir::ValueId>& operands,
                      std::vector<ir::ValueId>& results);

/// Follows views to the value that is stored or computed.
ir::ValueId view_base(const ir::Graph& graph, ir::ValueId value);
/// Views, constants and generated values: made again wherever they are read.
bool travels_along(const ir::Op& op);

}  // namespace ingot::passes
