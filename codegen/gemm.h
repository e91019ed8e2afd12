// Which gemm calls a batched, broadcasting matrix product is.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/plan/plan.h"

namespace ingot::codegen {

/// One call over a part of each matrix: elements from where, and how many.
struct GemmPart {
  ir::Gemm gemm;
  int64_t a = 0, b = 0, d = 0;                 ///< first element
  int64_t a_size = 0, b_size = 0, d_size = 0;  ///< elements, first to last touched
};

/// op(a) [..., m, k] times op(b) [..., k, n], leading axes broadcasting, all dense. A weight under a batch is one product over
/// all rows; other leading axes become one batch where a stride can walk them, with stride 0 for a shared operand, and several
/// calls where none can.
std::vector<GemmPart> gemm_parts(const ir::Shape& a, const ir::Shape& b, bool ta, bool tb);

}  // namespace ingot::codegen
