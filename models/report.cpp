#include "models/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "ir/base/text.h"

namespace ingot::models {
namespace {
constexpr size_t kMostMistakes = 20;
}

void Report::error(const ir::Loc& loc, std::string message, std::vector<ir::Note> notes) {
  if (!places_.insert(loc.known() ? loc.text() : message).second) return;
  list_.push_back({loc, std::move(message), std::move(notes)});
  if (list_.size() >= kMostMistakes) throw Full();
}

void Report::error(const ir::UserError& error) {
  for (const ir::Diagnostic& d : error.diagnostics()) this->error(d.loc, d.message, d.notes);
}

void Report::throw_if_any() {
  if (list_.empty()) return;
  // By file, in the order they first came up, then by place.
  std::map<const std::string*, size_t> files;
  for (const ir::Diagnostic& d : list_) files.emplace(d.loc.file, files.size());
  std::stable_sort(list_.begin(), list_.end(), [&](const ir::Diagnostic& a, const ir::Diagnostic& b) {
    return std::tuple(files[a.loc.file], a.loc.line, a.loc.col) < std::tuple(files[b.loc.file], b.loc.line, b.loc.col);
  });
  throw ir::UserError(list_);
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string near = ir::nearest_name(name, candidates);
  return near.empty() ? "" : fmt::format("; did you mean `{}`?", near);
}

}  // namespace ingot::models
