// The graph: what is to be computed, as an append-only list of ops.
//
// Meaning. A graph is a function of its inputs and of the module's variables. Every op is pure: it makes new values and
// changes nothing. An operand must exist before the op that uses it, so cycles and uses before definitions cannot be
// written, and any analysis is a vector indexed by ValueId. The only way anything changes is `update %variable = %value`,
// which is itself just a name for a value: every read of a variable in a graph sees what it held before the program ran.
//
// Levels. model -> train -> core -> fused. `model` holds what an author can write; `train` adds gradients and the
// optimizer; `core` holds only ops with a primitive lowering (see op_def.h); in `fused` each op is a fixed list of launches
// or none. OpDef says where an op is legal; the verifier runs after every pass.
//
// Types. A dtype is what is stored: a value is rounded when, and only when, it is written to a buffer; inside a region
// all arithmetic is f32; what a region stores is rounded where it is made, so that every reader sees the same. A `cast` is a
// rounding and survives every pass.
//
// Passes read a const Graph and write a new one; nothing is edited in place. Values keep the name the author gave them;
// a pass names what it makes after what it came from ("h" -> "h.grad", "h.2").
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/base/attr.h"
#include "ir/base/loc.h"
#include "ir/base/type.h"
#include "ir/base/variable.h"
#include "ir/graph/name_index.h"

namespace ingot::ir {

struct OpDef;
class Graph;

using ValueId = uint32_t;
using OpId = uint32_t;
/// An absent optional operand; printed as `none`.
inline constexpr ValueId kNone = 0xffffffffu;

enum class Level : uint8_t { model, train, core, fused };
std::string_view level_name(Level level);

/// Which part of a step an op belongs to. cse merges only within one phase, fusion never crosses one.
/// `recompute` is a forward op built again for the backward.
enum class Phase : uint8_t { forward, recompute, backward, optimizer };
std::string_view phase_name(Phase phase);

struct Value {
  std::string name;  ///< unique in its graph, without the %
  Type type;
  OpId op = 0;          ///< the op that makes it
  uint32_t result = 0;  ///< which of that op's results it is
};

struct Op {
  const OpDef* def = nullptr;
  std::vector<ValueId> operands;  ///< kNone for an absent optional operand
  Attrs attrs;
  std::vector<ValueId> results;
  std::shared_ptr<const Graph> region;  ///< only for `fuse`: its inputs are this op's operands, its outputs the results
  Phase phase = Phase::forward;
  Loc loc;

  std::string_view name() const;
};

/// `output NAME = %value`. In a region the names are "0", "1", ... and it prints as `yield %a, %b`.
struct Output {
  std::string name;
  ValueId value = kNone;
  Loc loc;
};

/// `update %variable = %value`.
struct Update {
  std::string variable;
  ValueId value = kNone;
  Loc loc;
};

class Graph {
 public:
  explicit Graph(std::string name = "main", Level level = Level::model) : name_(std::move(name)), level_(level) {}

  const std::string& name() const { return name_; }
  Level level() const { return level_; }
  void set_name(std::string name) { name_ = std::move(name); }
  void set_level(Level level) { level_ = level; }

  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Value>& values() const { return values_; }
  const Op& op(OpId id) const { return ops_[id]; }
  const Value& value(ValueId id) const { return values_[id]; }
  const Type& type(ValueId id) const { return values_[id].type; }
  /// The op that makes this value.
  const Op& maker(ValueId id) const { return ops_[values_[id].op]; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::vector<Update>& updates() const { return updates_; }
  /// kNone if no value has this name (one hash lookup).
  ValueId find(std::string_view name) const;
  const Output* find_output(std::string_view name) const;

  /// Makes room for as many ops and values as `other` has: what a pass writes is about as large as what it reads.
  void reserve_like(const Graph& other);
  /// Appends an op with the given result names and types; operands must already exist. No checking beyond that:
  /// build ops through Builder, which infers and checks.
  OpId append(Op op, std::vector<std::string> result_names, std::vector<Type> result_types);
  void add_output(Output output) { outputs_.push_back(std::move(output)); }
  void add_update(Update update) { updates_.push_back(std::move(update)); }
  /// `wanted`, or `wanted.2`, `wanted.3`, ... : the first that is free. An empty `wanted` gives "0", "1", ...
  std::string unique_name(std::string_view wanted) const;

 private:
  std::string name_;
  Level level_;
  std::vector<Op> ops_;
  std::vector<Value> values_;
  std::vector<Output> outputs_;
  std::vector<Update> updates_;
  NameIndex names_;
  mutable std::unordered_map<std::string, int> next_suffix_;
};

/// The optimizer, schedule and clip exactly as the model file says them (expressions over hyper names), e.g.
/// rule "adamw(lr, beta1, beta2, adam_eps, decay)", schedule "cosine(lr, lr_final, warmup)", clip "global_norm(clip)".
/// Empty = absent. The pass `optimizer` parses them.
struct OptimizerSpec {
  std::string rule, schedule, clip;
  Loc rule_loc, schedule_loc, clip_loc;
  bool operator==(const OptimizerSpec&) const = default;
};

/// Precision wishes: glob patterns over value and variable names that stay f32 under autocast.
struct PrecisionSpec {
  std::vector<std::string> pin;
  bool operator==(const PrecisionSpec&) const = default;
};

/// Several graphs over the same variables. The loader makes:
///   @loss    inputs -> outputs `loss` (a sum, f32[]) and `count` (f32[], what to divide by), plus the model's outputs
///   @decode  the same model at batch = decode batch, time = 1 and without targets -> the model's outputs
class Module {
 public:
  std::string name;
  std::vector<Variable> variables;
  std::vector<InputRange> ranges;
  OptimizerSpec optimizer;
  PrecisionSpec precision;
  std::vector<std::string> checkpoint_ignore;             ///< globs of names that public files hold and nothing reads
  std::vector<std::pair<std::string, std::string>> info;  ///< config keys and their values as text, for `inspect` and checkpoints
  std::vector<Graph> graphs;

  const Variable* find_variable(std::string_view name) const;
  const Graph* find_graph(std::string_view name) const;
  /// InternalError when there is none.
  const Graph& graph(std::string_view name) const;
  /// Adds, or replaces the graph of the same name.
  void set_graph(Graph graph);
};

/// Field by field, locations included (the round-trip tests need it).
bool same(const Op& a, const Op& b);
bool same(const Graph& a, const Graph& b);
bool same(const Module& a, const Module& b);

/// A hash of structure and attributes that ignores names and locations: equal layers have equal hashes.
uint64_t structural_hash(const Graph& graph);

}  // namespace ingot::ir
