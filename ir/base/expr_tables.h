// Operator precedence of the expression language, shared by its parser and its printer. Internal to ir/base/expr_*.cpp.
#pragma once
#include <string_view>

namespace ingot::ir {

struct BinaryOperator {
  std::string_view text;
  int precedence = 0;
  bool comparison = false;
};

inline constexpr int kNotPrecedence = 3;
inline constexpr int kUnaryPrecedence = 7;
inline constexpr int kPrimaryPrecedence = 8;

inline constexpr BinaryOperator kBinaryOperators[] = {
    {"or", 1},       {"and", 2}, {"<", 4, true}, {"<=", 4, true}, {">", 4, true}, {">=", 4, true}, {"==", 4, true},
    {"!=", 4, true}, {"+", 5},   {"-", 5},       {"*", 6},        {"/", 6},       {"%", 6},        {"@", 6}};

inline const BinaryOperator* find_binary_operator(std::string_view text) {
  for (const BinaryOperator& op : kBinaryOperators) {
    if (op.text == text) return &op;
  }
  return nullptr;
}

}  // namespace ingot::ir
