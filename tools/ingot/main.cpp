// The program `ingot`: one command per file cmd_<name>.cpp, each adding itself; CMake lists them (commands.cpp).
#include <CLI/CLI.hpp>

#include "runtime/cuda/session.h"
#include "tools/ingot/commands.h"
#include "tools/shared/exit.h"
#include "tools/shared/parse.h"

int main(int argc, char** argv) {
  const int code = ingot::tools::guarded(ingot::tools::command_line(argc, argv), [&] {
    CLI::App app(
        "Ingot: a model's equations in, a fixed training plan out.\n"
        "Exit codes: 0 done, 1 your mistake, 2 the machine lacks something, 3 a bug of ours, 4 a run stopped itself, "
        "128+n a signal.",
        "ingot");
    app.require_subcommand(1);
    app.set_version_flag("--version", INGOT_VERSION);
    ingot::tools::add_all_commands(app);
    ingot::tools::parse_and_run(app, argc, argv);
  });
  ingot::runtime::cuda::end_if_lost(code);
  return code;
}
