#include "runtime/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/base/error.h"
#include "runtime/convert.h"
#include "runtime/init.h"

namespace ingot::runtime {
namespace {

constexpr int64_t kCopyBlock = 1 << 20;  // bytes

const ir::Buffer& buffer(const Step& step, const StepContext& context, size_t arg) {
  return context.plan.buffers[step.call->args[arg].buffer];
}

void launch(const Step& step, int threads) {
  const int64_t tasks = step.call->tasks;
  void* const* args = step.args.data();
  const int64_t* sizes = step.call->sizes.data();
  const KernelFunction function = step.function;
  // Waking the other threads takes some microseconds: about what this little work takes altogether.
  const bool small = step.call->bytes > 0 && step.call->bytes < 65536 && step.call->flops < 262144;
  if (tasks == 1 || threads == 1 || small) {
    for (int64_t task = 0; task < tasks; ++task) function(args, sizes, task);
    return;
  }
  const auto team = static_cast<int>(std::min<int64_t>(threads, tasks));
  const int64_t chunk = std::max<int64_t>(1, tasks / (team * 16));
#pragma omp parallel for schedule(dynamic, chunk) num_threads(team)
  for (int64_t task = 0; task < tasks; ++task) function(args, sizes, task);
}

void multiply(const Step& step, void* scratch) {
  const bool has_c = step.call->gemm.beta != 0;
  step.gemm->run(step.args[0], step.args[1], has_c ? step.args[2] : nullptr, step.args[has_c ? 3 : 2], scratch);
}

void copy(void* to, const void* from, int64_t bytes, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (bytes > kCopyBlock)
  for (int64_t begin = 0; begin < bytes; begin += kCopyBlock) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<size_t>(std::min(kCopyBlock, bytes - begin)));
  }
}

void fill(const ir::Type& type, double value, void* to, int threads) {
  const int64_t width = ir::dtype_bytes(type.dtype), count = type.elements();
  std::byte pattern[8];
  store_double(type.dtype, value, pattern);
#pragma omp parallel for schedule(static) num_threads(threads) if (count > 65536)
  for (int64_t i = 0; i < count; ++i) std::memcpy(static_cast<std::byte*>(to) + i * width, pattern, static_cast<size_t>(width));
}

// The first element that is not finite, or -1.
int64_t first_not_finite(ir::DType dtype, const std::byte* data, int64_t count) {
  const int64_t width = ir::dtype_bytes(dtype);
  int64_t first = count;
#pragma omp parallel for schedule(static) reduction(min : first) if (count > 65536)
  for (int64_t i = 0; i < count; ++i) {
    if (i < first && !std::isfinite(load_double(dtype, data + i * width))) first = i;
  }
  return first == count ? -1 : first;
}

}  // namespace

void run_step(const Step& step, const StepContext& context) {
  const ir::Call& call = *step.call;
  switch (call.kind) {
    case ir::CallKind::launch:
      return launch(step, context.threads);
    case ir::CallKind::gemm:
      return multiply(step, context.scratch);
    case ir::CallKind::copy:
      return copy(step.args[1], step.args[0], buffer(step, context, 0).type.bytes(), context.threads);
    case ir::CallKind::fill:
      return fill(buffer(step, context, 0).type, call.fill, step.args[0], context.threads);
    case ir::CallKind::init:
      return fill_initial({call.label, call.init, buffer(step, context, 0).type, context.seed, call.loc, context.threads},
                          step.args[0]);
    case ir::CallKind::collective:
      throw ir::InternalError("a collective in a plan for one machine");
  }
}

void check_finite(const Step& step, const StepContext& context, const ir::Program& program) {
  for (size_t i = 0; i < step.args.size(); ++i) {
    if (!step.args[i] || step.call->args[i].mode == ir::AccessMode::read) continue;
    const ir::Buffer& b = buffer(step, context, i);
    if (!ir::is_float(b.type.dtype) || b.role == ir::BufferRole::workspace) continue;
    const auto* data = static_cast<const std::byte*>(step.args[i]);
    const int64_t bad = first_not_finite(b.type.dtype, data, b.type.elements());
    if (bad < 0) continue;
    const double value = load_double(b.type.dtype, data + bad * ir::dtype_bytes(b.type.dtype));
    const std::string maker = step.call->kernel.empty() ? std::string(ir::call_kind_name(step.call->kind)) : step.call->kernel;
    throw ir::UserError(step.call->loc, fmt::format("program {}: {} ({}) wrote {} at element {} of {} {}", program.name,
                                                    step.call->label, maker, value, bad, b.name, b.type.text()));
  }
}

}  // namespace ingot::runtime
