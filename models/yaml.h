// A YAML file as a located tree. The only file that includes yaml-cpp is yaml.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/loc.h"
#include "models/report.h"

namespace ingot::models {

struct Node;
using NodePtr = std::shared_ptr<const Node>;

enum class NodeKind : uint8_t { null, scalar, list, map };

struct NodeEntry {
  NodePtr key, value;
  std::vector<NodePtr> replaced;  ///< what the files this one extends said for this key
};

struct Node {
  NodeKind kind = NodeKind::null;
  ir::Loc loc;
  std::string text;    ///< scalars
  bool plain = false;  ///< a scalar without quotes
  char mark = 0;       ///< the first byte of a scalar that is not plain: one of " ' | >
  bool exact = false;  ///< a plain scalar whose text stands in the file as it is, on one line: columns can be counted
  bool flow = false;   ///< inside [...] or {...}
  std::vector<NodePtr> items;
  std::vector<NodeEntry> entries;
  size_t size = 1;  ///< nodes below and including this one, aliases counted in full

  const NodeEntry* find(std::string_view key) const;
};

/// Parses one document whose root is a map. A file that is not YAML, or that hides things (other encodings, tabs, several
/// documents, alias bombs, hostile nesting), is one located UserError; duplicate keys go to `report`.
NodePtr parse_yaml(const std::string& text, const std::string& file, Report& report);

}  // namespace ingot::models
