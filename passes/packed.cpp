#include "passes/packed.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::ValueId;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Variables that something reads in a narrower float: their copies are renewed after the update.
std::set<std::string> narrowed(const ir::Graph& graph) {
  std::set<std::string> names;
  for (const ir::Op& op : graph.ops()) {
    if (op.operands.size() != 1 || op.operands[0] == ir::kNone || op.results.size() != 1) continue;
    const ir::Type &from = graph.type(op.operands[0]), &to = graph.type(op.results[0]);
    const bool narrows = from.shape == to.shape && is_float(to.dtype) && ir::dtype_bytes(to.dtype) < ir::dtype_bytes(from.dtype);
    if (narrows && is_float(from.dtype)) names.insert(read_variable(graph.maker(op.operands[0])));
  }
  return names;
}

// In the order in which shapes come first.
void bring_equal_shapes_together(std::vector<const Trained*>& group) {
  std::map<ir::Shape, size_t> numbers;
  for (const Trained* t : group) numbers.try_emplace(t->variable.type.shape, numbers.size());
  const auto number = [&](const Trained* t) { return numbers.at(t->variable.type.shape); };
  std::stable_sort(group.begin(), group.end(), [&](const Trained* a, const Trained* b) { return number(a) < number(b); });
}

void add(Packed& packed, const Trained& trained, bool copied, int64_t& at) {
  const ir::Variable& v = trained.variable;
  std::vector<Packed::Group>& groups = packed.groups;
  const Packed::Group last = groups.empty() ? Packed::Group{} : groups.back();
  if (groups.empty() || last.lr_factor != v.lr_factor || last.decay_factor != v.decay_factor || last.copied != copied) {
    at = round_up(at, Packed::kRow);
    groups.push_back({v.lr_factor, v.decay_factor, copied, 0});
  }
  packed.parts.push_back(trained);
  packed.offsets.push_back(at);
  at = round_up(at + v.type.elements(), Packed::kAlign);
  groups.back().end = round_up(at, Packed::kRow) / Packed::kRow;
}

}  // namespace

std::vector<Packed> pack_trained(const ir::Graph& graph, const std::vector<Trained>& trained) {
  // Groups in the order of their first parameter; those with narrow copies first, side by side: one cast renews them all.
  const std::set<std::string> copied = narrowed(graph);
  std::vector<std::tuple<ir::DType, ir::DType, bool, double, double>> keys, order;
  for (const Trained& t : trained) {
    keys.emplace_back(t.variable.type.dtype, graph.type(t.gradient).dtype, !copied.contains(t.variable.name),
                      t.variable.lr_factor, t.variable.decay_factor);
    if (std::find(order.begin(), order.end(), keys.back()) == order.end()) order.push_back(keys.back());
  }
  const auto dtypes = [](const auto& key) { return std::pair(std::get<0>(key), std::get<1>(key)); };
  const auto place = [](const auto& key) { return std::tuple(std::get<0>(key), std::get<1>(key), std::get<2>(key)); };
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::vector<Packed> out;
  int64_t at = 0;
  for (size_t g = 0; g < order.size(); ++g) {
    if (g == 0 || dtypes(order[g]) != dtypes(order[g - 1])) {
      out.emplace_back();
      at = 0;
    }
    std::vector<const Trained*> group;
    for (size_t i = 0; i < trained.size(); ++i) {
      if (keys[i] == order[g]) group.push_back(&trained[i]);
    }
    bring_equal_shapes_together(group);
    for (const Trained* t : group) add(out.back(), *t, copied.contains(t->variable.name), at);
  }
  return out;
}

ValueId Packed::pack(ir::Builder& b, const std::vector<ValueId>& values) const {
  std::vector<ValueId> flat;
  int64_t at = 0;
  const auto zeros_until = [&](int64_t end) {
    if (end > at) flat.push_back(b.full(0, {b.type(values[0]).dtype, {end - at}}));
    at = end;
  };
  for (size_t i = 0; i < values.size(); ++i) {
    zeros_until(offsets[i]);
    const int64_t size = b.type(values[i]).elements();
    flat.push_back(b.reshape(values[i], {size}));
    at += size;
  }
  zeros_until(rows() * kRow);
  const ValueId joined = flat.size() == 1 ? flat[0] : b.concat(std::move(flat), 0);
  return b.reshape(joined, {rows(), kRow});
}

ValueId Packed::part(ir::Builder& b, ValueId pack, size_t i) const {
  const ir::Shape& shape = parts[i].variable.type.shape;
  const ValueId flat = b.reshape(pack, {rows() * kRow});
  return b.reshape(b.slice(flat, {offsets[i]}, {ir::element_count(shape)}), shape);
}

ValueId Packed::by_group(ir::Builder& b, ValueId value, double Group::*factor) const {
  const auto at = [&](size_t g) { return groups[g].*factor; };
  ValueId factors = b.constant(at(groups.size() - 1));
  for (size_t g = groups.size() - 1; g-- > 0;) {
    if (at(g) == at(g + 1)) continue;
    ir::Attrs attrs;
    attrs.set("shape", ir::Shape{rows(), 1});
    attrs.set("axis", int64_t{0});
    attrs.set("dtype", ir::DType::i32);
    const ValueId row = b.make("iota", {}, std::move(attrs));
    const ValueId before = b.make("lt", {row, b.constant(static_cast<double>(groups[g].end), ir::DType::i32)});
    factors = b.select(before, b.constant(at(g)), factors);
  }
  if (b.type(factors).rank() == 0) {
    const double all = at(0);
    return all == 1 ? value : all == 0 ? factors : b.mul(value, factors);
  }
  return b.mul(value, factors);
}

}  // namespace ingot::passes
