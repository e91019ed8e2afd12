#include "runtime/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/files.h"

namespace ingot::runtime {
namespace {

// The lines up to `step`; a line cut short by a crash goes too.
std::string lines_until(const std::string& text, int64_t step) {
  std::istringstream in(text);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.value("step", INT64_MAX) <= step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

Metrics::Metrics(const std::string& path, int64_t step) : path_(path) {
  if (std::filesystem::exists(path)) {
    const std::string text = read_file(path), kept = lines_until(text, step);
    if (kept != text) write_file(path, kept);
  }
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) throw_file_error("write " + path, errno);
}

Metrics::~Metrics() { close(file_); }

void Metrics::write(const std::vector<std::pair<std::string, double>>& values) {
  nlohmann::ordered_json json;
  for (const auto& [key, value] : values) {
    if (std::abs(value) < 0x1p53 && value == std::trunc(value)) {
      json[key] = static_cast<int64_t>(value);
    } else {
      json[key] = value;
    }
  }
  const std::string line = json.dump() + "\n";
  const ssize_t n = ::write(file_, line.data(), line.size());  // one call: a line is whole, or its tail is dropped on resume
  if (n != static_cast<ssize_t>(line.size())) throw_file_error("write " + path_, n < 0 ? errno : ENOSPC);
}

}  // namespace ingot::runtime
