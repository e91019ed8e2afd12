// Where every value of a graph lives, decided before any call is made: which values are views, which are written straight into a
// variable, a pack or an output, which over an operand, and what must be copied at the end.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codegen/layout.h"
#include "codegen/parts.h"
#include "codegen/siblings.h"
#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::codegen {

/// The storage of a root value.
struct Home {
  enum class Kind : uint8_t {
    temp,      ///< bytes of the program, named after `owner`
    constant,  ///< a number: filled where it is first needed, shared by all that are equal
    input,     ///< what the host wrote
    variable,  ///< from the first byte of `variable` on: old values, or new ones written in place
    output,    ///< bytes that keep until the next run
  };
  Kind kind = Kind::temp;
  std::string variable;
  ir::ValueId owner = ir::kNone;  ///< the root whose storage this is; another one when written in place over it
};

struct Homes : Parts {
  std::vector<Home> home;       ///< per root value
  std::vector<bool> read;       ///< per root: it is read where it is stored, not only filled into packs and views
  std::vector<bool> joins;      ///< per op: a pack of variables that lie as it wants them: a view of the first of them and on
  std::vector<bool> zero_gaps;  ///< per root: a new value in variables between which zeros stand already
  std::vector<Strip> strips;
  std::vector<StripPlace> strip_places;  ///< per owner of a temp
  std::vector<Together> together;
  std::vector<int> call_of;  ///< per op: its entry in `together`, or -1
  /// Of the ops that were asked about (allowed_aliases; a region is planned to find them).
  std::map<ir::OpId, std::vector<ir::Alias>> aliases;
  std::vector<size_t> output_copies, update_copies;  ///< indexes of outputs and updates that need a copy after all other calls

  const Home& home_of(ir::ValueId value) const { return home[root[value]]; }
};

/// Which results the op's launches can write over which operands: what its definition declares, for an elementwise op any operand
/// of the result's type (each element is read before it is written), for a region what passes/region.h finds.
std::vector<ir::Alias> allowed_aliases(const ir::Graph& graph, const ir::Op& op);
/// The same, remembered in `homes`.
const std::vector<ir::Alias>& allowed_aliases(const ir::Graph& graph, ir::OpId op, Homes& homes);

Homes find_homes(const ir::Graph& graph, const Layout& layout);

}  // namespace ingot::codegen
