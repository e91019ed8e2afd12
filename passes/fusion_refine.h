// Step two of grouping: what merging alone cannot reach, because it only ever puts whole groups together.
#pragma once
#include <vector>

#include "ir/graph/graph.h"
#include "passes/fusion_groups.h"

namespace ingot::passes {

/// While that saves bytes: what a group reads from another is computed again in it, from values that cost less to read (an op
/// then stands in several groups, see FusionGroup::copies), and what nobody needs in its old place any more leaves it.
///
/// Returns what all groups cost then.
///
///   [a = exp(x)  b = mul(a, y)] -> b          [a = exp(x)  b = mul(a, y)] -> b         a is neither stored nor read: the second
///   [c = add(a, x)  d = neg(c)] -> d    =>    [a = exp(x)  c = add(a, x)  d = neg(c)] -> d     kernel reads x anyway
double refine_groups(const ir::Graph& graph, const Storage& storage, const FusionModel& model, std::vector<FusionGroup>& groups);

}  // namespace ingot::passes
