#include "models/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "ir/base/error.h"

namespace ingot::models {
namespace {

bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

Piece Piece::sub(size_t begin, size_t end) const {
  begin = std::min(begin, text.size());
  end = std::min(end, text.size());
  ir::Loc at = loc;
  at.col += static_cast<int>(begin);
  return piece(text.substr(begin, end > begin ? end - begin : 0), at);
}

Piece piece(std::string_view text, ir::Loc loc) {
  while (!text.empty() && text.front() == ' ') {
    text.remove_prefix(1);
    ++loc.col;
  }
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return {text, loc};
}

size_t find_outside(std::string_view text, std::string_view word, size_t from) {
  const bool letters = word_char(word.front());
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
    } else if (c == '(' || c == '[') {
      ++depth;
    } else if (c == ')' || c == ']') {
      --depth;
    } else if (depth == 0 && i >= from && text.substr(i).starts_with(word)) {
      const size_t end = i + word.size();
      if (!letters || ((i == 0 || text[i - 1] == ' ') && (end == text.size() || text[end] == ' '))) return i;
    }
  }
  return std::string_view::npos;
}

std::vector<Piece> split_outside(Piece text, std::string_view separator) {
  std::vector<Piece> out;
  size_t at = 0;
  while (true) {
    const size_t end = find_outside(text.text, separator, at);
    out.push_back(text.sub(at, end));
    if (end == std::string_view::npos) return out;
    at = end + separator.size();
  }
}

bool is_identifier(std::string_view text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) && std::all_of(text.begin(), text.end(), word_char);
}

bool is_dotted_name(std::string_view text) {
  const size_t dot = text.find('.');
  if (!is_identifier(text.substr(0, dot))) return false;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('.'));
    if (part.empty() || !std::all_of(part.begin(), part.end(), word_char)) return false;
    if (part.size() == text.size()) return true;
    text.remove_prefix(part.size() + 1);
  }
  return false;
}

bool is_reserved(std::string_view text) {
  static constexpr std::string_view kWords[] = {"and", "or",  "not", "true", "false", "none", "when",
                                                "in",  "let", "i",   "j",    "layer", "nth"};
  return std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords);
}

bool is_literal(std::string_view text) {
  if (is_dotted_name(text)) return true;
  if (text.starts_with("-")) text.remove_prefix(1);
  const auto number_char = [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) || c == '.' || c == 'e' || c == 'E' || c == '-' || c == '+';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), number_char);
}

TypeText parse_type(Piece text, Piece& rest) {
  const size_t open = text.text.find('[');
  const Piece word = text.sub(0, std::min(open, text.text.find_first_of(" =")));
  const std::optional<ir::DType> dtype = ir::dtype_from_name(word.text);
  if (!dtype) {
    throw ir::UserError(
        text.loc,
        fmt::format("a type is expected, for example f32[width]; `{}` is none of f32, bf16, f16, i32, i64, bool", word.text));
  }
  if (open == std::string_view::npos || !text.sub(word.text.size(), open).empty()) {
    throw ir::UserError(text.loc, fmt::format("the sizes are missing: {0}[...] (a scalar is {0}[])", word.text));
  }
  size_t close = open;
  int depth = 0;
  for (; close < text.text.size(); ++close) {
    depth += text.text[close] == '[' ? 1 : text.text[close] == ']' ? -1 : 0;
    if (depth == 0) break;
  }
  if (depth != 0) throw ir::UserError(text.sub(open).loc, "`[` is never closed");
  TypeText type;
  type.dtype = *dtype;
  type.loc = text.loc;
  const Piece sizes = text.sub(open, close + 1);
  type.sizes = ir::parse_expr(sizes.text, sizes.loc)->args;
  rest = text.sub(close + 1);
  return type;
}

}  // namespace ingot::models
