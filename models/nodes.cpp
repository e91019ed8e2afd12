#include "models/nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/base/error.h"

namespace ingot::models {
namespace {

std::string_view kind_text(NodeKind kind) {
  static constexpr std::string_view kNames[] = {"nothing", "one value", "a list", "a map"};
  return kNames[static_cast<size_t>(kind)];
}

[[noreturn]] void missing(ir::Loc loc, std::string_view what) {
  throw ir::UserError(loc, fmt::format("{}: the value is missing", what));
}

}  // namespace

void check_keys(const Node& map, std::string_view where, std::initializer_list<std::string_view> known, Report& report) {
  const std::vector<std::string> candidates(known.begin(), known.end());
  for (const NodeEntry& entry : map.entries) {
    const std::string& key = entry.key->text;
    if (std::find(candidates.begin(), candidates.end(), key) != candidates.end()) continue;
    std::string hint = did_you_mean(key, candidates);
    if (hint.empty()) hint = fmt::format(" (known: {})", fmt::join(candidates, ", "));
    report.error(entry.key->loc, fmt::format("unknown key `{}` in {}{}", key, where, hint));
  }
}

const Node* get(const Node& map, std::string_view key, NodeKind kind, std::string_view shape, Report& report) {
  const NodeEntry* entry = map.find(key);
  if (!entry) return nullptr;
  if (entry->value->kind == kind) return entry->value.get();
  const bool null = entry->value->kind == NodeKind::null;
  report.error(null ? entry->key->loc : entry->value->loc,
               fmt::format("`{}` is {}, not {}", key, shape, kind_text(entry->value->kind)));
  return nullptr;
}

Piece expression_piece(const Node& node, ir::Loc entry_loc, std::string_view what) {
  if (node.kind == NodeKind::null) missing(entry_loc, what);
  if (node.kind != NodeKind::scalar) {
    throw ir::UserError(node.loc, fmt::format("{} is an expression on one line, not {}", what, kind_text(node.kind)));
  }
  if (node.mark == '|' || node.mark == '>') {
    throw ir::UserError(node.loc, fmt::format("{} is an expression on one line, not folded text", what));
  }
  if (!node.plain) throw ir::UserError(node.loc, fmt::format("{} is an expression; write it without quotes", what));
  if (!node.exact)
    throw ir::UserError(node.loc, fmt::format("{} is an expression on one line; this one is folded over several", what));
  if (node.flow && !is_literal(node.text)) {
    throw ir::UserError(
        node.loc, "an expression cannot stand inside {...} or [...], where a comma would end it; give it a line of its own");
  }
  return piece(node.text, node.loc);
}

ir::ExprPtr expression(const Node& node, ir::Loc entry_loc, std::string_view what) {
  const Piece text = expression_piece(node, entry_loc, what);
  return ir::parse_expr(text.text, text.loc);
}

Piece split_when(Piece text, ir::ExprPtr& when) {
  const size_t at = find_outside(text.text, "when");
  if (at == std::string_view::npos) return text;
  const Piece condition = text.sub(at + 4);
  if (condition.empty()) throw ir::UserError(text.sub(at).loc, "a condition is missing after `when`");
  when = ir::parse_expr(condition.text, condition.loc);
  return text.sub(0, at);
}

std::vector<Word> names(const Node& node, ir::Loc entry_loc, std::string_view what) {
  std::vector<Word> out;
  if (node.kind == NodeKind::list) {
    for (const NodePtr& item : node.items) out.push_back(text(*item, entry_loc, what));
  } else {
    if (node.kind == NodeKind::null) missing(entry_loc, what);
    if (node.kind != NodeKind::scalar || !node.exact) {
      throw ir::UserError(node.loc, fmt::format("{}: names are expected on one line, for example x, y", what));
    }
    for (const Piece& part : split_outside(piece(node.text, node.loc), ",")) out.push_back({std::string(part.text), part.loc});
  }
  for (size_t i = 0; i < out.size(); ++i) {
    check_name(out[i], what);
    for (size_t k = 0; k < i; ++k) {
      if (out[k].text == out[i].text) throw ir::UserError(out[i].loc, fmt::format("{}: `{}` stands twice", what, out[i].text));
    }
  }
  return out;
}

std::vector<Word> texts(const Node& node, ir::Loc entry_loc, std::string_view what) {
  std::vector<Word> out;
  if (node.kind == NodeKind::list) {
    for (const NodePtr& item : node.items) out.push_back(text(*item, entry_loc, what));
  } else {
    out.push_back(text(node, entry_loc, what));
  }
  return out;
}

Word text(const Node& node, ir::Loc entry_loc, std::string_view what) {
  if (node.kind == NodeKind::null || (node.kind == NodeKind::scalar && node.text.empty())) missing(entry_loc, what);
  if (node.kind != NodeKind::scalar)
    throw ir::UserError(node.loc, fmt::format("{}: one text is expected, not {}", what, kind_text(node.kind)));
  return {node.text, node.loc};
}

double number(const Node& node, ir::Loc entry_loc, std::string_view what) {
  if (node.kind == NodeKind::scalar && !node.plain) {
    throw ir::UserError(node.loc, fmt::format("{} is a number; in quotes \"{}\" is text", what, node.text));
  }
  const ir::Constant value = ir::evaluate(*expression(node, entry_loc, what), {});
  if (!value.is_number()) throw ir::UserError(node.loc, fmt::format("{} is a number, not {}", what, ir::constant_text(value)));
  return value.number();
}

void check_name(const Word& word, std::string_view what) {
  if (word.text.empty()) throw ir::UserError(word.loc, fmt::format("{}: a name is missing", what));
  if (!is_identifier(word.text)) {
    throw ir::UserError(word.loc, fmt::format("{}: `{}` is not a name (letters, digits and _, no digit first)", what, word.text));
  }
  if (is_reserved(word.text))
    throw ir::UserError(word.loc, fmt::format("{}: `{}` has a meaning of its own in the language", what, word.text));
}

}  // namespace ingot::models
