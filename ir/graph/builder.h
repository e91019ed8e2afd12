// Builder: appends checked ops to a graph. The only way passes, gradients, decompositions and the loader make ops.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  Graph& graph() { return graph_; }
  const Type& type(ValueId id) const { return graph_.type(id); }
  const Shape& shape(ValueId id) const { return graph_.type(id).shape; }

  /// Location, phase and name stem given to ops made from here on. An empty name numbers the values.
  void set_loc(Loc loc) { loc_ = loc; }
  void set_phase(Phase phase) { phase_ = phase; }
  void set_name(std::string name) { name_ = std::move(name); }
  Loc loc() const { return loc_; }
  Phase phase() const { return phase_; }

  /// Fills attribute defaults, checks operands and attributes against the signature, infers the result types (throws a
  /// located UserError when they do not fit) and appends. Trailing absent optional operands may be left out. The reference
  /// is good until the next append. Result names: `names`, else the stem, else numbers.
  const Op& op(const OpDef& def, std::vector<ValueId> operands, Attrs attrs = {}, std::vector<std::string> names = {});
  const Op& op(std::string_view name, std::vector<ValueId> operands, Attrs attrs = {}, std::vector<std::string> names = {});
  /// The same, for its first result.
  ValueId make(std::string_view name, std::vector<ValueId> operands, Attrs attrs = {});

  /// A `fuse` op: `region`'s inputs are the operands, its outputs the results.
  const Op& fuse(std::vector<ValueId> operands, Graph region, std::string_view kind, std::vector<std::string> names = {}, int64_t rows = 0);

  // Shorthands for what gradients and decompositions use most. Names are those of ir/ops/.
  ValueId input(std::string_view name, Type type);
  ValueId variable(const Variable& variable);
  ValueId constant(double value, DType dtype = DType::f32);  ///< rank 0
  ValueId full(double value, Type type);                     ///< constant broadcast to a shape
  ValueId add(ValueId a, ValueId b) { return make("add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return make("sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return make("mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return make("div", {a, b}); }
  ValueId add(ValueId a, double b) { return add(a, constant(b)); }
  ValueId mul(ValueId a, double b) { return mul(a, constant(b)); }
  ValueId neg(ValueId a) { return make("neg", {a}); }
  ValueId select(ValueId condition, ValueId yes, ValueId no) { return make("select", {condition, yes, no}); }
  /// No op when the value already has that dtype.
  ValueId cast(ValueId a, DType dtype);
  /// No op when the shape is the same already.
  ValueId reshape(ValueId a, Shape shape);
  ValueId broadcast(ValueId a, Shape shape);
  ValueId transpose(ValueId a, std::vector<int64_t> perm);
  ValueId slice(ValueId a, std::vector<int64_t> starts, std::vector<int64_t> sizes);
  /// Axes non-negative ascending. dtype: that of the result (default: the operand's).
  ValueId sum(ValueId a, std::vector<int64_t> axes, bool keep = false);
  ValueId sum(ValueId a, std::vector<int64_t> axes, bool keep, DType dtype);
  ValueId mean(ValueId a, std::vector<int64_t> axes, bool keep = false);
  ValueId max(ValueId a, std::vector<int64_t> axes, bool keep = false);
  /// dtype: that of the result (default: promote(a, b)).
  ValueId matmul(ValueId a, ValueId b, bool ta = false, bool tb = false);
  ValueId matmul(ValueId a, ValueId b, bool ta, bool tb, DType dtype);
  ValueId concat(std::vector<ValueId> parts, int64_t axis);

 private:
  Graph& graph_;
  Loc loc_;
  Phase phase_ = Phase::forward;
  std::string name_;
};

/// Copies a graph op by op into a new one; the frame of every rewriting pass:
///   Rewriter rw(old, out);  for (const Op& op : old.ops()) { if (mine) rw.map(op.results[0], replacement); else rw.copy(op); }  rw.finish();
class Rewriter {
 public:
  Rewriter(const Graph& from, Graph& to);
  Builder& b() { return builder_; }
  /// The new value of an old one (kNone maps to kNone). InternalError when it was not mapped yet.
  ValueId operator()(ValueId old) const;
  bool mapped(ValueId old) const { return map_[old] != kNone; }
  void map(ValueId old, ValueId now) { map_[old] = now; }
  /// Appends the same op on mapped operands, keeping names, types, region, phase and location.
  void copy(const Op& op);
  /// The same, on operands given in the new graph (of the types the op had).
  void copy_on(const Op& op, std::vector<ValueId> operands);
  /// The same op on other operands and attributes; result types are inferred again.
  const Op& copy_with(const Op& op, std::vector<ValueId> operands, Attrs attrs);
  /// Sets the builder's loc, phase and name stem to those of `op` before making replacements for it.
  void at(const Op& op);
  /// Maps outputs and updates across (skip to write your own).
  void finish();

 private:
  const Graph& from_;
  Builder builder_;
  std::vector<ValueId> map_;
};

}  // namespace ingot::ir
