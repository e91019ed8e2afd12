// One call of a plan, ready to run: names resolved to addresses and functions.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/plan/plan.h"
#include "runtime/gemm.h"
#include "runtime/image.h"
#include "runtime/pool.h"

namespace ingot::runtime {

struct Step {
  const ir::Call* call = nullptr;
  std::vector<void*> args;            ///< addresses in the order of call->args; null for an absent one
  KernelFunction function = nullptr;  ///< launch
  GemmRunner* gemm = nullptr;         ///< gemm
};

struct StepContext {
  const ir::Plan& plan;
  Pool& pool;
  uint64_t seed = 0;
  void* scratch = nullptr;  ///< of the gemms
};

/// Runs the call to its end on the context's pool.
void run_step(const Step& step, const StepContext& context);

/// UserError naming the call, the buffer and the element when something the call wrote is not finite.
void check_finite(const Step& step, const StepContext& context, const ir::Program& program);
/// The same for one buffer of floats that `call` wrote, its elements at `data`.
void check_finite(const std::byte* data, const ir::Buffer& buffer, const ir::Call& call, const ir::Program& program);

}  // namespace ingot::runtime
