// The flags of `ingot run` and `ingot-run`, which are the same command with and without the compiler.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdio>

#include "runtime/run_plan.h"
#include "tools/shared/exit.h"

namespace ingot::tools {

inline void add_run_flags(CLI::App& command, runtime::RunPlanOptions& o) {
  command.add_option("plan", o.plan, "X.plan; a plan holds native code and is trusted as a program is")->required();
  command.add_option("--in", o.in, "safetensors with variables (param.NAME) and inputs (in.NAME)");
  command.add_option("--out", o.out, "safetensors for the outputs (out.NAME)");
  command.add_option("--program", o.program, "which program to run (default: eval)");
  command.add_option("--repeat", o.repeat, "replays");
  command.add_option("--trace", o.trace, "write a time per call as Chrome trace events");
  command.add_option("--against", o.against, "another plan whose outputs must agree");
  command.add_option("--tol", o.tolerance, "relative L2 error allowed per output with --against");
  command.add_option("--seed", o.seed, "of variables and inputs that no file gives");
  command.add_option("--threads", o.session.threads, "0 = all cores");
  command.add_flag("--check-nan", o.session.check_nan, "stop at the first call that writes a value that is not finite");
  command.add_flag("--poison", o.session.poison, "fill memory that holds nothing with NaN");
}

inline void print_run(const runtime::RunPlanOptions& options) {
  const runtime::RunPlanResult result = runtime::run_plan(options);
  std::fputs(result.text.c_str(), stdout);
  if (!result.agrees) throw Exit{kUserMistake};
}

}  // namespace ingot::tools
