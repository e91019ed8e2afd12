#include "models/merge.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/base/error.h"

namespace ingot::models {
namespace {

NodePtr merge(const NodePtr& base, const NodePtr& over);

NodeEntry merge_entry(const NodeEntry& base, const NodeEntry& over) {
  if (base.value->kind == NodeKind::map && over.value->kind == NodeKind::map)
    return {over.key, merge(base.value, over.value), {}};
  NodeEntry entry = over;
  entry.replaced = base.replaced;
  entry.replaced.push_back(base.value);
  return entry;
}

NodePtr merge(const NodePtr& base, const NodePtr& over) {
  auto out = std::make_shared<Node>(*over);
  out->entries.clear();
  for (const NodeEntry& entry : base->entries) {
    const NodeEntry* mine = over->find(entry.key->text);
    out->entries.push_back(mine ? merge_entry(entry, *mine) : entry);
  }
  for (const NodeEntry& entry : over->entries) {
    if (!base->find(entry.key->text)) out->entries.push_back(entry);
  }
  return out;
}

NodePtr without(const NodePtr& node, std::string_view key) {
  auto out = std::make_shared<Node>(*node);
  std::erase_if(out->entries, [&](const NodeEntry& entry) { return entry.key->text == key; });
  return out;
}

}  // namespace

std::string read_file(const std::string& path, const ir::Loc& from) {
  const std::string where = from.known() ? fmt::format("cannot read {}", path) : fmt::format("{}: cannot read this file", path);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw ir::UserError(from, fmt::format("{}: it is a folder", where));
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ir::UserError(from, fmt::format("{}: {}", where, std::strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

NodePtr load_merged(const std::string& text, const std::string& file, std::map<std::string, std::string>& sources,
                    Report& report) {
  sources[file] = text;
  const NodePtr root = parse_yaml(text, file, report);
  const NodeEntry* extends = root->find("extends");
  if (!extends) return root;
  const Node& value = *extends->value;
  if (value.kind != NodeKind::scalar || value.text.empty()) {
    throw ir::UserError(value.kind == NodeKind::null ? extends->key->loc : value.loc,
                        "extends: the name of one file is expected");
  }
  const std::string path = (std::filesystem::path(file).parent_path() / value.text).lexically_normal().string();
  if (sources.contains(path)) throw ir::UserError(value.loc, fmt::format("extends: {} extends itself", path));
  const NodePtr base = load_merged(read_file(path, value.loc), path, sources, report);
  return merge(base, without(root, "extends"));
}

}  // namespace ingot::models
