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

constexpr int64_t kPart = 1 << 18;  // bytes copied or filled by one thread at a time

const ir::Buffer& buffer(const Step& step, const StepContext& context, size_t arg) {
  return context.plan.buffers[step.call->args[arg].buffer];
}

void launch(const Step& step, Pool& pool) {
  const int64_t tasks = step.call->tasks;
  void* const* args = step.args.data();
  const int64_t* sizes = step.call->sizes.data();
  const KernelFunction function = step.function;
  // Waking another thread takes some microseconds: about what this little work takes altogether.
  const bool small = step.call->bytes > 0 && step.call->bytes < 65536 && step.call->flops < 262144;
  const int64_t chunk = small ? tasks : tasks / (pool.threads() * 16);
  pool.run(tasks, chunk, [=](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) function(args, sizes, task);
  });
}

void multiply(const Step& step, void* scratch) {
  const bool has_c = step.call->gemm.beta != 0;
  step.gemm->run(step.args[0], step.args[1], has_c ? step.args[2] : nullptr, step.args[step.call->gemm.result()], scratch);
}

void copy(void* to, const void* from, int64_t bytes, Pool& pool) {
  pool.run(bytes, kPart, [=](int64_t begin, int64_t end, int) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

void fill(const ir::Type& type, double value, void* to, Pool& pool) {
  const int64_t width = ir::dtype_bytes(type.dtype);
  std::byte pattern[8];
  store_double(type.dtype, value, pattern);
  pool.run(type.elements(), kPart / width, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(static_cast<std::byte*>(to) + i * width, pattern, static_cast<size_t>(width));
  });
}

// The first element that is not finite, or -1.
int64_t first_not_finite(ir::DType dtype, const std::byte* data, int64_t count) {
  const int64_t width = ir::dtype_bytes(dtype);
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(load_double(dtype, data + i * width))) return i;
  }
  return -1;
}

}  // namespace

void run_step(const Step& step, const StepContext& context) {
  const ir::Call& call = *step.call;
  switch (call.kind) {
    case ir::CallKind::launch:
      return launch(step, context.pool);
    case ir::CallKind::gemm:
      return multiply(step, context.scratch);
    case ir::CallKind::copy:
      return copy(step.args[1], step.args[0], buffer(step, context, 0).type.bytes(), context.pool);
    case ir::CallKind::fill:
      return fill(buffer(step, context, 0).type, call.fill, step.args[0], context.pool);
    case ir::CallKind::init:
      return fill_initial({call.label, call.init, buffer(step, context, 0).type, context.seed, call.loc, context.pool.threads()},
                          step.args[0]);
    case ir::CallKind::collective:
      throw ir::InternalError("a collective in a plan for one machine");
  }
}

void check_finite(const std::byte* data, const ir::Buffer& buffer, const ir::Call& call, const ir::Program& program) {
  const int64_t bad = first_not_finite(buffer.type.dtype, data, buffer.type.elements());
  if (bad < 0) return;
  const double value = load_double(buffer.type.dtype, data + bad * ir::dtype_bytes(buffer.type.dtype));
  const std::string maker = call.kernel.empty() ? std::string(ir::call_kind_name(call.kind)) : call.kernel;
  throw ir::UserError(call.loc, fmt::format("program {}: {} ({}) wrote {} at element {} of {} {}", program.name, call.label,
                                            maker, value, bad, buffer.name, buffer.type.text()));
}

void check_finite(const Step& step, const StepContext& context, const ir::Program& program) {
  for (size_t i = 0; i < step.args.size(); ++i) {
    if (!step.args[i] || step.call->args[i].mode == ir::AccessMode::read) continue;
    const ir::Buffer& b = buffer(step, context, i);
    if (!ir::is_float(b.type.dtype) || b.role == ir::BufferRole::workspace) continue;
    check_finite(static_cast<const std::byte*>(step.args[i]), b, *step.call, program);
  }
}

}  // namespace ingot::runtime
