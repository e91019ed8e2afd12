// What a graph moves through memory, counted from the graph alone: nothing is lowered, compiled or run.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/graph/graph.h"

namespace ingot::passes {

/// Bytes an op reads and writes as one launch: each distinct operand once (a slice for what it shows), each result something
/// else needs. Views that rename bytes, constants, inputs and variables move nothing.
double op_traffic(const ir::Graph& graph, ir::OpId id);

struct Traffic {
  double forward = 0;   ///< bytes moved by what fusion decides (regions, lone row ops and copies; no gemm or tuned kernel)
  double backward = 0;  ///< the same in the phases recompute and backward
  double saved = 0;     ///< bytes of distinct values the forward makes and the backward reads
  int forward_launches = 0, backward_launches = 0;
};
Traffic count_traffic(const ir::Graph& graph);

/// Distinct values of the forward, followed through views, that recompute or backward ops read, in graph order. Inputs,
/// variables and constants are there anyway and not among them.
std::vector<ir::ValueId> saved_values(const ir::Graph& graph);

}  // namespace ingot::passes
