// ingot run X.plan --in A.safetensors --out B.safetensors: one program of a plan on tensors from a file.
#include <memory>

#include "tools/ingot-run/run_flags.h"
#include "tools/ingot/commands.h"

namespace ingot::tools {

void add_run_command(CLI::App& app) {
  auto options = std::make_shared<runtime::RunPlanOptions>();
  CLI::App* command = app.add_subcommand("run", "Run one program of a compiled plan on tensors from a file");
  add_run_flags(*command, *options);
  command->callback([options] { print_run(*options); });
}

}  // namespace ingot::tools
