// fold: computes at compile time what depends on constants alone, through the reference of each op.
//
//   %0 = constant() {value: 2.0}: f32[]
//   %1 = constant() {value: 3.0}: f32[]   =>   %2 = constant() {value: 6.0}: f32[]
//   %2 = mul(%0, %1): f32[]
//
// Values of at most 64 elements are followed; what is replaced is a result that one number describes: a constant, or a
// constant broadcast. f32 results keep the double that the reference gives; casts round; other 16-bit results fold only when
// they are exact. So the interpreter with 16-bit rounding gives the same to the last bit. Results that are not finite stay for
// the machine to compute: they are somebody's mistake and should be met where it was made.
#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/graph/interpret.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kMostElements = 64;

class Fold {
 public:
  explicit Fold(const Graph& graph) : graph_(graph), out_(like(graph)), rw_(graph, out_), known_(graph.values().size()) {}

  Graph run() {
    for (const Op& op : graph_.ops()) visit(op);
    rw_.finish();
    return std::move(out_);
  }

 private:
  bool can_follow(const Op& op) const {
    const auto& lowering = op.def->lowering;
    if (std::holds_alternative<ir::SourceLowering>(lowering) || op.region || !op.def->reference) return false;
    for (ValueId result : op.results) {
      if (graph_.type(result).elements() > kMostElements) return false;
    }
    return std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId o) { return o == kNone || known_[o].has_value(); });
  }

  static bool exact(const Tensor& tensor) {
    const DType dtype = tensor.type.dtype;
    return std::all_of(tensor.data.begin(), tensor.data.end(), [&](double v) {
      if (!std::isfinite(v) || std::abs(v) > 3e38) return false;
      if (dtype == DType::i32 || dtype == DType::i64) return std::abs(v) < 2147483648.0;
      return dtype == DType::f32 || ir::round_to(dtype, v) == v;
    });
  }

  // An op whose result a constant is already, or a constant spread out, has nothing to gain.
  static bool settled(const Graph& graph, const Op& op) {
    if (op.name() == "constant") return true;
    return op.name() == "broadcast" && graph.maker(op.operands[0]).name() == "constant";
  }

  static bool uniform(const Tensor& tensor) {
    const auto bits = [](double v) { return std::bit_cast<uint64_t>(v); };
    return std::all_of(tensor.data.begin(), tensor.data.end(), [&](double v) { return bits(v) == bits(tensor.data[0]); });
  }

  void visit(const Op& op) {
    if (!can_follow(op)) return rw_.copy(op);
    std::vector<const Tensor*> operands;
    for (ValueId operand : op.operands) operands.push_back(operand == kNone ? nullptr : &*known_[operand]);
    std::vector<Tensor> results;
    try {
      results = ir::interpret_op(graph_, op, operands);
    } catch (const std::exception&) {
      return rw_.copy(op);  // outside the op's domain (an id past its table): like what is not finite
    }
    // Integers are cut when stored, whatever the reference computed.
    for (Tensor& result : results) {
      if (ir::is_float(result.type.dtype)) continue;
      for (double& v : result.data) v = ir::round_to(result.type.dtype, v);
    }
    if (!std::all_of(results.begin(), results.end(), exact)) return rw_.copy(op);
    if (settled(graph_, op) || !std::all_of(results.begin(), results.end(), uniform)) {
      rw_.copy(op);
    } else {
      for (size_t i = 0; i < results.size(); ++i) replace(op, op.results[i], results[i]);
    }
    for (size_t i = 0; i < results.size(); ++i) known_[op.results[i]] = std::move(results[i]);
  }

  void replace(const Op& op, ValueId old, const Tensor& value) {
    ir::Builder& b = rw_.b();
    rw_.at(op);
    const std::string& name = graph_.value(old).name;
    ir::Attrs attrs;
    attrs.set("value", value.data[0]);
    attrs.set("dtype", value.type.dtype);
    const bool scalar = value.type.rank() == 0;
    ValueId made = b.op("constant", {}, std::move(attrs), {scalar ? name : ""}).results[0];
    if (!scalar) {
      b.set_name(name);
      made = b.broadcast(made, value.type.shape);
    }
    rw_.map(old, made);
  }

  const Graph& graph_;
  Graph out_;
  ir::Rewriter rw_;
  std::vector<std::optional<Tensor>> known_;
};

}  // namespace

PassInfo fold_pass() {
  return {"fold", "Computes at compile time what depends on constants alone.", {}, false, [](const Graph& graph, PassContext&) {
            return Fold(graph).run();
          }};
}

}  // namespace ingot::passes
