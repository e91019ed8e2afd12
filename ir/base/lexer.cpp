#include "ir/base/lexer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "ir/base/error.h"
#include "ir/base/text.h"

namespace ingot::ir {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c) { return is_letter(c) || is_digit(c) || c == '.'; }

bool all_name_chars(std::string_view name) {
  for (char c : name) {
    if (!is_name_char(c)) return false;
  }
  return !name.empty();
}

}  // namespace

bool is_plain_word(std::string_view name) { return all_name_chars(name) && is_letter(name[0]); }
std::string name_text(std::string_view name) { return is_plain_word(name) ? std::string(name) : quoted(name); }
std::string value_text(std::string_view name) { return "%" + (all_name_chars(name) ? std::string(name) : quoted(name)); }

Lexer::Lexer(std::string_view text, std::string_view file) : text_(text), file_(file) {
  if (!valid_utf8(text)) throw UserError(make_loc(file, 1, 1), "the file is not valid UTF-8 text");
  advance();
  token_.starts_line = true;
}

bool Lexer::at(std::string_view spelling) const {
  return (token_.kind == TokenKind::word || token_.kind == TokenKind::punct) && token_.text == spelling;
}

Token Lexer::take() {
  Token taken = token_;
  last_line_ = token_.line;
  last_end_col_ = token_.col + static_cast<int>(token_.text.size());
  advance();
  token_.starts_line = token_.line != taken.line;
  return taken;
}

bool Lexer::accept(std::string_view spelling) {
  if (!at(spelling)) return false;
  take();
  return true;
}

Token Lexer::expect(std::string_view spelling, std::string_view why) {
  if (!at(spelling)) fail_expected(fmt::format("'{}' {}", spelling, why));
  return take();
}

std::string Lexer::word(std::string_view what) {
  if (token_.kind != TokenKind::word) fail_expected(what);
  return std::string(take().text);
}

std::string Lexer::name(std::string_view what) {
  if (token_.kind == TokenKind::text) return quoted_text(what);
  return word(what);
}

std::string Lexer::value_name(std::string_view what) {
  if (token_.kind != TokenKind::value) fail_expected(what);
  Token token = take();
  std::string_view body = token.text.substr(1);
  return body[0] == '"' ? unquoted(token, body) : std::string(body);
}

std::string Lexer::quoted_text(std::string_view what) {
  if (token_.kind != TokenKind::text) fail_expected(what);
  Token token = take();
  return unquoted(token, token.text);
}

int64_t Lexer::integer(std::string_view what) {
  if (token_.kind != TokenKind::number) fail_expected(what);
  int64_t value = 0;
  const char* end = token_.text.data() + token_.text.size();
  auto [stop, error] = std::from_chars(token_.text.data(), end, value);
  if (error == std::errc::result_out_of_range && stop == end) {
    fail(token_, fmt::format("{} does not fit 64 bits: {}", what, token_.text));
  }
  if (error != std::errc() || stop != end) fail_expected(what);
  take();
  return value;
}

bool Lexer::at_number() const { return token_.kind == TokenKind::number || at("inf") || at("nan"); }

double Lexer::real(std::string_view what) {
  if (!at_number()) fail_expected(what);
  std::string_view text = token_.text;
  const bool negative = text[0] == '-';
  std::string_view digits = negative ? text.substr(1) : text;
  double value = 0;
  if (digits == "inf") {
    value = std::numeric_limits<double>::infinity();
  } else if (digits == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc::result_out_of_range) fail(token_, fmt::format("{} does not fit a double: {}", what, text));
    if (error != std::errc() || stop != digits.data() + digits.size()) fail_expected(what);
  }
  take();
  return negative ? -value : value;
}

bool Lexer::boolean(std::string_view what) {
  if (accept("true")) return true;
  if (accept("false")) return false;
  fail_expected(fmt::format("true or false for {}", what));
}

Loc Lexer::loc(const Token& token) const { return make_loc(file_, token.line, token.col); }

void Lexer::fail(const Token& token, const std::string& message) const { throw UserError(loc(token), message); }

void Lexer::fail_expected(std::string_view what) const {
  if (token_.starts_line && last_line_ > 0) {
    throw UserError(make_loc(file_, last_line_, last_end_col_),
                    fmt::format("expected {}, found the end of the {}", what, at_end() ? "text" : "line"));
  }
  throw UserError(here(), at_end() ? fmt::format("expected {}, found the end of the text", what)
                                   : fmt::format("expected {}, found '{}'", what, token_.text));
}

void Lexer::fail_unknown(const Token& token, const std::string& message, const std::vector<std::string>& candidates) const {
  std::string_view spelling = token.text;
  if (token.kind == TokenKind::value) spelling.remove_prefix(1);
  const std::string nearest = nearest_name(spelling, candidates);
  fail(token, nearest.empty() ? message : fmt::format("{}; did you mean '{}'?", message, nearest));
}

std::string Lexer::unquoted(const Token& token, std::string_view literal) const {
  std::string out;
  if (!unquote(literal, out)) fail(token, fmt::format("bad escape in {} (known: \\\" \\\\ \\n \\t \\xNN)", literal));
  return out;
}

void Lexer::skip_blanks() {
  for (;; ++pos_) {
    const char c = at_offset(pos_);
    if (c == '\n') {
      ++line_;
      line_start_ = pos_ + 1;
    } else if (c == '/' && at_offset(pos_ + 1) == '/') {
      while (pos_ + 1 < text_.size() && text_[pos_ + 1] != '\n') ++pos_;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
  }
}

void Lexer::advance() {
  skip_blanks();
  const size_t start = pos_;
  token_ = Token{TokenKind::end, text_.substr(start, 0), line_, static_cast<int>(start - line_start_) + 1, false};
  if (start >= text_.size()) return;
  const char c = text_[start];
  if (is_letter(c)) {
    token_.kind = TokenKind::word;
    lex_word();
  } else if (c == '"') {
    token_.kind = TokenKind::text;
    lex_quoted(start);
  } else if (c == '%') {
    token_.kind = TokenKind::value;
    ++pos_;
    if (at_offset(pos_) == '"') {
      lex_quoted(pos_);
    } else {
      lex_word();
    }
    if (pos_ == start + 1) fail(token_, "expected a name behind %");
  } else if (is_digit(c) || (c == '-' && pos_ + 1 < text_.size())) {
    lex_number();
  } else {
    token_.kind = TokenKind::punct;
    pos_ += c == '.' && at_offset(pos_ + 1) == '.' ? 2 : 1;
    // A character outside ASCII is one token, so that messages show it whole.
    while (static_cast<unsigned char>(c) >= 0xc0 && (static_cast<unsigned char>(at_offset(pos_)) & 0xc0u) == 0x80u) ++pos_;
  }
  token_.text = text_.substr(start, pos_ - start);
}

void Lexer::lex_word() {
  while (is_name_char(at_offset(pos_))) ++pos_;
}

void Lexer::lex_number() {
  token_.kind = TokenKind::number;
  if (text_[pos_] == '-') ++pos_;
  std::string_view rest = text_.substr(pos_);
  if (rest.starts_with("inf") || rest.starts_with("nan")) {
    pos_ += 3;
    return;
  }
  if (!is_digit(at_offset(pos_))) {
    token_.kind = TokenKind::punct;
    return;
  }
  while (is_digit(at_offset(pos_))) ++pos_;
  if (at_offset(pos_) == '.' && at_offset(pos_ + 1) != '.') {
    ++pos_;
    while (is_digit(at_offset(pos_))) ++pos_;
  }
  const char e = at_offset(pos_);
  if (e == 'e' || e == 'E') {
    const size_t sign = at_offset(pos_ + 1) == '-' || at_offset(pos_ + 1) == '+' ? 2 : 1;
    if (is_digit(at_offset(pos_ + sign))) {
      pos_ += sign;
      while (is_digit(at_offset(pos_))) ++pos_;
    }
  }
}

void Lexer::lex_quoted(size_t quote) {
  for (pos_ = quote + 1; pos_ < text_.size() && text_[pos_] != '\n'; ++pos_) {
    if (text_[pos_] == '\\') {
      if (pos_ + 1 < text_.size() && text_[pos_ + 1] != '\n') ++pos_;
    } else if (text_[pos_] == '"') {
      ++pos_;
      return;
    }
  }
  fail(token_, "no closing quote on this line");
}

}  // namespace ingot::ir
