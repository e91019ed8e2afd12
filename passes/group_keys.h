// Sets of ops that would make the same region have the same key: what is known of one layer's groups is known of every equal
// layer.
#pragma once
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "ir/graph/graph.h"
#include "passes/storage.h"

namespace ingot::passes {

class GroupKeys {
 public:
  using Key = std::vector<uint32_t>;
  GroupKeys(const ir::Graph& graph, const Storage& storage);

  /// The body that these ops (sorted) would make, as numbers: ops by kind, values in the order of their first use, and which
  /// results are stored. Names, places and phases do not count.
  const Key& key(const std::vector<ir::OpId>& ops, const std::function<bool(ir::ValueId)>& stored);

  struct Hash {
    size_t operator()(const Key& key) const;
  };

 private:
  void number_types();
  void number_kinds();
  void write(ir::ValueId value);
  void name(ir::ValueId value);

  const ir::Graph& graph_;
  const Storage& storage_;
  std::vector<uint32_t> type_, kind_;  ///< per value; per op: definition, attributes and types of results
  Key key_;
  // Values written into the key at hand, and their numbers in it.
  uint32_t turn_ = 0, next_ = 0;
  std::vector<uint32_t> written_, number_;
};

}  // namespace ingot::passes
