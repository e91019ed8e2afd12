#include "passes/storage.h"

#include <algorithm>
#include <unordered_map>

#include "ir/base/text.h"
#include "ir/graph/op_def.h"
#include "passes/algebra.h"

namespace ingot::passes {

using ir::DType;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::ValueId;

namespace {

template <class L>
bool is(const Op& op) {
  return std::holds_alternative<L>(op.def->lowering);
}

bool row_op(const Op& op) { return is<ir::ScalarLowering>(op) || is<ir::ReduceLowering>(op); }

/// One float in, the same float out, in another dtype.
bool only_converts(const Graph& graph, const Op& op) {
  const auto* scalar = std::get_if<ir::ScalarLowering>(&op.def->lowering);
  return scalar && op.operands.size() == 1 && scalar->bodies.size() == 1 && scalar->bodies[0] == "a0" &&
         is_float(graph.type(op.operands[0]).dtype) && is_float(graph.type(op.results[0]).dtype);
}

size_t mix(size_t seed, size_t more) { return seed ^ (more + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2)); }

}  // namespace

bool widens(const Graph& graph, const Op& op) {
  return only_converts(graph, op) && dtype_bytes(graph.type(op.results[0]).dtype) > dtype_bytes(graph.type(op.operands[0]).dtype);
}

int64_t preferred_rows(const Graph& graph) {
  for (const Op& op : graph.ops()) {
    if (op.name() != "input") continue;
    const ir::Type& type = graph.type(op.results[0]);
    if (!is_float(type.dtype) && type.rank() == 2) return type.elements();
  }
  return 0;
}

StorageOptions storage_options(const Graph& graph, const PassContext& context) {
  StorageOptions options;
  const std::string narrow = context.option("narrow", "f32");
  options.narrow = ir::dtype_from_name(narrow);
  if (!options.narrow || !is_float(*options.narrow)) {
    throw ir::UserError({}, "narrow must be f32, bf16 or f16, but is '" + narrow + "'");
  }
  if (options.narrow == DType::f32) options.narrow.reset();
  options.rows = std::stoll(context.option("rows", std::to_string(preferred_rows(graph))));
  options.pins = context.module.precision.pin;
  return options;
}

Storage::Storage(const Graph& graph, StorageOptions options) : graph_(graph), options_(std::move(options)) {
  find_twins();
  find_candidates();
  find_bases();
  if (!options_.narrow) return;
  // Whoever must stay takes its twins along, and a cast that shows nothing any more is a reader like any other.
  for (bool changed = true; changed;) {
    changed = false;
    const std::vector<bool> refused = refused_twins();
    for (ValueId value = 0; value < narrows_.size(); ++value) {
      if (narrows_[value] && refused[twins_[value]]) narrows_[value] = false, changed = true;
    }
    if (changed) find_bases();
  }
}

// By the number of their twins: values that stay as they are typed.
std::vector<bool> Storage::refused_twins() const {
  std::vector<bool> refused(graph_.values().size(), false);
  const auto refuse = [&](ValueId value) { refused[twins_[base_[value]]] = true; };
  for (ValueId value = 0; value < narrows_.size(); ++value) {
    if (!narrows_[value]) refused[twins_[value]] = true;
    if (pinned(value)) refuse(value);
  }
  for (const ir::Update& update : graph_.updates()) refuse(update.value);
  for (OpId id = 0; id < graph_.ops().size(); ++id) {
    const Op& op = graph_.op(id);
    if (along_[id] || (row_op(op) && op.phase != ir::Phase::optimizer)) continue;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] != kNone && !takes_narrow(op, i)) refuse(op.operands[i]);
    }
  }
  return refused;
}

// May an op that is no row op be given this operand in the compute dtype? When it reads it so anyway; and what a gemm adds may be
// in the dtype of its result.
bool Storage::takes_narrow(const Op& op, size_t operand) const {
  if (op.phase == ir::Phase::optimizer) return false;
  if (graph_.type(op.operands[operand]).dtype == *options_.narrow) return true;
  const ValueId result = op.results[0];
  return is<ir::GemmLowering>(op) && operand == kGemmAddend &&
         (narrows_[result] || graph_.type(result).dtype == *options_.narrow);
}

bool Storage::pinned(ValueId value) const {
  return std::any_of(options_.pins.begin(), options_.pins.end(),
                     [&](const std::string& pin) { return ir::glob_match(pin, graph_.value(value).name); });
}

int64_t Storage::bytes(ValueId value) const {
  const ir::Type& type = graph_.type(value);
  return narrows_[value] ? type.elements() * dtype_bytes(*options_.narrow) : type.bytes();
}

void Storage::find_twins() {
  twins_.resize(graph_.values().size());
  std::unordered_multimap<size_t, OpId> seen;
  const auto same = [&](const Op& a, const Op& b) {
    if (a.def != b.def || a.operands.size() != b.operands.size() || a.results.size() != b.results.size()) return false;
    for (size_t i = 0; i < a.operands.size(); ++i) {
      const ValueId x = a.operands[i], y = b.operands[i];
      if ((x == kNone) != (y == kNone) || (x != kNone && twins_[x] != twins_[y])) return false;
    }
    return graph_.type(a.results[0]) == graph_.type(b.results[0]) && a.attrs == b.attrs;
  };
  for (OpId id = 0; id < graph_.ops().size(); ++id) {
    const Op& op = graph_.op(id);
    for (ValueId result : op.results) twins_[result] = result;
    if (is<ir::SourceLowering>(op) || op.region || op.results.empty()) continue;
    size_t hash = std::hash<const void*>()(op.def);
    for (ValueId operand : op.operands) hash = mix(hash, operand == kNone ? 0 : twins_[operand] + 1);
    const auto [first, last] = seen.equal_range(hash);
    const auto found = std::find_if(first, last, [&](const auto& entry) { return same(op, graph_.op(entry.second)); });
    if (found == last) {
      seen.emplace(hash, id);
    } else {
      for (size_t i = 0; i < op.results.size(); ++i) twins_[op.results[i]] = graph_.op(found->second).results[i];
    }
  }
}

// Rows run from inputs through everything but products and sums over them.
bool Storage::has_rows(const Op& op) const {
  if (is<ir::SourceLowering>(op)) return op.name() == "input";
  const auto rows = [&](size_t i) { return i < op.operands.size() && op.operands[i] != kNone && rows_[op.operands[i]]; };
  if (is<ir::GemmLowering>(op)) {
    const bool a = rows(0) && !op.attrs.boolean("ta"), b = rows(1) && op.attrs.boolean("tb");
    return a || b;
  }
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (rows(i)) return true;
  }
  return false;
}

void Storage::find_candidates() {
  rows_.assign(graph_.values().size(), false);
  narrows_.assign(graph_.values().size(), false);
  if (!options_.narrow || options_.rows <= 0) return;
  // The leading axes make up the rows, and there is more than one number a row.
  const auto shaped = [&](const ir::Shape& shape) {
    int64_t product = 1;
    for (size_t i = 0; i < shape.size() && product <= options_.rows; ++i) {
      product *= shape[i];
      if (product == options_.rows) return i + 1 < shape.size() && shape.back() > 1;
    }
    return false;
  };
  std::vector<bool> behind(graph_.values().size(), false);  // a product or a kernel
  for (const Op& op : graph_.ops()) {
    const bool rows = has_rows(op), makes = is<ir::ScalarLowering>(op) || is<ir::GemmLowering>(op);
    const bool late = is<ir::GemmLowering>(op) || is<ir::KernelLowering>(op) ||
                      std::any_of(op.operands.begin(), op.operands.end(), [&](ValueId v) { return v != kNone && behind[v]; });
    for (ValueId result : op.results) {
      rows_[result] = rows;
      behind[result] = late;
      const ir::Type& type = graph_.type(result);
      narrows_[result] = makes && rows && late && op.phase != ir::Phase::optimizer && type.dtype == DType::f32 &&
                         shaped(type.shape) && (is<ir::GemmLowering>(op) ? !adds_bias(graph_, op) : op.def->aliases.empty()) &&
                         !widens(graph_, op);
    }
  }
}

void Storage::find_bases() {
  base_.resize(graph_.values().size());
  along_.assign(graph_.ops().size(), false);
  for (OpId id = 0; id < graph_.ops().size(); ++id) {
    const Op& op = graph_.op(id);
    for (ValueId result : op.results) base_[result] = result;
    if (is<ir::GenerateLowering>(op)) along_[id] = true;
    bool shows = is<ir::ViewLowering>(op) || widens(graph_, op);
    if (!shows && options_.narrow && only_converts(graph_, op) && graph_.type(op.results[0]).dtype == *options_.narrow) {
      const ValueId behind = base_[op.operands[0]];
      shows = narrows_[behind] || graph_.type(behind).dtype == *options_.narrow;
    }
    if (!shows) continue;
    along_[id] = true;
    base_[op.results[0]] = base_[op.operands[0]];
  }
}

}  // namespace ingot::passes
