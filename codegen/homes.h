// Where every value of a graph lives, decided before any call is made: which values are views, which are written straight into a
// variable or an output, which over an operand, and what must be copied at the end.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::codegen {

/// The storage of a root value.
struct Home {
  enum class Kind : uint8_t {
    temp,      ///< bytes of the program, named after `owner`
    constant,  ///< a number: filled where it is first needed, shared by all that are equal
    input,     ///< what the host wrote
    variable,  ///< the buffer of `variable`: its old value, or the new one written in place
    output,    ///< bytes that keep until the next run
  };
  Kind kind = Kind::temp;
  std::string variable;
  ir::ValueId owner = ir::kNone;  ///< the root whose storage this is; another one when written in place over it
};

struct Homes {
  std::vector<bool> live;         ///< per op: something outside depends on it
  std::vector<bool> used;         ///< per value: a live op, output or update names it
  std::vector<ir::ValueId> root;  ///< per value: whose storage it is a contiguous part of; itself unless it is a view
  std::vector<int64_t> offset;    ///< per value: bytes from that storage's start
  std::vector<Home> home;         ///< per root value
  std::vector<size_t> output_copies, update_copies;  ///< indexes of outputs and updates that need a copy after all other calls

  const Home& home_of(ir::ValueId value) const { return home[root[value]]; }
};

/// Which results the op's launches can write over which operands: what its definition declares, and for an elementwise op any
/// operand of the result's type (each element is read before it is written).
std::vector<ir::Alias> allowed_aliases(const ir::Graph& graph, const ir::Op& op);

Homes find_homes(const ir::Graph& graph);

/// The number a rank-0 generated value is, known now.
std::optional<double> constant_of(const ir::Graph& graph, ir::ValueId value);
/// The variable an op reads, or "" (an input, or anything else).
std::string variable_of(const ir::Op& op);

}  // namespace ingot::codegen
