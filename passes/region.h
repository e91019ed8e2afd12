// The row space of a fused region: one iteration space for all its ops.
//
// Rows R = batch * time; columns C = G heads x N. A value in it is
//   full [R, G, N] · head [R, G] · row [R] · column [G, N] · scalar,
// classes join by broadcast. Reductions: over N (full -> head), over G*N (full -> row), over R (a *column sum*: one partial per
// tile of rows, added by a second launch in fixed order; never consumed inside the region). An access is (value, row offset -1..1
// with a guard at the ends of a sequence, strides). Values computed in the region may be read at a row offset too: the kernel
// walks the rows upwards, computes a value `lead` rows ahead of the outputs and keeps as many rows of it as its readers need.
//
// A region's body is an ordinary graph; views (reshape, slice, shift_rows, ...) stand in it as ops and cost nothing: they are
// composed into the accesses of the ops that compute. Used by the pass `fuse` (is this group legal?) and by every target
// (what loops to emit), so that the two can never disagree.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::passes {

enum class RowClass : uint8_t { scalar, column, row, head, full };
std::string_view row_class_name(RowClass c);

/// A read of one operand: element `offset + r * row + g * head + n * unit` of `base` as it is stored, where r is the reader's
/// row + `shift`; zero when that leaves the sequence of `period` rows the reader's row is in. `base` is an input of the region or
/// a value computed in it, never a view or a cast to a wider float: reads are in f32, whatever is stored. A computed base is
/// always read in its own order.
struct RowAccess {
  ir::ValueId base = ir::kNone;
  int64_t offset = 0, row = 0, head = 0, unit = 0;
  int shift = 0;
};

enum class StepKind : uint8_t { elementwise, reduce_columns, column_sum, generate };

/// One computing op of the body (not inputs, views or constants).
struct RegionStep {
  ir::OpId op = 0;
  StepKind kind = StepKind::elementwise;
  RowClass result = RowClass::full;  ///< class of the results (column or scalar for a column sum)
  RowClass over = RowClass::full;    ///< reductions: class of what is reduced
  std::vector<RowAccess> reads;      ///< one per operand; base kNone for an absent one
  /// Loops: steps with equal (sweep, lead) share one loop over the columns; sweeps run in order. A reduction's result is
  /// ready in the next sweep.
  int sweep = 0;
  int64_t first_rows = 0;  ///< it is made of the first so many rows only, and stored; 0: of all
  int lead = 0;            ///< this step computes row (current + lead)
  int low = 0;             ///< first row needed, relative to the tile's first
  int depth = 1;           ///< rows of the result that must be kept (1: only the one just computed)
};

struct RegionPlan {
  int64_t rows = 1;    ///< R
  int64_t period = 1;  ///< rows per sequence (T); rows when nothing is shifted
  int64_t groups = 1;  ///< G
  int64_t n = 1;       ///< N; C = groups * n
  std::vector<RegionStep> steps;
  std::vector<RowClass> classes;  ///< per value of the body
  std::vector<int> step_of;       ///< per value: index of the step that computes it, -1 for inputs, views, constants
  /// Per body output: the base it names (views that keep the order are allowed between). A scalar that is no sum is the same for
  /// every row and stored once; columns are not.
  std::vector<ir::ValueId> outputs;

  int64_t columns() const { return groups * n; }
};

/// Builds the plan, or says in one sentence why the body is no row region. `rows`: the R to use; 0 = take the product of all
/// but the last axis of the largest value.
std::optional<RegionPlan> plan_region(const ir::Graph& body, int64_t rows, std::string* why = nullptr);

/// Which outputs (Alias::result) a kernel may store over which inputs of the region (Alias::operand): same dtype, as many
/// elements, and every element of the input is read only where the same element of the output is made, no later than it is
/// stored. So only where no row of one tile touches a row of another one.
std::vector<ir::Alias> in_place(const ir::Graph& body, const RegionPlan& plan);

/// Composition of views: an index map over `dims` (row-major) to elements of a base. Exposed for tests.
struct IndexMap {
  ir::Shape dims;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  int shift = 0;       ///< along the time axis of the base, in rows; 0 = none
  int64_t period = 0;  ///< length of that axis
  int64_t inner = 0;   ///< elements per row of the shifted value
};
/// How a value of shape `from` is read by an op whose result has shape `to` (NumPy broadcasting).
IndexMap broadcast_map(const ir::Shape& from, const ir::Shape& to);
/// `map` reads the view's result; the returned map reads the view's operand. nullopt: not expressible.
std::optional<IndexMap> compose(const IndexMap& map, const ir::View& view);

}  // namespace ingot::passes
