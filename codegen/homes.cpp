#include "codegen/homes.h"

#include <algorithm>
#include <functional>
#include <map>

#include "ir/graph/op_def.h"
#include "passes/algebra.h"
#include "passes/region.h"

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
  HomeFinder(const Graph& graph, const Layout& layout)
      : graph_(graph), layout_(layout), end_(static_cast<OpId>(graph.ops().size())) {
    static_cast<Parts&>(homes_) = find_parts(graph);
  }

  Homes run() {
    homes_.home.resize(graph_.values().size());
    homes_.zero_gaps.assign(graph_.values().size(), false);
    homes_.joins.assign(graph_.ops().size(), false);
    for (ValueId v = 0; v < graph_.values().size(); ++v) homes_.home[v].owner = v;
    for (const Op& op : graph_.ops()) source_homes(op);
    for (OpId id = 0; id < end_; ++id) join_variables(id);
    find_readers();
    place_updates();
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (!own_output(graph_.outputs()[i].value)) homes_.output_copies.push_back(i);
    }
    for (OpId id = 0; id < end_; ++id) alias_temps(id);
    return std::move(homes_);
  }

 private:
  bool whole(ValueId value) const { return homes_.whole(graph_, value); }
  int64_t bytes(ValueId value) const { return graph_.type(value).bytes(); }

  void source_homes(const Op& op) {
    for (const ValueId result : op.results) {
      Home& home = homes_.home[result];
      home.variable = variable_of(op);
      if (!home.variable.empty()) {
        home.kind = Home::Kind::variable;
        variables_.emplace(home.variable, homes_.root[result]);
      } else if (is_source(op)) {
        home.kind = Home::Kind::input;
      } else if (constant_of(graph_, result)) {
        home.kind = Home::Kind::constant;
      }
    }
  }

  // ---- packs of variables

  // A pack of variables that lie so, with zeros where zeros stand, is a view over all of them.
  void join_variables(OpId id) {
    const Op& op = graph_.op(id);
    if (!homes_.live[id] || homes_.packed[id] || !joins_runs(graph_, op)) return;
    std::vector<ValueId> roots;
    int64_t at = 0;
    Layout::Place base;
    for (const ValueId operand : op.operands) {
      const ValueId root = homes_.root[operand];
      const Home& home = homes_.home[root];
      const bool variable = home.kind == Home::Kind::variable && !is_joined(root) && whole(operand);
      if (variable) {
        const Layout::Place place = layout_.place(home.variable);
        if (roots.empty()) base = {place.segment, place.offset - at};
        if (place.segment < 0 || place.segment != base.segment || place.offset != base.offset + at) return;
        roots.push_back(root);
      } else if (spread_constant(graph_, operand) != 0.0) {
        return;
      }
      at += bytes(operand);
    }
    if (roots.empty() || !covers(base, at, roots.size())) return;
    const std::string& first = homes_.home[roots[0]].variable;
    if (layout_.place(first).offset != base.offset) return;
    const ValueId result = op.results[0];
    homes_.home[result].kind = Home::Kind::variable;
    homes_.home[result].variable = first;
    homes_.joins[id] = true;
    joined_.emplace(result, std::move(roots));
  }

  // Do these bytes of a segment hold so many variables, no part of another one, and zeros beside them?
  bool covers(const Layout::Place& base, int64_t size, size_t variables) const {
    const Segment& segment = layout_.segments()[static_cast<size_t>(base.segment)];
    if (base.offset < 0 || base.offset + size > segment.bytes || !segment.zero_gaps) return false;
    const auto inside = [&](const Segment::Member& m) {
      return m.offset < base.offset + size && base.offset < m.offset + m.bytes;
    };
    return static_cast<size_t>(std::count_if(segment.members.begin(), segment.members.end(), inside)) == variables;
  }

  bool is_joined(ValueId root) const { return joined_.contains(root); }

  // Every root whose bytes an operand shows: its own, or the variables in a pack of them.
  template <class F>
  void each_root(ValueId operand, F f) const {
    const ValueId root = homes_.root[operand];
    f(root);
    const auto at = joined_.find(root);
    if (at == joined_.end()) return;
    for (const ValueId variable : at->second) f(variable);
  }

  // ---- readers

  // The op a value's storage is really read by: what only shows it reads nothing itself.
  bool is_view(OpId id) const { return homes_.joins[id] || homes_.shown[graph_.op(id).results[0]]; }

  void find_readers() {
    readers_.resize(graph_.values().size());
    homes_.read.assign(graph_.values().size(), false);
    for (OpId id = 0; id < end_; ++id) {
      if (!homes_.live[id] || is_view(id)) continue;
      for (const ValueId operand : graph_.op(id).operands) {
        if (operand == kNone) continue;
        each_root(operand, [&](ValueId root) { readers_[root].push_back(id); });
        if (!fills(id, operand)) homes_.read[homes_.root[operand]] = true;
      }
    }
    ends_.assign(graph_.values().size(), 0);
    const auto end = [&](ValueId value) {
      each_root(value, [&](ValueId root) { ++ends_[root]; });
      homes_.read[homes_.root[value]] = true;
    };
    for (const auto& output : graph_.outputs()) end(output.value);
    for (const auto& update : graph_.updates()) end(update.value);
  }

  // Does the op fill its own bytes with the number that the operand repeats?
  bool fills(OpId id, ValueId operand) const {
    const Op& op = graph_.op(id);
    if (homes_.packed[id]) return spread_constant(graph_, operand).has_value();
    return ir::lowering_as<ir::ViewLowering>(op) && spread_constant(graph_, op.results[0]);
  }

  // Storage still undecided: made by a call of this program, bound to nothing yet.
  bool free(ValueId root) const {
    return homes_.root[root] == root && homes_.home[root].kind == Home::Kind::temp && homes_.home[root].owner == root;
  }

  // ---- aliases

  bool same_size(ValueId a, ValueId b) const { return graph_.type(a).dtype == graph_.type(b).dtype && bytes(a) == bytes(b); }

  static bool named(const std::vector<ir::Alias>& aliases, uint32_t result, size_t operand) {
    return std::any_of(aliases.begin(), aliases.end(), [&](const ir::Alias& alias) {
      return alias.result == static_cast<int>(result) && alias.operand == static_cast<int>(operand);
    });
  }

  // May `op` write this result over the storage of `root`? Only as allowed_aliases says, only if that storage is no other operand
  // of it as well, and only if `same_place` holds for the operand that shows it.
  bool may_alias(OpId id, uint32_t result, ValueId root, const std::function<bool(ValueId)>& same_place) {
    const Op& op = graph_.op(id);
    const std::vector<ir::Alias>& aliases = allowed_aliases(graph_, id, homes_);
    int times = 0;
    bool allowed = false;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId operand = op.operands[i];
      if (operand == kNone) continue;
      bool touches = false;
      each_root(operand, [&](ValueId shown) { touches |= shown == root; });
      if (!touches) continue;
      ++times;
      allowed |= named(aliases, result, i) && whole(operand) && same_size(operand, op.results[result]) && same_place(operand);
    }
    return allowed && times == 1;
  }

  // ---- updates

  void place_updates() {
    std::map<ValueId, std::vector<size_t>> by_root;
    const auto& updates = graph_.updates();
    for (size_t i = 0; i < updates.size(); ++i) by_root[homes_.root[updates[i].value]].push_back(i);
    for (size_t i = 0; i < updates.size(); ++i) {
      const ValueId root = homes_.root[updates[i].value];
      const std::vector<size_t>& together = by_root.at(root);
      if (together.size() > 1 && together[0] == i && updates_in_place(root, together)) continue;
      const bool done = homes_.home[root].kind == Home::Kind::variable && is_placed(root);
      if (!done && !update_in_place(updates[i])) copy_update(i);
    }
  }
  bool is_placed(ValueId root) const { return std::find(placed_.begin(), placed_.end(), root) != placed_.end(); }

  // Parts of one value are written straight into variables that lie as it has them.
  bool updates_in_place(ValueId root, const std::vector<size_t>& indexes) {
    if (!free(root)) return false;
    Layout::Place base;
    for (const size_t i : indexes) {
      const ir::Update& update = graph_.updates()[i];
      const Layout::Place place = layout_.place(update.variable);
      if (i == indexes[0]) base = {place.segment, place.offset - homes_.offset[update.value]};
      if (place.segment < 0 || place.segment != base.segment || place.offset != base.offset + homes_.offset[update.value]) {
        return false;
      }
    }
    const Segment& segment = layout_.segments()[static_cast<size_t>(base.segment)];
    if (base.offset != 0 || bytes(root) != segment.bytes || indexes.size() != segment.members.size()) return false;
    if (segment.zero_gaps && !zero_between(root, segment)) return false;
    for (const size_t i : indexes) {
      const ir::Update& update = graph_.updates()[i];
      if (!unread(update.variable, root, homes_.offset[update.value], bytes(update.value))) return false;
    }
    homes_.home[root].kind = Home::Kind::variable;
    homes_.home[root].variable = segment.members[0].variable;
    homes_.zero_gaps[root] = segment.zero_gaps;
    placed_.push_back(root);
    return true;
  }

  // The new value is written straight into the variable when nobody reads the old one any more, its maker included unless it may
  // write over it.
  bool update_in_place(const ir::Update& update) {
    const ValueId root = homes_.root[update.value];
    if (!free(root) || !whole(update.value) || !unread(update.variable, root, 0, bytes(root))) return false;
    homes_.home[root].kind = Home::Kind::variable;
    homes_.home[root].variable = update.variable;
    return true;
  }

  // Is nobody left who reads the old value of the variable when `size` bytes of the root, from `offset` on, are written over it?
  bool unread(const std::string& variable, ValueId root, int64_t offset, int64_t size) {
    const auto old = variables_.find(variable);
    if (old == variables_.end()) return true;
    if (ends_[old->second] > 0) return false;
    for (const ValueId piece : homes_.pieces[root]) {
      const int64_t begin = homes_.offset[piece];
      if (begin >= offset + size || offset >= begin + bytes(piece)) continue;
      if (!unread_by(old->second, piece, begin - offset)) return false;
    }
    return true;
  }

  // `shift`: where the piece begins, in bytes from the variable's start.
  bool unread_by(ValueId old, ValueId piece, int64_t shift) {
    const OpId writer = graph_.value(piece).op;
    const auto same_place = [&](ValueId operand) { return shift_from(homes_.root[operand], old) == shift; };
    for (const OpId reader : readers_[old]) {
      if (reader > writer) return false;
      if (reader == writer && !may_alias(writer, graph_.value(piece).result, old, same_place)) return false;
    }
    return true;
  }

  // Where the storage of `root` begins, in bytes from the start of the variable `old`, which it shows.
  int64_t shift_from(ValueId root, ValueId old) const {
    if (root == old) return 0;
    return layout_.place(homes_.home[root].variable).offset - layout_.place(homes_.home[old].variable).offset;
  }

  // ---- zeros between variables

  bool zero_between(ValueId root, const Segment& segment) const {
    const int64_t size = ir::dtype_bytes(graph_.type(root).dtype);
    const std::vector<Segment::Gap> gaps = segment.gaps();
    return std::all_of(gaps.begin(), gaps.end(), [&](const Segment::Gap& gap) {
      return zero({graph_}, root, gap.offset / size, (gap.offset + gap.bytes) / size);
    });
  }

  /// The program's graph, or the body of one of its regions.
  struct Scope {
    const Graph& graph;
    const Op* region = nullptr;
  };

  // Are these elements zero, whatever the program is given?
  bool zero(const Scope& scope, ValueId value, int64_t from, int64_t to) const {
    const Graph& graph = scope.graph;
    if (const auto number = spread_constant(graph, value)) return *number == 0;
    const Op& op = graph.maker(value);
    if (op.region) return zero({*op.region, &op}, op.region->outputs()[graph.value(value).result].value, from, to);
    if (scope.region && is_source(op)) return zero({graph_}, scope.region->operands[input_number(graph, op)], from, to);
    if (const auto* view = ir::lowering_as<ir::ViewLowering>(op)) {
      const ir::View map = view->map(graph.type(op.operands[0]), graph.type(value), op.attrs);
      return map.contiguous() && zero(scope, op.operands[0], from + map.offset, to + map.offset);
    }
    if (joins_runs(graph, op)) return zero_parts(scope, op, from, to);
    if (!op.def->keeps_zeros) return false;
    bool any = false;
    for (const ValueId operand : op.operands) {
      if (operand == kNone || graph.type(operand).shape != graph.type(value).shape) continue;
      any = true;
      if (!zero(scope, operand, from, to)) return false;
    }
    return any;
  }

  static size_t input_number(const Graph& body, const Op& input) {
    size_t number = 0;
    for (OpId id = 0; body.op(id).results[0] != input.results[0]; ++id) number += is_source(body.op(id));
    return number;
  }

  bool zero_parts(const Scope& scope, const Op& pack, int64_t from, int64_t to) const {
    int64_t at = 0;
    for (const ValueId part : pack.operands) {
      const int64_t size = scope.graph.type(part).elements();
      if (at < to && from < at + size && !zero(scope, part, std::max(from - at, int64_t{0}), std::min(to - at, size)))
        return false;
      at += size;
    }
    return true;
  }

  // ---- the rest

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

  // What is made of products' results each lies as these lie when it takes their bytes over.
  std::vector<ir::Alias> siblings_first(const Op& op, std::vector<ir::Alias> aliases) const {
    std::stable_partition(aliases.begin(), aliases.end(), [&](const ir::Alias& alias) {
      const ValueId operand = static_cast<size_t>(alias.operand) < op.operands.size() ? op.operands[alias.operand] : kNone;
      return operand != kNone && siblings(graph_.maker(homes_.root[operand])) > 1;
    });
    return aliases;
  }

  // A declared alias takes over the bytes of an operand that nobody needs afterwards.
  void alias_temps(OpId id) {
    const Op& op = graph_.op(id);
    if (!homes_.live[id]) return;
    std::vector<ValueId> taken;
    if (op.def->aliases.empty() && !op.region) return;
    for (const ir::Alias& alias : siblings_first(op, allowed_aliases(graph_, id, homes_))) {
      const ValueId result = op.results[alias.result];
      const ValueId operand = static_cast<size_t>(alias.operand) < op.operands.size() ? op.operands[alias.operand] : kNone;
      if (operand == kNone || !homes_.used[result] || !free(result)) continue;
      const ValueId root = homes_.root[operand];
      if (homes_.home[root].kind != Home::Kind::temp || ends_[root] > 0 || readers_[root].back() != id) continue;
      const bool may = may_alias(id, static_cast<uint32_t>(alias.result), root, [](ValueId) { return true; });
      if (!may || std::count(taken.begin(), taken.end(), root)) continue;
      taken.push_back(root);
      homes_.home[result].owner = homes_.home[root].owner;
    }
  }

  const Graph& graph_;
  const Layout& layout_;
  const OpId end_;
  Homes homes_;
  std::map<std::string, ValueId> variables_;        ///< the value that is a variable's old contents
  std::map<ValueId, std::vector<ValueId>> joined_;  ///< packs of variables: whose bytes they show
  std::vector<std::vector<OpId>> readers_;          ///< per root, ascending
  std::vector<int> ends_;                           ///< per root: outputs and updates that name it
  std::vector<ValueId> placed_;                     ///< roots whose parts are written into several variables
};

std::vector<ir::Alias> region_aliases(const Op& op) {
  const int64_t rows = op.attrs.has("rows") ? op.attrs.integer("rows") : 0;
  const auto plan = passes::plan_region(*op.region, rows);
  return plan ? passes::in_place(*op.region, *plan) : std::vector<ir::Alias>{};
}

}  // namespace

std::vector<ir::Alias> allowed_aliases(const Graph& graph, const Op& op) {
  if (op.region) return region_aliases(op);
  std::vector<ir::Alias> aliases = op.def->aliases;
  // Every row of a product needs its bias whole.
  if (passes::is_gemm(op) && passes::adds_bias(graph, op)) return {};
  if (!ir::lowering_as<ir::ScalarLowering>(op)) return aliases;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    for (size_t r = 0; r < op.results.size(); ++r) {
      if (op.operands[i] != kNone && graph.type(op.operands[i]) == graph.type(op.results[r]))
        aliases.push_back({static_cast<int>(r), static_cast<int>(i)});
    }
  }
  return aliases;
}

const std::vector<ir::Alias>& allowed_aliases(const Graph& graph, OpId op, Homes& homes) {
  const auto [at, fresh] = homes.aliases.try_emplace(op);
  if (fresh) at->second = allowed_aliases(graph, graph.op(op));
  return at->second;
}

Homes find_homes(const Graph& graph, const Layout& layout) {
  Homes homes = HomeFinder(graph, layout).run();
  find_siblings(graph, layout, homes);
  return homes;
}

}  // namespace ingot::codegen
