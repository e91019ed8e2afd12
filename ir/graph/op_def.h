// What an op is: one OpDef, built in one file ir/ops/<name>.cpp by `void define_<name>(OpTable&)`.
//
// Everything downstream switches on an op's lowering, never on its name. To add an op, add its file: CMake globs the
// folder and generates the table that calls every define_<stem> (a missing definition is a link error); the examples and
// rejects written there drive its tests (reference against decomposition and every target, gradients against central
// differences), and `ingot ops NAME` prints its page.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ir/base/error.h"
#include "ir/graph/graph.h"

namespace ingot::ir {

class Builder;

// ---------------------------------------------------------------- signature

struct OperandDef {
  std::string name, doc;
  bool optional = false;  ///< may be kNone; in the language: `none` or left out
  bool variadic = false;  ///< last operand only: any number (concat)
  /// A carry port (see CarryPort) or `starts`: never written by a model's author positionally, only by keyword.
  bool port = false;
};

struct AttrDef {
  std::string name, doc;
  AttrKind kind = AttrKind::integer;
  bool required = true;
  Attr fallback;          ///< set by Builder when absent and not required
  bool unset_ok = false;  ///< not required and no fallback: may stay absent
  std::string alias;      ///< another spelling in the language ("axis" for "axes"); a single integer is taken for a list of one
};

struct ResultDef {
  std::string name, doc;
  /// Not part of the value of a call in the language unless as many names stand on the left: final states, saved values.
  bool hidden = false;
};

/// A sequence op's state: `first` operand in, `last` result out, same type; absent means zeros. The pass `carry` wires them.
struct CarryPort {
  std::string operand, result;
};

/// Result `result` may be written over operand `operand`'s buffer (same type, read and written at the same index).
struct Alias {
  int result = 0, operand = 0;
};

/// Levels at which the op is legal, a bit each.
struct Levels {
  bool model = false, train = false, core = false, fused = false;
  bool allows(Level level) const;
};
inline constexpr Levels kModelAndTrain{true, true, false, false};  ///< composites: gone after `decompose`
inline constexpr Levels kEverywhere{true, true, true, true};
inline constexpr Levels kTrainUp{false, true, true, true};  ///< gradient and optimizer primitives
inline constexpr Levels kTrainOnly{false, true, false, false};
inline constexpr Levels kCoreUp{false, false, true, true};

// ---------------------------------------------------------------- lowering (a closed set)

/// Where the value comes from outside: input, variable. No computation.
struct SourceLowering {};

/// Elementwise with broadcasting. One body per result: an expression of the scalar vocabulary (codegen/text/vocabulary.h, the
/// same text for every target) over a0, a1, ... = the operands (float ones converted to float; i32, i64, bool ones arrive as
/// int32_t, int64_t, bool) and p.NAME = attributes as literals. Example: "ig_sigmoid(a0)", "a0 * a1", "a0 < a1". The value is
/// converted to the result's dtype when stored (to integers by truncation, to bool by `!= 0`).
/// The vocabulary: C operators + - * / < <= > >= == != && || !, `c ? x : y`, float literals with an f, and
///   of float:  ig_exp ig_log ig_log1p ig_expm1 ig_tanh ig_sigmoid ig_sqrt ig_rsqrt ig_pow(x, y) ig_softplus ig_silu ig_sin
///   ig_cos
///              ig_floor, and ig_isfinite -> bool
///   of any number, arguments of mixed types meeting as in C:  ig_abs, ig_max(x, y), ig_min(x, y), ig_mod(x, y).
/// ig_max and ig_min give NaN when either argument is NaN: `(x > y || x != x) ? x : y`. ig_mod has the sign of y, as in Python;
/// of integers modulo 0 it is 0.
struct ScalarLowering {
  std::vector<std::string> bodies;
};

enum class Combine : uint8_t { sum, max, min };

/// Attrs `axes` (integers, non-negative, ascending) and `keep`. Accumulates in f32 in a fixed order (integers: as they are).
struct ReduceLowering {
  Combine combine = Combine::sum;
};

/// Attr `axis`, `reverse`, `exclusive`: prefix combination along one axis.
struct ScanLowering {
  Combine combine = Combine::sum;
};

/// A result that only renames elements of operand 0: result index -> operand index. The result, enumerated row-major
/// over `dims` (their product is its element count), reads operand element offset + sum index[k] * strides[k]. With
/// `guard_axis` >= 0 the source index along that dim is index + guard_shift (in units of that dim); outside
/// [0, dims[guard_axis]) the element is 0 (this is the token shift: dims [B, T, C], guard_axis 1, guard_shift -1).
/// reshape, transpose, slice, broadcast, repeat, shift_rows.
struct View {
  Shape dims;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  int guard_axis = -1;
  int64_t guard_shift = 0;
  /// Is this a contiguous run of the operand starting at `offset` (then no code is needed)?
  bool contiguous() const;
};
struct ViewLowering {
  std::function<View(const Type& operand, const Type& result, const Attrs& attrs)> map;
};

/// concat along attr `axis`: operands written side by side in place.
struct PackLowering {};

/// iota and constants: made from attributes alone. `body` gives an expression over `i0..i{rank-1}` (int64_t indices into the
/// result) and p.NAME: "p.value", "i1".
struct GenerateLowering {
  std::function<std::string(const Attrs&)> body;
};

/// result[..., :] = table[ids[...], :]; operands (ids [...], table [V, C]).
struct GatherLowering {};

/// result[v, :] = sum over positions with ids == v of rows[...]; operands (ids [...], rows [..., C]), attr `rows` = V.
/// f32 accumulation in position order; no atomics; rows nobody names are zero.
struct PutLowering {};

/// Batched a b (+ c, of the result's shape) on the last two axes: `ta`, `tb` transpose; leading axes broadcast. f32 accumulation.
struct GemmLowering {};

/// Hand-tuned launches, found by `kernel` in the target's kernel table; the operand and result order is the op's.
struct KernelLowering {
  std::string kernel;
};

struct DecomposeContext;
/// Built from simpler ops by `decompose`; returns one value per result. Must give the same values as `reference`.
struct DecomposeLowering {
  std::function<std::vector<ValueId>(DecomposeContext&)> build;
};

/// `fuse`: the region is one launch list of its own.
struct RegionLowering {};

using Lowering =
    std::variant<std::monostate, SourceLowering, ScalarLowering, ReduceLowering, ScanLowering, ViewLowering, PackLowering,
                 GenerateLowering, GatherLowering, PutLowering, GemmLowering, KernelLowering, DecomposeLowering, RegionLowering>;

// ---------------------------------------------------------------- contexts an op's functions are given

/// Shape and dtype inference. `fail` throws a located UserError "<op>: <message>".
class InferContext {
 public:
  InferContext(const Graph& graph, const OpDef& def, const std::vector<ValueId>& operands, const Attrs& attrs, Loc loc)
      : graph_(graph), def_(def), operands_(operands), attrs_(attrs), loc_(loc) {}

  int operand_count() const { return static_cast<int>(operands_.size()); }
  bool has(int i) const { return i < operand_count() && operands_[i] != kNone; }
  const Type& type(int i) const { return graph_.type(operands_[i]); }
  /// Types of all present operands.
  std::vector<Type> types() const;
  /// "%h is bf16[8, 1024, 768]" for messages that show both sides.
  std::string show(int i) const;
  const Attrs& attrs() const { return attrs_; }
  void result(Type type) { results_.push_back(std::move(type)); }
  [[noreturn]] void fail(const std::string& message) const;

  // Rules most ops share; each fails with a message that states the rule and both sides.
  void need_float(int i) const;
  void need_integer(int i) const;
  void need_rank(int i, int64_t rank) const;
  void need_shape(int i, const Shape& shape, const std::string& why) const;
  void need_same_shape(int i, int j) const;
  /// The broadcast shape of all present operands.
  Shape broadcast_all() const;
  /// -rank..rank-1 -> 0..rank-1, or fails.
  int64_t axis(int64_t axis, int64_t rank) const;

  std::vector<Type> take_results() { return std::move(results_); }

 private:
  const Graph& graph_;
  const OpDef& def_;
  const std::vector<ValueId>& operands_;
  const Attrs& attrs_;
  Loc loc_;
  std::vector<Type> results_;
};

/// A dense value of the interpreter: every dtype is held in double.
struct Tensor {
  Type type;
  std::vector<double> data;
  Tensor() = default;
  explicit Tensor(Type t, double fill = 0) : type(std::move(t)), data(static_cast<size_t>(type.elements()), fill) {}
};

/// Slow, obvious double-precision meaning of one op. Results arrive with their type set and zero-filled.
struct ReferenceContext {
  const Op& op;
  const Attrs& attrs;
  std::vector<const Tensor*> in;  ///< nullptr for an absent operand
  std::vector<Tensor> out;
  /// A `cast` to 16 bits rounds. Off: everything stays double (InterpretOptions::round).
  bool round = true;

  bool has(int i) const { return i < static_cast<int>(in.size()) && in[i] != nullptr; }
  const Tensor& operand(int i) const { return *in[i]; }
  Tensor& result(int i) { return out[i]; }
};

/// Builds the gradient ops of one op. Gradients build ops; they compute nothing. The engine un-broadcasts what set() is
/// given (sums over broadcast axes, into grad_dtype), accumulates several uses in a fixed order, names it <x>.grad and
/// sets location and phase. What a rule mentions is what gets saved.
class GradientContext {
 public:
  virtual ~GradientContext() = default;
  virtual Builder& b() = 0;
  virtual const Op& op() const = 0;
  const Attrs& attrs() const { return op().attrs; }
  bool has(int i) const { return i < static_cast<int>(op().operands.size()) && op().operands[i] != kNone; }
  virtual ValueId operand(int i) const = 0;  ///< in the new graph
  virtual ValueId result(int i) const = 0;   ///< in the new graph
  /// Gradient of result i, or kNone when nothing depends on it. Its dtype may be f32 though the result is 16-bit.
  virtual ValueId grad(int i) const = 0;
  /// Does operand i need a gradient?
  virtual bool wants(int i) const = 0;
  /// The dtype operand i's gradient should be made in: f32 for (casts of) parameters, else the operand's own.
  virtual DType grad_dtype(int i) const = 0;
  virtual void set(int i, ValueId gradient) = 0;
};

struct DecomposeContext {
  Builder& b;
  const Op& op;                   ///< attributes, types via b.type()
  std::vector<ValueId> operands;  ///< in the new graph; kNone = absent
  /// Which results anything uses; an unused one may be returned as kNone.
  std::vector<bool> used;
  /// Types of the op's results.
  std::vector<Type> result_types;
  bool has(int i) const { return i < static_cast<int>(operands.size()) && operands[i] != kNone; }
  const Attrs& attrs() const { return op.attrs; }
};

// ---------------------------------------------------------------- examples

/// A text of one graph, parsed by the op tests (one op under test, inputs random unless `range` says otherwise). The
/// gradients of all float inputs are checked against central differences unless gradient == nullptr.
struct Example {
  std::string text;            ///< "%y = tanh(%x): f32[2, 3]" lines, with `input %x: f32[2, 3]` lines before
  double lo = -1, hi = 1;      ///< float inputs are drawn uniformly from here
  bool differentiable = true;  ///< false: skip the finite-difference check (kinks, integers)
};

/// Ops that must be refused: graph lines as in Example, and a part of the message.
struct Reject {
  std::string text, message;
};

// ---------------------------------------------------------------- the definition

struct OpDef {
  std::string name;
  std::string summary;  ///< one or more sentences; the formula with its source
  std::vector<OperandDef> operands;
  std::vector<AttrDef> attrs;
  std::vector<ResultDef> results;
  /// Order of positional arguments in the language, operands and attrs mixed; filled by operand() and attr() in call order.
  std::vector<std::string> positional;
  Levels levels = kEverywhere;
  /// In the language, a call with two positional operands means this op instead: max(a, b) is `maximum`.
  std::string binary_form;
  /// Brings attributes to canonical form before inference (negative axes, "all axes"); may throw through the InferContext.
  std::function<void(Attrs&, const InferContext&)> normalize;
  std::function<void(InferContext&)> infer;
  std::function<void(ReferenceContext&)> reference;
  /// nullptr: not differentiable (an error at the YAML line when it stands on the way to the loss).
  std::function<void(GradientContext&)> gradient;
  /// True when the gradient is zero by definition (comparisons, floor, integer results): the engine stops there silently.
  bool gradient_is_zero = false;
  Lowering lowering;
  std::vector<CarryPort> carry;
  std::string starts;  ///< name of the operand that takes document starts (i32[B, T], nonzero = a start), "" = none
  std::vector<Alias> aliases;
  /// Elementwise, and where all operands of the result's shape are 0 the result is 0, whatever finite numbers the others hold (a
  /// divisor among them being positive): the padding of packed variables stays zero under it.
  bool keeps_zeros = false;
  /// Floating-point operations, for MFU and bench; nullptr: one per result element.
  std::function<double(const Graph&, const Op&)> flops;
  std::vector<Example> examples;
  std::vector<Reject> rejects;

  // Fluent building, in the order of the language's positional arguments.
  OpDef& operand(std::string name, std::string doc);
  OpDef& optional_operand(std::string name, std::string doc);
  OpDef& variadic_operand(std::string name, std::string doc);
  OpDef& port_operand(std::string name, std::string doc);  ///< optional, keyword only
  OpDef& attr(std::string name, AttrKind kind, std::string doc);
  OpDef& attr(std::string name, AttrKind kind, Attr fallback, std::string doc);
  OpDef& optional_attr(std::string name, AttrKind kind, std::string doc);
  OpDef& alias(std::string name);  ///< of the attribute added last
  OpDef& result(std::string name, std::string doc);
  OpDef& hidden_result(std::string name, std::string doc);

  int operand_index(std::string_view name) const;  ///< -1 if none
  int result_index(std::string_view name) const;   ///< -1 if none
  const AttrDef* find_attr(std::string_view name) const;
  bool variadic() const { return !operands.empty() && operands.back().variadic; }
};

class OpTable {
 public:
  /// InternalError when the name is taken.
  OpDef& add(std::string name);
  const OpDef* find(std::string_view name) const;
  std::vector<std::string> names() const;  ///< sorted
  std::vector<const OpDef*> all() const;   ///< sorted by name

 private:
  std::vector<std::unique_ptr<OpDef>> defs_;
  std::unordered_map<std::string_view, OpDef*> by_name_;  ///< the names are those of defs_
};

/// Every op of ir/ops/, built once.
const OpTable& op_table();
/// InternalError if unknown.
const OpDef& op_def(std::string_view name);

template <class L>
const L* lowering_as(const Op& op) {
  return std::get_if<L>(&op.def->lowering);
}

}  // namespace ingot::ir
