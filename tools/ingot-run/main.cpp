// The program `ingot-run`: runs a plan on a machine without the compiler.
#include "runtime/cuda/session.h"
#include "tools/ingot-run/run_flags.h"
#include "tools/shared/parse.h"

int main(int argc, char** argv) {
  namespace tools = ingot::tools;
  const int code = tools::guarded(tools::command_line(argc, argv), [&] {
    CLI::App app("Runs one program of a compiled plan on tensors from a file. Exit codes as ingot's.", "ingot-run");
    app.set_version_flag("--version", INGOT_VERSION);
    ingot::runtime::RunPlanOptions options;
    tools::add_run_flags(app, options);
    app.callback([&] { tools::print_run(options); });
    tools::parse_and_run(app, argc, argv);
  });
  ingot::runtime::cuda::end_if_lost(code);
  return code;
}
