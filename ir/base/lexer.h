// Tokens of the graph and plan text forms. Newlines separate nothing; comments run from // to the end of the line.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/loc.h"

namespace ingot::ir {

/// word: letters, digits, `_`, `.`, not beginning with a digit.   value: `%name` or `%"any name"`.   text: "quoted".
/// number: 3, -7, 1.5e-05, -inf, nan (inf and nan without a sign are words that also read as numbers).   punct: one character, or
/// `..`.
enum class TokenKind : uint8_t { end, word, value, text, number, punct };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  ///< as written, quotes and % included
  int line = 1, col = 1;
  bool starts_line = false;
};

/// One token of lookahead over a text that outlives the lexer. Every failure is a UserError located in the text.
class Lexer {
 public:
  /// UserError when the text is not valid UTF-8.
  Lexer(std::string_view text, std::string_view file);

  const Token& peek() const { return token_; }
  bool at_end() const { return token_.kind == TokenKind::end; }
  /// Is the next token this word or punctuation?
  bool at(std::string_view spelling) const;
  bool at(TokenKind kind) const { return token_.kind == kind; }
  Token take();
  /// Takes the next token when it is this word or punctuation.
  bool accept(std::string_view spelling);
  /// Takes it, or fails with "expected '=' after ..., found ...".
  Token expect(std::string_view spelling, std::string_view why);

  /// Typed reads; `what` names the thing for messages ("the name of the graph").
  std::string word(std::string_view what);
  std::string name(std::string_view what);        ///< a word or a quoted text
  std::string value_name(std::string_view what);  ///< without the %
  std::string quoted_text(std::string_view what);
  int64_t integer(std::string_view what);
  double real(std::string_view what);  ///< integers, inf and nan included
  bool at_number() const;              ///< does real() succeed here?
  bool boolean(std::string_view what);

  Loc loc(const Token& token) const;
  Loc here() const { return loc(token_); }
  /// "found ..." for the next token: names the end of the line or of the file when the token is not on this line.
  [[noreturn]] void fail_expected(std::string_view what) const;
  [[noreturn]] void fail(const Token& token, const std::string& message) const;
  /// "MESSAGE; did you mean 'x'?" at the token.
  [[noreturn]] void fail_unknown(const Token& token, const std::string& message,
                                 const std::vector<std::string>& candidates) const;

 private:
  void advance();
  void skip_blanks();
  void lex_word();
  void lex_number();
  void lex_quoted(size_t quote);
  char at_offset(size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }
  std::string unquoted(const Token& token, std::string_view literal) const;

  std::string_view text_;
  std::string file_;
  size_t pos_ = 0;
  size_t line_start_ = 0;
  int line_ = 1;
  Token token_;
  int last_line_ = 0, last_end_col_ = 0;  ///< just behind the token taken last; 0 = none taken yet
};

/// Can the name stand in a text without quotes?
bool is_plain_word(std::string_view name);
/// The name as word() or name() reads it: quoted when it must be.
std::string name_text(std::string_view name);
/// %name or %"any name".
std::string value_text(std::string_view name);

}  // namespace ingot::ir
