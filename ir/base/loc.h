// Where something was written. Every op, variable and diagnostic carries one, through every pass.
#pragma once
#include <string>
#include <string_view>

namespace ingot::ir {

/// A position in a source file: 1-based line and column, 0 = unknown. `origin` says what a compiler-made thing was
/// derived from ("gradient", "autocast", ...), empty for what the author wrote. Both strings are interned: a Loc is
/// two pointers and two ints, copied freely.
struct Loc {
  const std::string* file = nullptr;    ///< interned path as the user typed it; nullptr = unknown
  const std::string* origin = nullptr;  ///< interned; nullptr = written by the author
  int line = 0;
  int col = 0;

  bool known() const { return file != nullptr && line > 0; }
  /// "models/x.yaml:41:30", or "<unknown>".
  std::string text() const;
  bool operator==(const Loc&) const = default;
};

/// The one copy of `text` that lives until the program ends (thread safe).
const std::string* intern(std::string_view text);
Loc make_loc(std::string_view file, int line, int col);
/// The same place, marked as made by the compiler: derived(loc, "gradient"). The innermost reason wins.
Loc derived(const Loc& loc, std::string_view origin);

}  // namespace ingot::ir
