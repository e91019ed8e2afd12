// Parameters side by side, as one matrix: what an optimizer rule works on, so that one op updates all of them.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/graph/builder.h"
#include "ir/graph/graph.h"

namespace ingot::passes {

/// A parameter that is trained.
struct Trained {
  ir::Variable variable;
  ir::ValueId gradient = ir::kNone;  ///< of the sum of losses
};

/// Trained parameters of one dtype, whose gradients have one dtype too: those with narrow copies (prepare) first, and each sort
/// in the order of their optimizer groups (lr_factor, decay_factor). Within a group those of equal shape lie side by side, so that
/// products with several of them can walk them by one stride (codegen/siblings.h). A pack of one value per parameter is a matrix [rows, kRow]:
/// each value flattened, from a multiple of kAlign on, each group from a new row on, and zeros between. Codegen lays variables
/// out as a pack of them wants (codegen/layout.h), so none of these packs and parts costs a copy.
struct Packed {
  static constexpr int64_t kRow = 4096;  ///< elements
  /// Elements: 256 bytes of 16-bit values, where any buffer may begin.
  static constexpr int64_t kAlign = 128;

  struct Group {
    double lr_factor = 1, decay_factor = 1;
    bool copied = false;  ///< there are narrow copies
    int64_t end = 0;      ///< rows
  };
  std::vector<Trained> parts;
  std::vector<int64_t> offsets;  ///< per part, in elements
  std::vector<Group> groups;

  int64_t rows() const { return groups.back().end; }
  /// One value per part, all of one dtype.
  ir::ValueId pack(ir::Builder& b, const std::vector<ir::ValueId>& values) const;
  /// The value of part `i`, in its parameter's shape.
  ir::ValueId part(ir::Builder& b, ir::ValueId pack, size_t i) const;
  /// f32: `value` times the factor of each row's group: a number when all are alike, else [rows, 1].
  ir::ValueId by_group(ir::Builder& b, ir::ValueId value, double Group::*factor) const;
};

std::vector<Packed> pack_trained(const ir::Graph& graph, const std::vector<Trained>& trained);

}  // namespace ingot::passes
