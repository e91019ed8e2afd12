#include "runtime/session.h"

#include <fmt/format.h>

#include "ir/base/error.h"
#include "runtime/cpu_session.h"
#include "runtime/cuda/session.h"

namespace ingot::runtime {

std::unique_ptr<Session> Session::open(ir::Plan plan, SessionOptions options) {
  ir::verify_plan(plan);
  if (plan.target == "cpu") return open_cpu_session(std::move(plan), options);
  if (plan.target.starts_with("cuda:")) return cuda::open_session(std::move(plan), options);
  throw ir::MachineError(fmt::format("this plan was made for {}; this program runs plans made for cpu and cuda", plan.target));
}

}  // namespace ingot::runtime
