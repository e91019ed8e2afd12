// Reading nodes of the tree: texts, names, lists and one-line expressions, each refused with a sentence when it is not that.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/pieces.h"
#include "models/report.h"
#include "models/yaml.h"

namespace ingot::models {

/// Reports every key of the map that is not among `known`.
void check_keys(const Node& map, std::string_view where, std::initializer_list<std::string_view> known, Report& report);

/// The value of a key when it is there and of that kind; another kind is reported (`shape` says what is expected).
const Node* get(const Node& map, std::string_view key, NodeKind kind, std::string_view shape, Report& report);

/// The text of a place that takes an expression: plain, one line, outside flow maps unless it is a number or a name.
/// Throws a located UserError that says what is wrong. `entry_loc` is used for a missing value.
Piece expression_piece(const Node& node, ir::Loc entry_loc, std::string_view what);
ir::ExprPtr expression(const Node& node, ir::Loc entry_loc, std::string_view what);
/// Splits `TEXT when CONDITION`; `when` stays empty without one.
Piece split_when(Piece text, ir::ExprPtr& when);

/// `a, b` or a list of names.
std::vector<Word> names(const Node& node, ir::Loc entry_loc, std::string_view what);
/// A list of texts (patterns), or one text.
std::vector<Word> texts(const Node& node, ir::Loc entry_loc, std::string_view what);
/// Any scalar's text.
Word text(const Node& node, ir::Loc entry_loc, std::string_view what);
double number(const Node& node, ir::Loc entry_loc, std::string_view what);
/// Throws unless the word is an identifier without a meaning of its own.
void check_name(const Word& word, std::string_view what);

}  // namespace ingot::models
