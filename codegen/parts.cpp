#include "codegen/parts.h"

#include <algorithm>
#include <map>

#include "codegen/target.h"
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

class PartFinder {
 public:
  explicit PartFinder(const Graph& graph) : graph_(graph), end_(static_cast<OpId>(graph.ops().size())) {}

  Parts run() {
    mark_live();
    find_views();
    find_ends();
    parts_.packed.assign(graph_.ops().size(), false);
    for (OpId id = 0; id < end_; ++id) {
      if (parts_.live[id] && joins_runs(graph_, graph_.op(id))) pack(id);
    }
    return std::move(parts_);
  }

 private:
  void mark_live() {
    parts_.live.assign(graph_.ops().size(), false);
    parts_.used.assign(graph_.values().size(), false);
    const auto use = [&](ValueId value) {
      parts_.used[value] = true;
      parts_.live[graph_.value(value).op] = true;
    };
    for (const auto& output : graph_.outputs()) use(output.value);
    for (const auto& update : graph_.updates()) use(update.value);
    for (OpId id = end_; id-- > 0;) {
      if (!parts_.live[id]) continue;
      for (const ValueId operand : graph_.op(id).operands) {
        if (operand != kNone) use(operand);
      }
    }
  }

  void find_views() {
    parts_.root.resize(graph_.values().size());
    parts_.offset.assign(graph_.values().size(), 0);
    parts_.shown.assign(graph_.values().size(), false);
    parts_.pieces.resize(graph_.values().size());
    members_.resize(graph_.values().size());
    std::map<std::string, ValueId> variables;
    for (ValueId v = 0; v < graph_.values().size(); ++v) {
      parts_.root[v] = v;
      const Op& op = graph_.maker(v);
      if (const std::string variable = variable_of(op); !variable.empty()) {
        parts_.root[v] = variables.emplace(variable, v).first->second;  // read twice, it is still one
      } else if (const auto* view = ir::lowering_as<ir::ViewLowering>(op)) {
        const ValueId from = op.operands[0];
        const ir::View map = view->map(graph_.type(from), graph_.type(v), op.attrs);
        const int64_t offset = parts_.offset[from] + map.offset * ir::dtype_bytes(graph_.type(v).dtype);
        if (map.contiguous() && !constant_of(graph_, parts_.root[from]) && offset % kArgumentAlignment == 0) {
          parts_.shown[v] = true;
          parts_.root[v] = parts_.root[from];
          parts_.offset[v] = offset;
        }
      }
      if (parts_.root[v] == v) parts_.pieces[v] = {v};
      members_[parts_.root[v]].push_back(v);
    }
  }

  void find_ends() {
    is_output_.assign(graph_.values().size(), false);
    is_updated_.assign(graph_.values().size(), false);
    for (const auto& output : graph_.outputs()) is_output_[parts_.root[output.value]] = true;
    for (const auto& update : graph_.updates()) is_updated_[parts_.root[update.value]] = true;
  }

  // Made by a call that may write it anywhere, and whole.
  bool movable(ValueId value) const {
    const ValueId root = parts_.root[value];
    return parts_.whole(graph_, value) && !is_source(graph_.maker(root)) && !spread_constant(graph_, root) && !is_output_[root];
  }

  void pack(OpId id) {
    const Op& op = graph_.op(id);
    const ValueId result = op.results[0];
    const bool all_updated = std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId operand) {
      return spread_constant(graph_, operand) || is_updated_[parts_.root[operand]];
    });
    int64_t at = 0;
    for (const ValueId operand : op.operands) {
      const ValueId root = parts_.root[operand];
      const bool aligned = at % kArgumentAlignment == 0;
      if (root != result && aligned && movable(operand) && (all_updated || !is_updated_[root])) {
        take(root, result, at);
        take_what_it_starts_from(root, result, at);
        parts_.packed[id] = true;
      }
      at += graph_.type(operand).bytes();
    }
    if (all_updated && parts_.packed[id]) is_updated_[result] = true;
  }

  // A sum that its maker writes over what it adds to stands where that stood: so that belongs there too.
  void take_what_it_starts_from(ValueId value, ValueId pack, int64_t at) {
    for (;;) {
      const Op& op = graph_.maker(value);
      const auto alias = std::find_if(op.def->aliases.begin(), op.def->aliases.end(), [&](const ir::Alias& a) {
        return op.results[static_cast<size_t>(a.result)] == value && static_cast<size_t>(a.operand) < op.operands.size();
      });
      const ValueId start = alias == op.def->aliases.end() ? kNone : op.operands[static_cast<size_t>(alias->operand)];
      if (start == kNone || !(graph_.type(start) == graph_.type(value)) || !movable(start)) return;
      const ValueId root = parts_.root[start];
      if (root == pack || is_updated_[root] || reads(root) != 1) return;
      take(root, pack, at);
      value = root;
    }
  }

  // How many operands of calls show any of these bytes.
  int reads(ValueId root) const {
    int count = 0;
    for (OpId id = 0; id < end_; ++id) {
      const Op& op = graph_.op(id);
      if (!parts_.live[id] || parts_.shown[op.results[0]]) continue;
      for (const ValueId operand : op.operands) count += operand != kNone && parts_.root[operand] == root;
    }
    return count;
  }

  // From here on `root` and all that were its parts are parts of `pack`.
  void take(ValueId root, ValueId pack, int64_t at) {
    for (const ValueId member : members_[root]) {
      parts_.root[member] = pack;
      parts_.offset[member] += at;
    }
    const auto move = [](std::vector<ValueId>& from, std::vector<ValueId>& to) {
      to.insert(to.end(), from.begin(), from.end());
      from.clear();
    };
    move(members_[root], members_[pack]);
    move(parts_.pieces[root], parts_.pieces[pack]);
  }

  const Graph& graph_;
  const OpId end_;
  Parts parts_;
  std::vector<std::vector<ValueId>> members_;  ///< per root: its parts, itself included
  std::vector<bool> is_output_, is_updated_;   ///< per root: what outputs and updates name
};

}  // namespace

bool Parts::whole(const Graph& graph, ValueId value) const {
  const ir::Type &mine = graph.type(value), &all = graph.type(root[value]);
  return offset[value] == 0 && mine.bytes() == all.bytes() && mine.dtype == all.dtype;
}

Parts find_parts(const Graph& graph) { return PartFinder(graph).run(); }

bool joins_runs(const Graph& graph, const Op& op) {
  if (!ir::lowering_as<ir::PackLowering>(op)) return false;
  const ir::Shape& shape = graph.type(op.results[0]).shape;
  return std::all_of(shape.begin(), shape.begin() + op.attrs.integer("axis"), [](int64_t size) { return size == 1; });
}

std::optional<double> constant_of(const Graph& graph, ValueId value) {
  const Op& op = graph.maker(value);
  if (!ir::lowering_as<ir::GenerateLowering>(op) || graph.type(value).rank() != 0) return std::nullopt;
  return ir::interpret_op(graph, op, {})[0].data[0];
}

std::optional<double> spread_constant(const Graph& graph, ValueId value) {
  for (;;) {
    const Op& op = graph.maker(value);
    const auto* view = ir::lowering_as<ir::ViewLowering>(op);
    if (!view) return constant_of(graph, value);
    if (view->map(graph.type(op.operands[0]), graph.type(value), op.attrs).guard_axis >= 0) return std::nullopt;
    value = op.operands[0];
  }
}

std::string variable_of(const Op& op) {
  if (!is_source(op)) return "";
  const ir::Attr* name = op.attrs.find("name");
  return name ? std::get<std::string>(*name) : "";
}

}  // namespace ingot::codegen
