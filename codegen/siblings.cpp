#include "codegen/siblings.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "codegen/gemm.h"
#include "codegen/homes.h"
#include "codegen/target.h"
#include "ir/graph/op_def.h"

namespace ingot::codegen {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

/// Bytes of a value: where they begin, in something whose own place does not matter here.
struct Spot {
  enum class In : uint8_t { storage, strip, segment, variable };
  std::pair<In, int64_t> base;
  int64_t offset = 0, bytes = 0;

  int64_t end() const { return offset + bytes; }
  bool meets(const Spot& other) const { return base == other.base && offset < other.end() && other.offset < end(); }
  bool is(const Spot& other) const { return base == other.base && offset == other.offset && bytes == other.bytes; }
};

class SiblingFinder {
 public:
  SiblingFinder(const Graph& graph, const Layout& layout, Homes& homes) : graph_(graph), layout_(layout), homes_(homes) {}

  void run() {
    homes_.strip_places.assign(graph_.values().size(), {});
    homes_.call_of.assign(graph_.ops().size(), -1);
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      const std::vector<OpId> ops = siblings_from(id);
      if (ops.size() < 2) continue;
      unite(ops);
      id = ops.back();
    }
  }

 private:
  // ---------------------------------------------------------------- who says to be siblings

  std::vector<OpId> siblings_from(OpId id) const {
    std::vector<OpId> ops;
    const int64_t count = siblings(graph_.op(id));
    if (count < 2 || id + static_cast<size_t>(count) > graph_.ops().size()) return {};
    for (OpId next = id; next < id + count; ++next) {
      if (siblings(graph_.op(next)) != count || !homes_.live[next] || !alike(id, next)) return {};
      ops.push_back(next);
    }
    return ops;
  }

  // One product each, the same one but for what it multiplies.
  bool alike(OpId first, OpId second) const {
    const Matrices a = matrices(first), b = matrices(second);
    for (size_t i = 0; i < a.size(); ++i) {
      if ((a[i] == kNone) != (b[i] == kNone)) return false;
      if (a[i] != kNone && graph_.type(a[i]) != graph_.type(b[i])) return false;
    }
    const auto parts = [&](OpId id) {
      const Op& op = graph_.op(id);
      return gemm_parts(graph_.type(op.operands[0]).shape, graph_.type(op.operands[1]).shape, op.attrs.boolean("ta"),
                        op.attrs.boolean("tb"));
    };
    const std::vector<GemmPart> one = parts(first), other = parts(second);
    return one.size() == 1 && other.size() == 1 && one[0].gemm.batch == 1 && one[0].gemm == other[0].gemm;
  }

  Matrices matrices(OpId id) const { return codegen::matrices(graph_.op(id)); }

  // ---------------------------------------------------------------- where matrices lie

  Spot spot(ValueId value) {
    const ValueId root = homes_.root[value];
    const Home& home = homes_.home[root];
    const int64_t offset = homes_.offset[value], bytes = graph_.type(value).bytes();
    if (home.kind == Home::Kind::variable) {
      const Layout::Place place = layout_.place(home.variable);
      if (place.segment >= 0) return {{Spot::In::segment, place.segment}, place.offset + offset, bytes};
      const auto number = static_cast<int64_t>(variables_.size());
      return {{Spot::In::variable, variables_.try_emplace(home.variable, number).first->second}, offset, bytes};
    }
    const StripPlace place = homes_.strip_places[home.owner];
    if (place.strip >= 0) return {{Spot::In::strip, place.strip}, place.offset + offset, bytes};
    return {{Spot::In::storage, home.owner}, offset, bytes};
  }

  // A temp that is all of its storage, which may lie anywhere.
  bool movable(ValueId value) {
    const Home& home = homes_.home[homes_.root[value]];
    const int64_t bytes = graph_.type(value).bytes();
    return home.kind == Home::Kind::temp && homes_.home[home.owner].kind == Home::Kind::temp &&
           spot(value).base.first == Spot::In::storage && homes_.offset[value] == 0 && bytes == graph_.type(home.owner).bytes() &&
           bytes % kArgumentAlignment == 0;
  }

  std::vector<ValueId> column(const std::vector<OpId>& ops, size_t matrix) const {
    std::vector<ValueId> values;
    for (const OpId id : ops) values.push_back(matrices(id)[matrix]);
    return values;
  }

  // ---------------------------------------------------------------- one call

  // All of them, or all but one.
  void unite(const std::vector<OpId>& ops) {
    if (try_unite(ops) || ops.size() == 2) return;
    for (size_t out = ops.size(); out-- > 0;) {
      std::vector<OpId> rest = ops;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(out));
      if (try_unite(rest)) return;
    }
  }

  bool try_unite(std::vector<OpId> ops) {
    if (!apart(ops)) return false;
    arrange(ops);
    const size_t strips = homes_.strips.size();
    set_apart_.clear();
    lined_up_.clear();
    Together call;
    for (const size_t matrix : {kMade, kAdded, size_t{0}, size_t{1}}) {
      if (matrix == kAdded && matrices(ops[0])[matrix] == kNone) continue;
      const std::vector<ValueId> values = column(ops, matrix);
      const std::optional<int64_t> stride = line_up(values, matrix == kMade);
      if (!stride) return give_back(strips);
      for (const ValueId value : values) lined_up_.push_back(homes_.root[value]);
      call.strides[matrix] = *stride;
    }
    for (const OpId id : ops) {
      homes_.call_of[id] = static_cast<int>(homes_.together.size());
      rely_on(matrices(id));
    }
    call.ops = std::move(ops);
    homes_.together.push_back(std::move(call));
    return true;
  }

  bool give_back(size_t strips) {
    for (; !set_apart_.empty(); set_apart_.pop_back()) homes_.home[set_apart_.back().first].owner = set_apart_.back().second;
    for (; homes_.strips.size() > strips; homes_.strips.pop_back()) {
      for (const ValueId owner : homes_.strips.back().owners) homes_.strip_places[owner] = {};
    }
    return false;
  }

  void rely_on(const Matrices& matrices) {
    for (const ValueId value : matrices) {
      if (value == kNone) continue;
      ValueId& last = relied_on_[homes_.home[homes_.root[value]].owner];
      last = std::max(last, homes_.root[value]);
    }
  }

  // None writes what another one reads or writes: each could have been made first. What is added may be written over in place.
  bool apart(const std::vector<OpId>& ops) {
    for (const OpId writer : ops) {
      const Spot made = spot(matrices(writer)[kMade]);
      for (const OpId other : ops) {
        const Matrices m = matrices(other);
        for (size_t i = 0; i < m.size(); ++i) {
          if (m[i] == kNone || !spot(m[i]).meets(made)) continue;
          const bool itself = other == writer && (i == kMade || (i == kAdded && spot(m[i]).is(made)));
          if (!itself) return false;
        }
      }
    }
    return true;
  }

  // In the order of those matrices that lie somewhere already.
  void arrange(std::vector<OpId>& ops) {
    for (const size_t matrix : {kMade, size_t{1}, size_t{0}, kAdded}) {
      std::map<int64_t, OpId> by_offset;
      bool one_base = true;
      for (const OpId id : ops) {
        if (matrices(id)[matrix] == kNone) break;
        const Spot at = spot(matrices(id)[matrix]);
        one_base = one_base && at.base == spot(matrices(ops[0])[matrix]).base;
        by_offset.emplace(at.offset, id);
      }
      if (!one_base || by_offset.size() != ops.size()) continue;
      std::transform(by_offset.begin(), by_offset.end(), ops.begin(), [](const auto& entry) { return entry.second; });
      return;
    }
  }

  // A value written over a dying operand can have bytes of its own instead, and whoever is written over it in turn goes along.
  // Not what a call, made before or in the making, relies on to lie where it does.
  void set_apart(ValueId root) {
    const ValueId owner = homes_.home[root].owner;
    const auto relied = relied_on_.find(owner);
    if (homes_.home[root].kind != Home::Kind::temp || (relied != relied_on_.end() && relied->second >= root)) return;
    const auto in_use = [&](ValueId lined_up) { return homes_.home[lined_up].owner == owner && lined_up >= root; };
    if (std::any_of(lined_up_.begin(), lined_up_.end(), in_use)) return;
    for (ValueId later = root; later < homes_.home.size(); ++later) {
      if (homes_.home[later].owner == owner && homes_.root[later] == later) own(later, root);
    }
  }

  void own(ValueId root, ValueId owner) {
    set_apart_.emplace_back(root, homes_.home[root].owner);
    homes_.home[root].owner = owner;
  }

  // The stride in bytes that walks them. Between variables others may lie that are not written; elsewhere nothing may lie.
  std::optional<int64_t> line_up(const std::vector<ValueId>& values, bool written) {
    std::vector<Spot> spots;
    for (const ValueId value : values) spots.push_back(spot(value));
    const auto in_one = [&](const Spot& s) { return s.base == spots[0].base; };
    if (!std::all_of(spots.begin(), spots.end(), in_one)) return make_strip(values);
    const int64_t stride = spots[1].offset - spots[0].offset;
    for (size_t i = 1; i < spots.size(); ++i) {
      if (spots[i].offset - spots[i - 1].offset != stride) return std::nullopt;
    }
    const bool dense = stride == spots[0].bytes;
    const bool sparse = stride > spots[0].bytes && spots[0].base.first == Spot::In::segment;
    const bool fits = (dense || (!written && (stride == 0 || sparse))) && stride % kArgumentAlignment == 0;
    return fits ? std::optional(stride) : std::nullopt;
  }

  std::optional<int64_t> make_strip(const std::vector<ValueId>& values) {
    Strip strip;
    for (const ValueId value : values) {
      if (!movable(value)) set_apart(homes_.root[value]);
      const ValueId owner = homes_.home[homes_.root[value]].owner;
      const bool again = std::find(strip.owners.begin(), strip.owners.end(), owner) != strip.owners.end();
      if (again || !movable(value)) return std::nullopt;
      strip.owners.push_back(owner);
    }
    const int64_t bytes = graph_.type(values[0]).bytes();
    for (size_t i = 0; i < strip.owners.size(); ++i) {
      homes_.strip_places[strip.owners[i]] = {static_cast<int>(homes_.strips.size()), static_cast<int64_t>(i) * bytes};
    }
    homes_.strips.push_back(std::move(strip));
    return bytes;
  }

  const Graph& graph_;
  const Layout& layout_;
  Homes& homes_;
  std::map<ValueId, ValueId> relied_on_;  ///< per owner: the last root on it that a call of several products touches
  // For the call in the making:
  std::vector<std::pair<ValueId, ValueId>> set_apart_;  ///< roots and their owners before
  std::vector<ValueId> lined_up_;                       ///< roots of matrices that lie right
  std::map<std::string, int64_t> variables_;            ///< those that lie alone, numbered
};

}  // namespace

Matrices matrices(const Op& gemm) {
  return {gemm.operands[0], gemm.operands[1], gemm.operands.size() > kAdded ? gemm.operands[kAdded] : kNone, gemm.results[0]};
}

int64_t siblings(const Op& op) {
  return ir::lowering_as<ir::GemmLowering>(op) && op.attrs.has("siblings") ? op.attrs.integer("siblings") : 1;
}

void find_siblings(const Graph& graph, const Layout& layout, Homes& homes) { SiblingFinder(graph, layout, homes).run(); }

}  // namespace ingot::codegen
