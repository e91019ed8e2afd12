#include "tools/shared/parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "tools/shared/exit.h"

namespace ingot::tools {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw ir::UserError(ir::make_loc("<command line>", 0, 0), message); }

std::string suggestion(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = ir::nearest_name(name, known);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The command being parsed, or the program itself.
const CLI::App& current(const CLI::App& app) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  return commands.empty() ? app : *commands.back();
}

[[noreturn]] void refuse_extras(const CLI::App& app) {
  const CLI::App& command = current(app);
  std::vector<std::string> extras = command.remaining();
  if (extras.empty()) extras = app.remaining();
  const std::string word = extras.empty() ? "" : extras.front();
  const std::string name = word.substr(0, word.find('='));
  if (word.starts_with("-")) {
    refuse(fmt::format("{} has no option '{}'{}", command.get_name(), name, suggestion(name, option_names(command))));
  }
  refuse(fmt::format("{} does not know what to do with '{}'", command.get_name(), word));
}

}  // namespace

void parse_and_run(CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> commands = command_names(app);
  if (argc < 2 && !commands.empty())
    refuse(fmt::format("a command is needed, one of {} (see {} --help)", fmt::join(commands, ", "), app.get_name()));
  if (argc > 1 && !commands.empty() && argv[1][0] != '-' &&
      std::find(commands.begin(), commands.end(), argv[1]) == commands.end()) {
    refuse(fmt::format("there is no command '{}'{} (commands: {})", argv[1], suggestion(argv[1], commands),
                       fmt::join(commands, ", ")));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    refuse_extras(app);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);  // --help, --version
      throw Exit{0};
    }
    const CLI::App& command = current(app);
    const std::string path = &command == &app ? app.get_name() : app.get_name() + " " + command.get_name();
    refuse(fmt::format("{} (see {} --help)", error.what(), path));
  }
}

std::vector<std::pair<std::string, std::string>> assignments(const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    if (at == std::string::npos || at == 0) refuse(fmt::format("'{}' is not of the form key=value", word));
    pairs.emplace_back(word.substr(0, at), word.substr(at + 1));
  }
  return pairs;
}

std::string not_negative(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && !(value >= 0 && std::isfinite(value)))
    return fmt::format("{}; it is a number from 0 up", text);
  return "";  // what is no number at all is refused by its conversion
}

std::vector<std::string> comma_list(const std::string& text) {
  std::vector<std::string> list;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const size_t first = text.find_first_not_of(' ', at);
    size_t last = end;
    while (last > at && text[last - 1] == ' ') --last;
    if (first < last) list.push_back(text.substr(first, last - first));
    at = end + 1;
  }
  return list;
}

const std::string& one_of(const std::string& value, const std::vector<std::string>& known, const std::string& what) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return value;
  refuse(fmt::format("{} is one of {}, not '{}'{}", what, fmt::join(known, ", "), value, suggestion(value, known)));
}

}  // namespace ingot::tools
