// Writes into a graph what storage.h says: casts where values are rounded.
#pragma once
#include <vector>

#include "ir/graph/graph.h"
#include "passes/fusion_groups.h"
#include "passes/storage.h"

namespace ingot::passes {

/// By value: is it rounded to the compute dtype? What ops outside its group read is, what a cast along with it shows is, and so
/// are the twins of both. `crossing`: see crossing_values.
std::vector<bool> narrowed_values(const ir::Graph& graph, const Storage& storage, const std::vector<bool>& crossing);

/// The graph with those values rounded, and `groups` in its ops:
///   %v = add(%a, %b): f32                     %v = add(%a, %b): f32
///   %c = cast(%v) {dtype: bf16}       =>      %c = cast(%v) {dtype: bf16}          in the group of %v
///   %m = matmul(%c, %w)                       %c.f32 = cast(%c) {dtype: f32}       goes along with its readers
///   %y = exp(%v)                              %m = matmul(%c, %w)
///                                             %y = exp(%c.f32)
/// A product is made in the compute dtype instead.
ir::Graph write_narrowed(const ir::Graph& graph, const Storage& storage, const std::vector<bool>& narrowed,
                         std::vector<FusionGroup>& groups);

}  // namespace ingot::passes
