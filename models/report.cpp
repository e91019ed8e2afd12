#include "models/report.h"

#include <fmt/format.h>

#include <algorithm>

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
  std::stable_sort(list_.begin(), list_.end(), [](const ir::Diagnostic& a, const ir::Diagnostic& b) {
    if (a.loc.file != b.loc.file || !a.loc.known()) return false;
    return std::pair(a.loc.line, a.loc.col) < std::pair(b.loc.line, b.loc.col);
  });
  throw ir::UserError(list_);
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string near = ir::nearest_name(name, candidates);
  return near.empty() ? "" : fmt::format("; did you mean `{}`?", near);
}

}  // namespace ingot::models
