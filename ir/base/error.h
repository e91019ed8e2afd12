// The three kinds of failure, each with its owner and exit code (tools/ maps them):
//   UserError     1  the user's mistake: located, states the rule and both sides
//   MachineError  2  the machine lacks something: says what, and the command that installs it
//   InternalError 3  our bug: carries enough to write a reproducer
#pragma once
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "ir/base/loc.h"

namespace ingot::ir {

struct Note {
  Loc loc;
  std::string text;
};

/// One located sentence about a mistake. `message` has no trailing full stop and no "error:" prefix.
struct Diagnostic {
  Loc loc;
  std::string message;
  std::vector<Note> notes;
};

/// "file:line:col: error: message", the source line with a caret under `col` (when the file can be read), then notes.
std::string render(const Diagnostic& diagnostic);

/// One or more user mistakes (exit code 1).
class UserError : public std::runtime_error {
 public:
  UserError(Loc loc, std::string message, std::vector<Note> notes = {});
  explicit UserError(std::vector<Diagnostic> diagnostics);
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
};

/// The machine lacks something (exit code 2). The message says what and how to get it.
class MachineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A broken invariant of ours (exit code 3).
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Collects mistakes so that all are reported at once, at most `limit`; throws UserError when the limit is reached.
class Diagnostics {
 public:
  explicit Diagnostics(int limit = 20) : limit_(limit) {}
  void error(Loc loc, std::string message, std::vector<Note> notes = {});
  bool empty() const { return list_.empty(); }
  const std::vector<Diagnostic>& list() const { return list_; }
  /// Throws UserError with everything collected so far, if anything was.
  void throw_if_any() const;

 private:
  int limit_;
  std::vector<Diagnostic> list_;
};

[[noreturn]] void broken(const std::string& text);  ///< throws InternalError

/// Internal check: throws InternalError with the text when `ok` is false.
inline void check(bool ok, const char* text) {
  if (!ok) broken(text);
}
inline void check(bool ok, const std::string& text) {
  if (!ok) broken(text);
}
/// The same with a text that is put together only when it is needed: for checks that run a million times.
template <class Text>
requires std::is_invocable_r_v<std::string, Text>
void check(bool ok, Text text) {
  if (!ok) broken(text());
}

}  // namespace ingot::ir
