#include <bit>

#include "ir/base/text.h"
#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {
namespace {

bool same(const Value& a, const Value& b) { return a.name == b.name && a.type == b.type && a.op == b.op && a.result == b.result; }
bool same(const Output& a, const Output& b) { return a.name == b.name && a.value == b.value && a.loc == b.loc; }
bool same(const Update& a, const Update& b) { return a.variable == b.variable && a.value == b.value && a.loc == b.loc; }

/// Bit-exact where operator== is not: NaN equals NaN, -0.0 differs from 0.0.
bool same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (a != a && b != b); }

bool same(const Variable& a, const Variable& b) {
  return a.name == b.name && a.role == b.role && a.type == b.type && a.init == b.init && a.trainable == b.trainable &&
         a.saved == b.saved && same(a.lr_factor, b.lr_factor) && same(a.decay_factor, b.decay_factor) && a.loc == b.loc;
}

template <class T>
bool all_same(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) return false;
  }
  return true;
}

/// Bytes that determine the structure, hashed at the end.
class StructureText {
 public:
  std::string bytes;

  void graph(const Graph& graph) {
    word(static_cast<uint64_t>(graph.level()));
    word(graph.ops().size());
    for (const Op& op : graph.ops()) add(graph, op);
    word(graph.outputs().size());
    for (const Output& output : graph.outputs()) word(output.value);
    word(graph.updates().size());
    for (const Update& update : graph.updates()) word(update.value);
  }

 private:
  void word(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(value >> shift & 0xff);
  }
  void text(std::string_view value) {
    word(value.size());
    bytes += value;
  }
  void add(const Graph& graph, const Op& op) {
    text(op.def->name);
    word(static_cast<uint64_t>(op.phase));
    word(op.operands.size());
    for (ValueId id : op.operands) word(id);
    const bool is_source = std::holds_alternative<SourceLowering>(op.def->lowering);
    for (const auto& [name, value] : op.attrs) {
      if (is_source && name == "name") continue;  // which variable: a name, not structure
      text(name);
      text(attr_text(value));
    }
    word(op.results.size());
    for (ValueId id : op.results) text(graph.type(id).text());
    word(op.region ? 1 : 0);
    if (op.region) this->graph(*op.region);
  }
};

}  // namespace

bool same(const Op& a, const Op& b) {
  if (a.def != b.def || a.operands != b.operands || !(a.attrs == b.attrs) || a.results != b.results) return false;
  if (a.phase != b.phase || !(a.loc == b.loc) || (a.region == nullptr) != (b.region == nullptr)) return false;
  return a.region == b.region || same(*a.region, *b.region);
}

bool same(const Graph& a, const Graph& b) {
  return a.name() == b.name() && a.level() == b.level() && all_same(a.ops(), b.ops()) && all_same(a.values(), b.values()) &&
         all_same(a.outputs(), b.outputs()) && all_same(a.updates(), b.updates());
}

bool same(const Module& a, const Module& b) {
  return a.name == b.name && all_same(a.variables, b.variables) && a.ranges == b.ranges && a.optimizer == b.optimizer &&
         a.precision == b.precision && a.checkpoint_ignore == b.checkpoint_ignore && a.info == b.info &&
         all_same(a.graphs, b.graphs);
}

uint64_t structural_hash(const Graph& graph) {
  StructureText structure;
  structure.graph(graph);
  return hash64(structure.bytes);
}

}  // namespace ingot::ir
