#include "passes/group_keys.h"

#include <algorithm>

#include "ir/graph/op_def.h"

namespace ingot::passes {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

namespace {

size_t mix(size_t seed, size_t more) { return seed ^ (more + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2)); }

// Tags of the words of a key, so that no two bodies share one.
constexpr uint32_t kAbsent = 0, kKnown = 1u << 29, kInput = 2u << 29, kOp = 3u << 29, kStored = 4u << 29;

}  // namespace

size_t GroupKeys::Hash::operator()(const Key& key) const {
  size_t hash = key.size();
  for (uint32_t word : key) hash = mix(hash, word);
  return hash;
}

GroupKeys::GroupKeys(const Graph& graph, const Storage& storage)
    : graph_(graph), storage_(storage), written_(graph.values().size(), 0), number_(graph.values().size(), 0) {
  number_types();
  number_kinds();
}

void GroupKeys::number_types() {
  std::unordered_multimap<size_t, ValueId> seen;
  type_.resize(graph_.values().size());
  for (ValueId value = 0; value < type_.size(); ++value) {
    const ir::Type& type = graph_.type(value);
    size_t hash = static_cast<size_t>(type.dtype);
    for (int64_t size : type.shape) hash = mix(hash, static_cast<size_t>(size));
    const auto [first, last] = seen.equal_range(hash);
    const auto at = std::find_if(first, last, [&](const auto& entry) { return graph_.type(entry.second) == type; });
    type_[value] = at == last ? value : type_[at->second];
    if (at == last) seen.emplace(hash, value);
  }
}

void GroupKeys::number_kinds() {
  std::unordered_multimap<size_t, OpId> seen;
  kind_.resize(graph_.ops().size());
  for (OpId id = 0; id < kind_.size(); ++id) {
    const Op& op = graph_.op(id);
    size_t hash = std::hash<const void*>()(op.def);
    for (ValueId result : op.results) hash = mix(hash, type_[result]);
    const auto [first, last] = seen.equal_range(hash);
    const auto at = std::find_if(first, last, [&](const auto& entry) {
      const Op& other = graph_.op(entry.second);
      return other.def == op.def && other.results.size() == op.results.size() && other.attrs == op.attrs &&
             std::equal(op.results.begin(), op.results.end(), other.results.begin(),
                        [&](ValueId a, ValueId b) { return type_[a] == type_[b]; });
    });
    // Sources and regions have no body of their own to be compared: each is one of its kind, and never inside a group.
    const bool own = at == last || op.region;
    kind_[id] = own ? id : kind_[at->second];
    if (at == last) seen.emplace(hash, id);
  }
}

void GroupKeys::name(ValueId value) {
  written_[value] = turn_;
  number_[value] = next_++;
}

void GroupKeys::write(ValueId value) {
  if (value == kNone) return key_.push_back(kAbsent);
  if (written_[value] == turn_) return key_.push_back(kKnown | number_[value]);
  const OpId maker = graph_.value(value).op;
  if (!storage_.along(maker)) {
    key_.push_back(kInput | type_[value]);
    return name(value);
  }
  const Op& op = graph_.op(maker);
  for (ValueId operand : op.operands) write(operand);
  key_.push_back(kOp | kind_[maker]);
  for (ValueId result : op.results) name(result);
}

const GroupKeys::Key& GroupKeys::key(const std::vector<OpId>& ops, const std::function<bool(ValueId)>& stored) {
  key_.clear();
  next_ = 0;
  ++turn_;
  for (OpId id : ops) {
    const Op& op = graph_.op(id);
    for (ValueId operand : op.operands) write(operand);
    key_.push_back(kOp | kind_[id]);
    for (ValueId result : op.results) {
      name(result);
      if (stored(result)) key_.push_back(kStored | number_[result]);
    }
  }
  return key_;
}

}  // namespace ingot::passes
