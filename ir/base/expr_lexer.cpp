#include "ir/base/expr_lexer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "ir/base/error.h"
#include "ir/base/text.h"

namespace ingot::ir {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Lexer {
 public:
  Lexer(std::string_view text, Loc start) : text_(text), start_(start) {}

  std::vector<Token> run() {
    while (true) {
      while (at_ < text_.size() && text_[at_] == ' ') ++at_;
      if (at_ == text_.size()) break;
      const char c = text_[at_];
      if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
        number();
      } else if (is_letter(c)) {
        name();
      } else if (c == '"') {
        string();
      } else {
        symbol();
      }
    }
    tokens_.push_back({TokenKind::end, loc(at_), "", 0, false});
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  Loc loc(size_t offset) const {
    Loc l = start_;
    l.col += static_cast<int>(offset);
    return l;
  }

  [[noreturn]] void fail(size_t offset, std::string message) const { throw UserError(loc(offset), std::move(message)); }

  void digits() {
    while (is_digit(peek(0))) ++at_;
  }

  void number() {
    const size_t begin = at_;
    bool integer = true;
    digits();
    const size_t whole = at_ - begin;
    if (peek(0) == '.' && peek(1) != '.') {
      integer = false;
      ++at_;
      digits();
    }
    if ((peek(0) == 'e' || peek(0) == 'E') && (is_digit(peek(1)) || ((peek(1) == '-' || peek(1) == '+') && is_digit(peek(2))))) {
      integer = false;
      at_ += 2;
      digits();
    }
    if (is_letter(peek(0)) || is_digit(peek(0))) {
      while (is_letter(peek(0)) || is_digit(peek(0)) || peek(0) == '.') ++at_;
      fail(begin, fmt::format("`{}` is neither a number nor a name", text_.substr(begin, at_ - begin)));
    }
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (whole > 1 && word[0] == '0')
      fail(begin, fmt::format("`{}`: a number does not begin with 0 (octal is not meant here)", word));
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    // from_chars leaves the value unset when it is out of range; strtod tells too large from too small.
    if (error == std::errc::result_out_of_range) value = std::strtod(std::string(word).c_str(), nullptr);
    if (!std::isfinite(value) || (error != std::errc() && error != std::errc::result_out_of_range)) {
      fail(begin, fmt::format("`{}` is too large for a number", word));
    }
    tokens_.push_back({TokenKind::number, loc(begin), std::string(word), value, integer});
  }

  /// Letters, digits and _, in parts joined by dots; parts after the first may begin with a digit (blocks.0.ln0.weight).
  void name() {
    const size_t begin = at_;
    while (is_letter(peek(0)) || is_digit(peek(0)) || (peek(0) == '.' && (is_letter(peek(1)) || is_digit(peek(1))))) ++at_;
    if (peek(0) == '.' && peek(1) != '.') fail(at_, "a name does not end in a dot");
    tokens_.push_back({TokenKind::name, loc(begin), std::string(text_.substr(begin, at_ - begin)), 0, false});
  }

  void string() {
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) fail(begin, "this string has no closing quote");
    ++at_;
    Token token{TokenKind::text, loc(begin), "", 0, false};
    if (!unquote(text_.substr(begin, at_ - begin), token.text)) fail(begin, "malformed escape in this string");
    tokens_.push_back(std::move(token));
  }

  void symbol() {
    static constexpr std::string_view kTwo[] = {"<=", ">=", "==", "!="};
    static constexpr std::string_view kOne = "+-*/%@<>()[],=";
    static constexpr std::pair<std::string_view, std::string_view> kForeign[] = {{"**", "write pow(a, b)"},
                                                                                 {"//", "write floor(a / b)"},
                                                                                 {"&&", "write `and`"},
                                                                                 {"||", "write `or`"},
                                                                                 {"^", "write pow(a, b)"},
                                                                                 {"!", "write `not`"},
                                                                                 {"'", "strings stand in double quotes"},
                                                                                 {"?", "write select(condition, yes, no)"},
                                                                                 {"\t", "a tab; use spaces"}};
    const std::string_view rest = text_.substr(at_);
    for (std::string_view two : kTwo) {
      if (rest.starts_with(two)) return push_symbol(2);
    }
    for (const auto& [text, hint] : kForeign) {
      if (rest.starts_with(text))
        fail(at_, text == "\t" ? std::string(hint) : fmt::format("`{}` is not an operator here; {}", text, hint));
    }
    if (kOne.find(rest[0]) != std::string_view::npos) return push_symbol(1);
    size_t length = 1;  // the whole UTF-8 character
    while (length < rest.size() && (static_cast<unsigned char>(rest[length]) & 0xc0) == 0x80) ++length;
    fail(at_, fmt::format("unexpected character {}", quoted(rest.substr(0, length))));
  }

  void push_symbol(size_t length) {
    tokens_.push_back({TokenKind::symbol, loc(at_), std::string(text_.substr(at_, length)), 0, false});
    at_ += length;
  }

  std::string_view text_;
  Loc start_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex_expr(std::string_view text, Loc start) { return Lexer(text, start).run(); }

std::string token_text(const Token& token) {
  if (token.kind == TokenKind::end) return "the end";
  if (token.kind == TokenKind::text) return quoted(token.text);
  return "`" + token.text + "`";
}

}  // namespace ingot::ir
