#include "runtime/threads.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "ir/base/error.h"

namespace ingot::runtime {

int thread_count(int wanted) {
  constexpr int kMost = 1024;
  if (wanted < 0 || wanted > kMost)
    throw ir::UserError(ir::Loc{}, fmt::format("{} threads; 0 (all cores) to {} can be asked for", wanted, kMost));
  return wanted > 0 ? wanted : std::max(1, omp_get_num_procs());
}

}  // namespace ingot::runtime
