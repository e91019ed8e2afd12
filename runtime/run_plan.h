// One program of a plan on tensors from a file: what `ingot run` and `ingot-run` do.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/session.h"

namespace ingot::runtime {

struct RunPlanOptions {
  std::string plan, in, out;  ///< files; in and out may be ""
  std::string program;        ///< "" = eval, or the only program beside init and prepare
  int64_t repeat = 1;
  std::string trace;        ///< file for Chrome trace events
  std::string against;      ///< another plan that must give the same outputs
  double tolerance = 1e-5;  ///< relative L2 error of each output
  uint64_t seed = 0;
  SessionOptions session;
};

struct RunPlanResult {
  std::string text;    ///< what to print: times, and the table of differences
  bool agrees = true;  ///< within the tolerance of `against`
};

/// Variables start from the seed; the file's `param.NAME`, `state.NAME` or NAME are written over them, `in.NAME` or NAME given as
/// inputs, `out.*` and `grad.*` passed over; anything else in it is a UserError with the nearest name. Inputs that the file
/// does not give are drawn from the seed, inside their range. Outputs are written as `out.NAME`.
RunPlanResult run_plan(const RunPlanOptions& options);

}  // namespace ingot::runtime
