#include "models/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>

#include "ir/base/error.h"
#include "ir/base/text.h"

namespace ingot::models {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMostNodes = 50000;  // with every alias counted in full
constexpr int kMostLevels = 64;       // yaml-cpp recurses once per level

/// The file's bytes by line, for the checks before yaml-cpp sees it and for exact columns.
class Lines {
 public:
  Lines(const std::string& text, const std::string& file) : file_(file) {
    size_t at = 0;
    while (at <= text.size()) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines_.push_back(std::string_view(text).substr(at, end - at));
      if (!lines_.back().empty() && lines_.back().back() == '\r') lines_.back().remove_suffix(1);
      at = end + 1;
    }
  }

  size_t count() const { return lines_.size(); }
  std::string_view line(size_t i) const { return lines_[i]; }
  ir::Loc loc(size_t line, size_t column) const {
    return ir::make_loc(file_, static_cast<int>(line + 1), static_cast<int>(column + 1));
  }
  char at(size_t line, size_t column) const {
    return line < lines_.size() && column < lines_[line].size() ? lines_[line][column] : '\0';
  }
  bool holds(size_t line, size_t column, std::string_view text) const {
    return line < lines_.size() && column <= lines_[line].size() && lines_[line].substr(column).starts_with(text);
  }

 private:
  std::string file_;
  std::vector<std::string_view> lines_;
};

/// How deep this line can nest by its layout: the column of its first content, and the indicators before it.
void check_layout(const Lines& lines, size_t i, int& brackets) {
  const std::string_view line = lines.line(i);
  size_t column = line.find_first_not_of(" -?:");
  if (column == std::string_view::npos) column = line.size();
  if (column < line.size() && line[column] == '#') return;
  if (column > 2 * kMostLevels) throw ir::UserError(lines.loc(i, 0), "this line nests too deep");
  for (size_t c = 0; c < line.size(); ++c) {
    if (line[c] == '#' && (c == 0 || line[c - 1] == ' ')) break;
    if (line[c] == '\t') throw ir::UserError(lines.loc(i, c), "a tab; indent and separate with spaces");
  }
  // Brackets are counted wherever they stand: what looks like a comment may be inside a string.
  for (size_t c = 0; c < line.size(); ++c) {
    if (line[c] == '[' || line[c] == '{') ++brackets;
    if ((line[c] == ']' || line[c] == '}') && brackets > 0) --brackets;
    if (brackets > kMostLevels) throw ir::UserError(lines.loc(i, c), fmt::format("brackets nest more than {} deep", kMostLevels));
  }
}

void check_bytes(const std::string& text, const Lines& lines) {
  const ir::Loc start = lines.loc(0, 0);
  if (text.size() > kMostBytes)
    throw ir::UserError(start, fmt::format("this file has {} bytes; a model file has at most {}", text.size(), kMostBytes));
  if (text.find_first_not_of(" \r\n") == std::string::npos) throw ir::UserError(start, "this file is empty");
  if (text.starts_with("\xef\xbb\xbf"))
    throw ir::UserError(start, "this file begins with a byte order mark; save it as plain UTF-8");
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    throw ir::UserError(start, "this file is UTF-16; save it as UTF-8");
  int brackets = 0;
  for (size_t i = 0; i < lines.count(); ++i) {
    const size_t control = lines.line(i).find_first_of(std::string_view("\0\r", 2));
    if (control != std::string_view::npos) {
      throw ir::UserError(lines.loc(i, control), lines.line(i)[control] == '\0' ? "a zero byte; this is not a text file"
                                                                                : "a carriage return inside a line");
    }
    if (!ir::valid_utf8(lines.line(i))) throw ir::UserError(lines.loc(i, 0), "this line is not valid UTF-8");
    check_layout(lines, i, brackets);
  }
}

/// Builds the tree from yaml-cpp's events, which carry a mark for everything (its own tree loses the aliases' marks and the
/// duplicate keys).
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const Lines& lines, Report& report) : lines_(lines), report_(report) {}

  NodePtr root() const { return root_; }
  int documents() const { return documents_; }
  ir::Loc second_document() const { return second_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2) second_ = loc(mark);
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(mark, anchor, NodeKind::null, "", ""); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    leaf(mark, anchor, NodeKind::scalar, tag, value);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) throw ir::UserError(loc(mark), "this alias refers to what it is part of");
    add(it->second, loc(mark));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(mark, tag, anchor, NodeKind::list, style);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(mark, tag, anchor, NodeKind::map, style);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    std::shared_ptr<Node> node;
    YAML::anchor_t anchor;
    NodePtr key;
    bool flow;
  };

  ir::Loc loc(const YAML::Mark& mark) const {
    return lines_.loc(static_cast<size_t>(mark.line), static_cast<size_t>(mark.column));
  }

  static void refuse_tag(const std::string& tag, const ir::Loc& at) {
    if (!tag.empty() && tag != "?" && tag != "!")
      throw ir::UserError(at, fmt::format("the tag {} means nothing in a model file", tag));
  }

  void leaf(const YAML::Mark& mark, YAML::anchor_t anchor, NodeKind kind, const std::string& tag, const std::string& value) {
    auto node = std::make_shared<Node>();
    node->kind = kind;
    node->loc = loc(mark);
    node->text = value;
    node->plain = tag == "?";
    node->exact = node->plain && lines_.holds(static_cast<size_t>(mark.line), static_cast<size_t>(mark.column), value);
    node->mark = node->plain ? '\0' : lines_.at(static_cast<size_t>(mark.line), static_cast<size_t>(mark.column));
    node->flow = !stack_.empty() && stack_.back().flow;
    refuse_tag(tag, node->loc);
    if (anchor) anchors_[anchor] = node;
    add(node, node->loc);
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, NodeKind kind,
            YAML::EmitterStyle::value style) {
    auto node = std::make_shared<Node>();
    node->kind = kind;
    node->loc = loc(mark);
    const bool flow = style == YAML::EmitterStyle::Flow || (!stack_.empty() && stack_.back().flow);
    node->flow = flow;
    refuse_tag(tag, node->loc);
    stack_.push_back({node, anchor, nullptr, flow});
  }

  void close() {
    const Open done = stack_.back();
    stack_.pop_back();
    if (done.anchor) anchors_[done.anchor] = done.node;
    add(done.node, done.node->loc);
  }

  void add(const NodePtr& node, const ir::Loc& at) {
    if (stack_.empty()) {
      root_ = node;
      return;
    }
    Open& top = stack_.back();
    top.node->size += node->size;
    if (top.node->size > kMostNodes)
      throw ir::UserError(at, fmt::format("with its aliases expanded this file has more than {} values", kMostNodes));
    if (top.node->kind == NodeKind::list) {
      top.node->items.push_back(node);
    } else if (!top.key) {
      if (node->kind != NodeKind::scalar) throw ir::UserError(at, "a key is a name");
      top.key = node;
    } else {
      entry(*top.node, top.key, node);
      top.key = nullptr;
    }
  }

  void entry(Node& map, const NodePtr& key, const NodePtr& value) {
    if (key->text == "<<" && key->plain) {
      report_.error(key->loc, "merge keys (<<) are not part of the language; `extends` starts from another file");
    } else if (const NodeEntry* first = map.find(key->text)) {
      report_.error(key->loc, fmt::format("`{}` is given twice (first at line {})", key->text, first->key->loc.line),
                    {{first->key->loc, "first given here"}});
    } else {
      map.entries.push_back({key, value, {}});
    }
  }

  const Lines& lines_;
  Report& report_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, NodePtr> anchors_;
  NodePtr root_;
  int documents_ = 0;
  ir::Loc second_;
};

std::string plain_words(const std::string& message) {
  if (message == "illegal map value")
    return "a `:` with a space after it cannot stand inside a value; quote names, split statements";
  if (message == "end of map not found" || message == "end of sequence not found")
    return "the indentation does not fit the lines above";
  if (message == "end of sequence flow not found") return "a `[` is never closed";
  if (message == "end of map flow not found") return "a `{` is never closed";
  return message;
}

}  // namespace

const NodeEntry* Node::find(std::string_view key) const {
  for (const NodeEntry& entry : entries) {
    if (entry.key->text == key) return &entry;
  }
  return nullptr;
}

NodePtr parse_yaml(const std::string& text, const std::string& file, Report& report) {
  const Lines lines(text, file);
  check_bytes(text, lines);
  TreeBuilder tree(lines, report);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(tree)) {
      if (tree.documents() > 1) throw ir::UserError(tree.second_document(), "a second document; a model file holds one");
    }
  } catch (const YAML::ParserException& e) {
    const ir::Loc at =
        e.mark.is_null() ? lines.loc(0, 0) : lines.loc(static_cast<size_t>(e.mark.line), static_cast<size_t>(e.mark.column));
    throw ir::UserError(at, fmt::format("not valid YAML: {}", plain_words(e.msg)));
  }
  const NodePtr root = tree.root();
  if (!root || root->kind == NodeKind::null) throw ir::UserError(lines.loc(0, 0), "this file is empty");
  if (root->kind != NodeKind::map)
    throw ir::UserError(root->loc, "a model file is a map of sections (config, inputs, params, graph, and others)");
  return root;
}

}  // namespace ingot::models
