// Initial values: from their text to numbers in a buffer.
#pragma once
#include <cstdint>
#include <string>

#include "ir/base/loc.h"
#include "ir/base/type.h"

namespace ingot::runtime {

/// Which value is made, where messages point, and with how many threads.
struct InitRequest {
  std::string name;        ///< the variable's: keys the random draws, together with the seed
  std::string expression;  ///< see ir::Variable::init
  ir::Type type;
  uint64_t seed = 0;
  ir::Loc loc;
  int threads = 1;
};

/// Writes every element, computed in double and rounded once (orthogonal: in f32). An element depends on the request alone, never
/// on the number of threads. Located UserError on a malformed expression, a name or function it does not know, or a value that
/// is not finite.
void fill_initial(const InitRequest& request, void* buffer);

}  // namespace ingot::runtime
