// Tokens of the expression language. Internal to ir/base/expr_*.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/loc.h"

namespace ingot::ir {

enum class TokenKind : uint8_t { number, name, text, symbol, end };

struct Token {
  TokenKind kind = TokenKind::end;
  Loc loc;
  std::string text;  ///< name, symbol, string contents, or the number as written
  double number = 0;
  bool is_integer = false;

  bool is(std::string_view symbol) const { return kind == TokenKind::symbol && text == symbol; }
  bool is_word(std::string_view word) const { return kind == TokenKind::name && text == word; }
};

/// Every token of the text, an `end` token last. Located UserError for a character or number that is none.
std::vector<Token> lex_expr(std::string_view text, Loc start);

/// "`name`", "the end of the line", ... for messages.
std::string token_text(const Token& token);

}  // namespace ingot::ir
