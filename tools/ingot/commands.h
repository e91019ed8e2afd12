// Every file tools/ingot/cmd_<name>.cpp defines `void add_<name>_command(CLI::App& app)`, which adds the subcommand <name> with
// its options and a callback that runs it. CMake globs the files and generates add_all_commands.
#pragma once

namespace CLI {
class App;
}

namespace ingot::tools {

void add_all_commands(CLI::App& app);

}  // namespace ingot::tools
