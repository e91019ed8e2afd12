// Which products that stand side by side (passes/siblings.cpp) are one call, and what must lie end to end for it. A call of
// several products walks each matrix by one stride: variables lie where their segment has them, parts of one value where it has
// them, and temps of equal size, otherwise free to lie anywhere, are brought into a strip. Nothing is copied: siblings that no
// stride can walk stay calls of their own.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "codegen/layout.h"
#include "ir/graph/graph.h"

namespace ingot::codegen {

struct Homes;

/// Owners of temps (Home::owner), all of one size, that lie end to end and live as one.
struct Strip {
  std::vector<ir::ValueId> owners;
};

/// The matrices of a product: both operands, what is added (kNone: nothing) and the result.
using Matrices = std::array<ir::ValueId, 4>;
inline constexpr size_t kAdded = 2, kMade = 3;
Matrices matrices(const ir::Op& gemm);

/// Of how many products that stand side by side the op is one; 1: of none.
int64_t siblings(const ir::Op& op);

/// Products made by one call.
struct Together {
  std::vector<ir::OpId> ops;         ///< in the order in which strides walk them
  std::array<int64_t, 4> strides{};  ///< per matrix, in bytes; 0: all read the same
};

/// Where an owner lies in a strip; -1: in none.
struct StripPlace {
  int strip = -1;
  int64_t offset = 0;  ///< bytes
};

/// Fills in `strips`, `strip_places`, `together` and `call_of` of homes that are settled otherwise.
void find_siblings(const ir::Graph& graph, const Layout& layout, Homes& homes);

}  // namespace ingot::codegen
