// The option parser's part of main(): its errors in our words and codes, the nearest name for what it does not know.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace ingot::tools {

/// Parses and runs the callbacks of the commands given. Help and version end the program with 0; what the parser refuses is a
/// UserError with the nearest option or command.
void parse_and_run(CLI::App& app, int argc, char** argv);

/// A check of a numeric option for CLI11: "" for a number of at least 0, else what is wrong with it.
std::string not_negative(const std::string& text);

/// "key=value" words -> pairs in order. UserError for a word without '=' or without a key.
std::vector<std::pair<std::string, std::string>> assignments(const std::vector<std::string>& words);

/// "a,b , c" -> {"a", "b", "c"}; empty parts are left out.
std::vector<std::string> comma_list(const std::string& text);

/// The value if it is one of `known`, else a UserError that lists them and names the nearest.
const std::string& one_of(const std::string& value, const std::vector<std::string>& known, const std::string& what);

}  // namespace ingot::tools
