// Which values are contiguous parts of which others' storage, from the graph alone: reshapes and slices of what they show, and
// what is packed side by side of the pack it is written into. A part begins at a multiple of kArgumentAlignment: kernels read 16
// bytes at once.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace ingot::codegen {

struct Parts {
  std::vector<bool> live;         ///< per op: something outside depends on it
  std::vector<bool> used;         ///< per value: a live op, output or update names it
  std::vector<ir::ValueId> root;  ///< per value: whose storage it is a contiguous part of; itself unless it is a part
  std::vector<int64_t> offset;    ///< per value: bytes from that storage's start
  std::vector<bool> shown;        ///< per value: its op only shows a run of the operand and needs no call
  std::vector<bool> packed;       ///< per op: a pack whose parts, some at least, are written where they belong
  /// Per root: the values whose makers write its bytes, itself included.
  std::vector<std::vector<ir::ValueId>> pieces;

  /// Does the value hold all of its root's bytes?
  bool whole(const ir::Graph& graph, ir::ValueId value) const;
};

/// A pack is written in place when its parts lie one after another (all axes before the joined one have length 1) and at least
/// one of them is made by a call of this program and needed nowhere else: not as an output, nor as the new value of a variable
/// unless all the other parts are that too (then the variables lie side by side, see layout.h). A part that is written over what
/// it starts from (a sum that goes on) takes that along.
Parts find_parts(const ir::Graph& graph);

/// A concat of contiguous runs?
bool joins_runs(const ir::Graph& graph, const ir::Op& op);
/// The number a rank-0 generated value is, known now.
std::optional<double> constant_of(const ir::Graph& graph, ir::ValueId value);
/// The number that a view spreads over a shape, or that a rank-0 value is.
std::optional<double> spread_constant(const ir::Graph& graph, ir::ValueId value);
/// The variable an op reads, or "" (an input, or anything else).
std::string variable_of(const ir::Op& op);

}  // namespace ingot::codegen
