#include "ir/graph/graph.h"

#include <algorithm>
#include <array>

#include "ir/base/error.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {

std::string_view level_name(Level level) {
  static constexpr std::array<std::string_view, 4> kNames{"model", "train", "core", "fused"};
  return kNames[static_cast<size_t>(level)];
}

std::string_view phase_name(Phase phase) {
  static constexpr std::array<std::string_view, 4> kNames{"forward", "recompute", "backward", "optimizer"};
  return kNames[static_cast<size_t>(phase)];
}

std::string_view Op::name() const { return def->name; }

ValueId Graph::find(std::string_view name) const {
  static_assert(kNone == NameIndex::kAbsent);
  return names_.find(name, values_);
}

const Output* Graph::find_output(std::string_view name) const {
  for (const Output& output : outputs_) {
    if (output.name == name) return &output;
  }
  return nullptr;
}

void Graph::reserve_like(const Graph& other) {
  ops_.reserve(other.ops_.size());
  values_.reserve(other.values_.size());
  names_.reserve(other.values_.size());
}

OpId Graph::append(Op op, std::vector<std::string> result_names, std::vector<Type> result_types) {
  check(result_names.size() == result_types.size(), "append: one name per result");
  for (ValueId operand : op.operands) check(operand == kNone || operand < values_.size(), "append: operand does not exist yet");
  const auto id = static_cast<OpId>(ops_.size());
  op.results.clear();
  op.results.reserve(result_names.size());
  for (size_t i = 0; i < result_names.size(); ++i) {
    const auto value = static_cast<ValueId>(values_.size());
    check(find(result_names[i]) == kNone, [&] { return "append: the name %" + result_names[i] + " is taken"; });
    names_.insert(result_names[i], value);
    values_.push_back({std::move(result_names[i]), std::move(result_types[i]), id, static_cast<uint32_t>(i)});
    op.results.push_back(value);
  }
  ops_.push_back(std::move(op));
  return id;
}

std::string Graph::unique_name(std::string_view wanted) const {
  std::string stem(wanted);
  if (!stem.empty() && find(stem) == kNone) return stem;
  // A number that is taken becomes another number.
  if (std::all_of(stem.begin(), stem.end(), [](char c) { return c >= '0' && c <= '9'; })) stem.clear();
  int& next = next_suffix_.try_emplace(stem, stem.empty() ? 0 : 2).first->second;
  for (;; ++next) {
    std::string name = stem.empty() ? std::to_string(next) : stem + "." + std::to_string(next);
    if (find(name) == kNone) return name;
  }
}

const Variable* Module::find_variable(std::string_view wanted) const {
  const auto at = std::find_if(variables.begin(), variables.end(), [&](const Variable& v) { return v.name == wanted; });
  return at == variables.end() ? nullptr : &*at;
}

const Graph* Module::find_graph(std::string_view wanted) const {
  const auto at = std::find_if(graphs.begin(), graphs.end(), [&](const Graph& g) { return g.name() == wanted; });
  return at == graphs.end() ? nullptr : &*at;
}

const Graph& Module::graph(std::string_view wanted) const {
  const Graph* found = find_graph(wanted);
  check(found, [&] { return "the module has no graph @" + std::string(wanted); });
  return *found;
}

void Module::set_graph(Graph graph) {
  for (Graph& existing : graphs) {
    if (existing.name() == graph.name()) {
      existing = std::move(graph);
      return;
    }
  }
  graphs.push_back(std::move(graph));
}

}  // namespace ingot::ir
