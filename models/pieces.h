// Slices of one-line texts that keep their column, and the words and lists written in them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/description.h"

namespace ingot::models {

/// Part of a line; `loc` is its first byte. Always trimmed.
struct Piece {
  std::string_view text;
  ir::Loc loc;

  Piece sub(size_t begin, size_t end = std::string_view::npos) const;
  bool empty() const { return text.empty(); }
};
Piece piece(std::string_view text, ir::Loc loc);

/// Where `word` stands outside brackets and strings, or npos. A word of letters must stand between spaces.
size_t find_outside(std::string_view text, std::string_view word, size_t from = 0);
/// The pieces between commas outside brackets.
std::vector<Piece> split_outside(Piece text, std::string_view separator);

bool is_identifier(std::string_view text);   ///< letters, digits, _
bool is_dotted_name(std::string_view text);  ///< identifiers joined by dots; later parts may begin with a digit
/// Words with a meaning of their own: no value, key or block can have such a name.
bool is_reserved(std::string_view text);
/// A number or a name: what may stand where a comma would end it.
bool is_literal(std::string_view text);

/// f32[a, b]; `rest` gets what follows. Throws a located UserError.
TypeText parse_type(Piece text, Piece& rest);

}  // namespace ingot::models
