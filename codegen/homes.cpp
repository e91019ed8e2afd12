#include "codegen/homes.h"

#include <algorithm>
#include <map>

#include "ir/graph/interpret.h"
#include "ir/graph/op_def.h"

namespace ingot::codegen {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

bool is_source(const Op& op) { return ir::lowering_as<ir::SourceLowering>(op) != nullptr; }

class HomeFinder {
 public:
  explicit HomeFinder(const Graph& graph) : graph_(graph), end_(static_cast<OpId>(graph.ops().size())) {}

  Homes run() {
    mark_live();
    find_roots();
    find_readers();
    for (const Op& op : graph_.ops()) source_homes(op);
    for (size_t i = 0; i < graph_.updates().size(); ++i) {
      if (!update_in_place(graph_.updates()[i])) copy_update(i);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (!own_output(graph_.outputs()[i].value)) homes_.output_copies.push_back(i);
    }
    for (OpId id = 0; id < end_; ++id) alias_temps(id);
    return std::move(homes_);
  }

 private:
  void mark_live() {
    homes_.live.assign(graph_.ops().size(), false);
    homes_.used.assign(graph_.values().size(), false);
    const auto use = [&](ValueId value) {
      homes_.used[value] = true;
      homes_.live[graph_.value(value).op] = true;
    };
    for (const auto& output : graph_.outputs()) use(output.value);
    for (const auto& update : graph_.updates()) use(update.value);
    for (OpId id = end_; id-- > 0;) {
      if (!homes_.live[id]) continue;
      for (const ValueId operand : graph_.op(id).operands) {
        if (operand != kNone) use(operand);
      }
    }
  }

  void find_roots() {
    homes_.root.resize(graph_.values().size());
    homes_.offset.assign(graph_.values().size(), 0);
    homes_.home.resize(graph_.values().size());
    for (ValueId v = 0; v < graph_.values().size(); ++v) {
      homes_.root[v] = v;
      homes_.home[v].owner = v;
      const Op& op = graph_.maker(v);
      if (const std::string variable = variable_of(op); !variable.empty()) {
        homes_.root[v] = variables_.emplace(variable, v).first->second;  // read twice, it is still one
      } else if (const auto* view = ir::lowering_as<ir::ViewLowering>(op)) {
        const ValueId from = op.operands[0];
        const ir::View map = view->map(graph_.type(from), graph_.type(v), op.attrs);
        if (!map.contiguous() || constant_of(graph_, homes_.root[from])) continue;
        homes_.root[v] = homes_.root[from];
        homes_.offset[v] = homes_.offset[from] + map.offset * ir::dtype_bytes(graph_.type(v).dtype);
      }
    }
  }

  // The op a value's storage is really read by: views read nothing themselves.
  bool is_view(OpId id) const {
    const Op& op = graph_.op(id);
    return op.results.size() == 1 && ir::lowering_as<ir::ViewLowering>(op) && homes_.root[op.results[0]] != op.results[0];
  }

  void find_readers() {
    readers_.resize(graph_.values().size());
    for (OpId id = 0; id < end_; ++id) {
      if (!homes_.live[id] || is_view(id)) continue;
      for (const ValueId operand : graph_.op(id).operands) {
        if (operand != kNone) readers_[homes_.root[operand]].push_back(id);
      }
    }
    ends_.assign(graph_.values().size(), 0);
    for (const auto& output : graph_.outputs()) ++ends_[homes_.root[output.value]];
    for (const auto& update : graph_.updates()) ++ends_[homes_.root[update.value]];
  }

  void source_homes(const Op& op) {
    for (const ValueId result : op.results) {
      Home& home = homes_.home[result];
      home.variable = variable_of(op);
      if (!home.variable.empty()) {
        home.kind = Home::Kind::variable;
      } else if (is_source(op)) {
        home.kind = Home::Kind::input;
      } else if (constant_of(graph_, result)) {
        home.kind = Home::Kind::constant;
      }
    }
  }

  // Does the value hold all of its root's bytes?
  bool whole(ValueId value) const {
    const ValueId root = homes_.root[value];
    return homes_.offset[value] == 0 && graph_.type(value).bytes() == graph_.type(root).bytes() &&
           graph_.type(value).dtype == graph_.type(root).dtype;
  }

  // Storage still undecided: made by a call of this program, bound to nothing yet.
  bool free(ValueId root) const { return homes_.home[root].kind == Home::Kind::temp && homes_.home[root].owner == root; }

  // May `op` write this result over operand storage `root`? Only as allowed_aliases says, and only if that storage is no other
  // operand of it as well.
  bool may_alias(const Op& op, uint32_t result, ValueId root) const {
    const std::vector<ir::Alias> aliases = allowed_aliases(graph_, op);
    int times = 0;
    bool declared = false;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId operand = op.operands[i];
      if (operand == kNone || homes_.root[operand] != root) continue;
      ++times;
      const bool named = std::any_of(aliases.begin(), aliases.end(), [&](const ir::Alias& alias) {
        return alias.result == static_cast<int>(result) && alias.operand == static_cast<int>(i);
      });
      declared |= named && whole(operand) && graph_.type(operand) == graph_.type(op.results[result]);
    }
    return declared && times == 1;
  }

  // The new value is written straight into the variable when nobody reads the old one any more, its maker included unless it
  // may write over it.
  bool update_in_place(const ir::Update& update) {
    const ValueId root = homes_.root[update.value];
    if (!free(root) || !whole(update.value)) return false;
    const OpId writer = graph_.value(root).op;
    const auto old = variables_.find(update.variable);
    if (old != variables_.end()) {
      if (ends_[old->second] > 0) return false;
      for (const OpId reader : readers_[old->second]) {
        if (reader > writer) return false;
        if (reader == writer && !may_alias(graph_.op(writer), graph_.value(root).result, old->second)) return false;
      }
    }
    homes_.home[root].kind = Home::Kind::variable;
    homes_.home[root].variable = update.variable;
    return true;
  }

  void copy_update(size_t index) {
    const ir::Update& update = graph_.updates()[index];
    const Home& from = homes_.home_of(update.value);
    const bool to_itself = from.kind == Home::Kind::variable && from.variable == update.variable && whole(update.value);
    if (!to_itself) homes_.update_copies.push_back(index);
  }

  bool own_output(ValueId value) {
    Home& home = homes_.home[homes_.root[value]];
    if (!whole(value)) return false;
    if (home.kind == Home::Kind::output) return true;  // two names for one value
    if (!free(homes_.root[value])) return false;
    home.kind = Home::Kind::output;
    return true;
  }

  // A declared alias takes over the bytes of an operand that nobody needs afterwards.
  void alias_temps(OpId id) {
    const Op& op = graph_.op(id);
    if (!homes_.live[id]) return;
    std::vector<ValueId> taken;
    for (const ir::Alias& alias : op.def->aliases) {
      const ValueId result = op.results[alias.result];
      const ValueId operand = static_cast<size_t>(alias.operand) < op.operands.size() ? op.operands[alias.operand] : kNone;
      if (operand == kNone || !homes_.used[result] || !free(result)) continue;
      const ValueId root = homes_.root[operand];
      if (homes_.home[root].kind != Home::Kind::temp || ends_[root] > 0 || readers_[root].back() != id) continue;
      if (!may_alias(op, static_cast<uint32_t>(alias.result), root) || std::count(taken.begin(), taken.end(), root)) continue;
      taken.push_back(root);
      homes_.home[result].owner = homes_.home[root].owner;
    }
  }

  const Graph& graph_;
  const OpId end_;
  Homes homes_;
  std::map<std::string, ValueId> variables_;  ///< the value that is a variable's old contents
  std::vector<std::vector<OpId>> readers_;    ///< per root, ascending
  std::vector<int> ends_;                     ///< per root: outputs and updates that name it
};

}  // namespace

std::optional<double> constant_of(const Graph& graph, ValueId value) {
  const Op& op = graph.maker(value);
  if (!ir::lowering_as<ir::GenerateLowering>(op) || graph.type(value).rank() != 0) return std::nullopt;
  return ir::interpret_op(graph, op, {})[0].data[0];
}

std::string variable_of(const Op& op) {
  if (!is_source(op)) return "";
  const ir::Attr* name = op.attrs.find("name");
  return name ? std::get<std::string>(*name) : "";
}

std::vector<ir::Alias> allowed_aliases(const Graph& graph, const Op& op) {
  std::vector<ir::Alias> aliases = op.def->aliases;
  if (!ir::lowering_as<ir::ScalarLowering>(op)) return aliases;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    for (size_t r = 0; r < op.results.size(); ++r) {
      if (op.operands[i] != kNone && graph.type(op.operands[i]) == graph.type(op.results[r]))
        aliases.push_back({static_cast<int>(r), static_cast<int>(i)});
    }
  }
  return aliases;
}

Homes find_homes(const Graph& graph) { return HomeFinder(graph).run(); }

}  // namespace ingot::codegen
