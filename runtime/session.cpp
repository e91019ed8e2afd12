#include "runtime/session.h"

#include <fmt/format.h>

#include "ir/base/error.h"
#include "runtime/cpu_session.h"

namespace ingot::runtime {

std::unique_ptr<Session> Session::open(ir::Plan plan, SessionOptions options) {
  ir::verify_plan(plan);
  if (plan.target == "cpu") return open_cpu_session(std::move(plan), options);
  throw ir::MachineError(fmt::format("this plan was made for {}; this program runs plans made with --target cpu", plan.target));
}

}  // namespace ingot::runtime
