#include "runtime/cpu_features.h"

#include <cctype>
#include <fstream>
#include <sstream>
#include <string_view>

namespace ingot::runtime {
namespace {

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_' && c != '.' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// What cpuinfo calls otherwise than the compiler does.
struct Alias {
  std::string_view cpuinfo, compiler;
};
constexpr Alias kAliases[] = {{"pni", "sse3"},         {"abm", "lzcnt"},    {"lahflm", "sahf"},
                              {"pclmulqdq", "pclmul"}, {"rdrand", "rdrnd"}, {"3dnowprefetch", "prfchw"},
                              {"shani", "sha"},        {"asimd", "neon"}};

}  // namespace

std::set<std::string> machine_features() {
  std::set<std::string> found;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) found.insert(plain(word));
    break;  // the cores are alike
  }
  for (const Alias& alias : kAliases) {
    if (found.contains(std::string(alias.cpuinfo))) found.emplace(alias.compiler);
  }
  return found;
}

std::string missing_features(const std::string& wanted, const std::set<std::string>& have) {
  std::string missing;
  std::istringstream words(wanted);
  for (std::string word; words >> word;) {
    if (!have.contains(plain(word))) missing += (missing.empty() ? "" : " ") + word;
  }
  return missing;
}

}  // namespace ingot::runtime
