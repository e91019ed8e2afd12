#include "ir/base/error.h"

#include <fstream>

namespace ingot::ir {
namespace {

// The text of one line of a file, or nothing when it cannot be read any more.
bool read_line(const std::string& path, int line, std::string& out) {
  std::ifstream in(path);
  for (int i = 0; i < line; ++i) {
    if (!std::getline(in, out)) return false;
  }
  if (!out.empty() && out.back() == '\r') out.pop_back();
  return true;
}

// The line with a caret under the column; tabs are kept so that the caret lands where the terminal puts the text.
std::string excerpt(const Loc& loc) {
  std::string line;
  if (!loc.known() || !read_line(*loc.file, loc.line, line) || line.size() > 400) return "";
  std::string pad;
  for (int i = 0; i + 1 < loc.col && i < static_cast<int>(line.size()); ++i) {
    const auto byte = static_cast<unsigned char>(line[i]);
    if ((byte & 0xc0) == 0x80) continue;  // the rest of a UTF-8 character takes no column
    pad += byte == '\t' ? '\t' : ' ';
  }
  return "\n  " + line + "\n  " + pad + "^";
}

std::string join(const std::vector<Diagnostic>& list) {
  std::string text;
  for (const Diagnostic& d : list) text += (text.empty() ? "" : "\n") + render(d);
  return text;
}

std::string prefix(const Loc& loc) { return loc.file ? loc.text() + ": " : ""; }

}  // namespace

std::string render(const Diagnostic& d) {
  std::string text = prefix(d.loc) + "error: " + d.message + excerpt(d.loc);
  if (d.loc.origin) text += "\n" + prefix(d.loc) + "note: made from this line by: " + *d.loc.origin;
  for (const Note& note : d.notes) text += "\n" + prefix(note.loc) + "note: " + note.text + excerpt(note.loc);
  return text;
}

UserError::UserError(Loc loc, std::string message, std::vector<Note> notes)
    : UserError(std::vector<Diagnostic>{{loc, std::move(message), std::move(notes)}}) {}

UserError::UserError(std::vector<Diagnostic> diagnostics)
    : std::runtime_error(join(diagnostics)), diagnostics_(std::move(diagnostics)) {}

void Diagnostics::error(Loc loc, std::string message, std::vector<Note> notes) {
  list_.push_back({loc, std::move(message), std::move(notes)});
  if (static_cast<int>(list_.size()) >= limit_) throw_if_any();
}

void Diagnostics::throw_if_any() const {
  if (!list_.empty()) throw UserError(list_);
}

void broken(const std::string& text) { throw InternalError(text); }

}  // namespace ingot::ir
