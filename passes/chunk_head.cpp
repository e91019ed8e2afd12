// chunk_head: a product far wider than its operands (logits), and all that is computed from it row by row, is made for a part of
// the rows at a time, so that only one part of it is ever alive.
//
//   %y = matmul(%x, %w): f32[64, 900]               %x.0 = slice(%x) {starts: [0, 0], sizes: [32, 8]}: f32[32, 8]
//   %e = exp(%y): f32[64, 900]                      %y.0 = matmul(%x.0, %w): f32[32, 900]
//   %l = sum(%e) {axes: [0, 1]}: f32[]              %e.0 = exp(%y.0): f32[32, 900]
//   %d = matmul(%e, %w) {tb: true}           =>     %l.0 = sum(%e.0) {axes: [0, 1]}: f32[]
//   %v = matmul(%x, %e) {ta: true}                  %d.0 = matmul(%e.0, %w) {tb: true}: f32[32, 8]
//                                                   %v.0 = matmul(%x.0, %e.0) {ta: true}: f32[8, 900]
//                                                   ... the same of the other rows: %l = add(%l.0, %l.1),
//                                                   %d = concat(%d.0, %d.1), %v = matmul(%x.1, %e.1, %v.0)
//
// What is repeated: every op that reads or makes something wide, what lies between two such, and what follows with one number a
// row. All must work row by row (elementwise, reductions inside a row or over all rows, changes of shape that keep the rows,
// products whose other operand has no rows, products that sum over all rows); if one does not, or something wide is an output,
// nothing is done. Sums run over the parts in order. All of it belongs to the forward then, the gradients too: they are made
// while their part is there, and one kernel may make the loss and its gradient. The pass `schedule` brings the ops of one part
// together.
// Done when the wide value has more than `least` bytes, in parts of at most `most`; `chunks` says how many.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "passes/algebra.h"
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::Shape;
using ir::ValueId;

struct Options {
  int64_t least = 256 << 20, most = 512 << 20;  ///< bytes
  int64_t chunks = 0;                           ///< 0: by bytes
};

int64_t product(const Shape& shape, size_t first, size_t last) {
  int64_t n = 1;
  for (size_t i = first; i < last; ++i) n *= shape[i];
  return n;
}

/// How many leading axes make up `rows`.
std::optional<size_t> row_axes(const Shape& shape, int64_t rows) {
  int64_t n = 1;
  for (size_t p = 0; p <= shape.size(); ++p) {
    if (n == rows && p > 0) return p;
    if (p < shape.size()) n *= shape[p];
  }
  return std::nullopt;
}

bool is_scalar(const Op& op) { return ir::lowering_as<ir::ScalarLowering>(op) != nullptr; }

/// The ops to repeat for one wide product, or nothing.
class Cluster {
 public:
  Cluster(const Graph& graph, OpId product) : graph_(graph), size_(graph.ops().size()), product_(product) {
    const ir::Type& type = graph.type(graph.op(product).results[0]);
    rows = ir::element_count(type.shape) / type.shape.back();
    wide_ = type.elements();
    inside.assign(size_, false);
    rowed.assign(graph.values().size(), false);
  }

  int64_t rows = 0;
  std::vector<bool> inside;  ///< per op: repeated
  std::vector<bool> rowed;   ///< per value: made by such an op, a part for each part of the rows
  std::vector<bool> after;   ///< per op: depends on a repeated one, and is none

  bool find() {
    mark_wide();
    mark_between();
    for (OpId id = 0; id < size_; ++id) {
      if (inside[id] && !repeats(graph_.op(id))) return false;
    }
    mark_row_numbers();
    return !leaks();
  }

  /// The same for an operand that broadcasts: the rows are what stands before its last `rest` axes. As many columns as there are
  /// rows are no rows.
  bool has_rows(ValueId value, size_t rest) const {
    const Shape& shape = graph_.type(value).shape;
    return has_rows(value) && shape.size() > rest && product(shape, 0, shape.size() - rest) == rows;
  }

  /// Is this operand of a repeated op a value with rows?
  bool has_rows(ValueId value) const {
    if (rowed[value]) return true;
    if (inside[graph_.value(value).op]) return false;  // a sum over the rows
    return row_axes(graph_.type(value).shape, rows).has_value();
  }

 private:
  bool wide(ValueId value) const {
    return value != kNone && graph_.type(value).elements() == wide_ && row_axes(graph_.type(value).shape, rows);
  }

  template <class Values, class Test>
  static bool any(const Values& values, Test test) {
    return std::any_of(values.begin(), values.end(), [&](ValueId v) { return v != kNone && test(v); });
  }

  // What depends on the product and reads or makes something as wide.
  void mark_wide() {
    inside[product_] = true;
    const std::vector<bool> below = depending();
    for (OpId id = product_; id < size_; ++id) {
      const Op& op = graph_.op(id);
      const auto test = [&](ValueId v) { return wide(v) && below[graph_.value(v).op]; };
      inside[id] = any(op.operands, test) || any(op.results, test);
    }
    // And what is as wide and made for those (which class is the target's).
    std::vector<bool> wanted(size_, false);
    for (OpId id = static_cast<OpId>(size_); id-- > 0;) {
      const Op& op = graph_.op(id);
      inside[id] = inside[id] || (wanted[id] && !ir::lowering_as<ir::SourceLowering>(op));
      if (!inside[id]) continue;
      for (const ValueId operand : op.operands) {
        if (wide(operand)) wanted[graph_.value(operand).op] = true;
      }
    }
  }

  std::vector<bool> depending() const {
    std::vector<bool> below = inside;
    for (OpId id = 0; id < size_; ++id) {
      below[id] = below[id] || any(graph_.op(id).operands, [&](ValueId v) { return below[graph_.value(v).op]; });
    }
    return below;
  }

  void mark_between() {
    const std::vector<bool> below = depending();
    std::vector<bool> above = inside;
    for (OpId id = static_cast<OpId>(size_); id-- > 0;) {
      if (!above[id]) continue;
      for (const ValueId operand : graph_.op(id).operands) {
        if (operand != kNone) above[graph_.value(operand).op] = true;
      }
    }
    for (OpId id = 0; id < size_; ++id) inside[id] = inside[id] || (below[id] && above[id]);
  }

  // What has one number a row costs least where the rows are, and so does a sum of such.
  void mark_row_numbers() {
    for (OpId id = 0; id < size_; ++id) {
      const Op& op = graph_.op(id);
      if (inside[id] || op.results.size() != 1) continue;
      const bool reads = any(op.operands, [&](ValueId v) {
        return inside[graph_.value(v).op] && graph_.type(v).elements() == rows && row_axes(graph_.type(v).shape, rows);
      });
      inside[id] = reads && graph_.type(op.results[0]).elements() <= rows && repeats(op);
    }
  }

  // ---------------------------------------------------------------- can this op be made for a part of the rows?

  bool repeats(const Op& op) {
    if (op.results.size() != 1) return false;
    bool sums = false;
    if (!repeats(op, sums)) return false;
    rowed[op.results[0]] = !sums;
    return true;
  }

  bool repeats(const Op& op, bool& sums) const {
    if (is_scalar(op)) return elementwise(op);
    if (const auto* reduce = ir::lowering_as<ir::ReduceLowering>(op)) return reduction(op, *reduce, sums);
    if (ir::lowering_as<ir::ViewLowering>(op)) return view(op);
    return is_gemm(op) && gemm(op, sums);
  }

  // Every operand has all rows, or none.
  bool elementwise(const Op& op) const {
    const Shape& shape = graph_.type(op.results[0]).shape;
    const auto p = row_axes(shape, rows);
    if (!p) return false;
    return std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId v) { return v == kNone || fits(v, shape, *p); });
  }

  bool fits(ValueId value, const Shape& shape, size_t p) const {
    const Shape& own = graph_.type(value).shape;
    const size_t rest = shape.size() - p;
    const size_t leading = own.size() > rest ? own.size() - rest : 0;
    if (has_rows(value, rest))
      return leading == p && std::equal(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(p), shape.begin());
    return product(own, 0, leading) == 1 && !inside[graph_.value(value).op];
  }

  bool reduction(const Op& op, const ir::ReduceLowering& reduce, bool& sums) const {
    if (!has_rows(op.operands[0])) return false;
    const size_t p = *row_axes(graph_.type(op.operands[0]).shape, rows);
    const auto& axes = op.attrs.integers("axes");
    const auto of_rows = std::count_if(axes.begin(), axes.end(), [&](int64_t a) { return a < static_cast<int64_t>(p); });
    if (of_rows == 0) return true;
    sums = true;
    return of_rows == static_cast<int64_t>(p) && reduce.combine == ir::Combine::sum && !op.attrs.boolean("keep") &&
           graph_.type(op.results[0]).dtype == DType::f32;
  }

  // Changes of shape, and spreading one value of a row over it.
  bool view(const Op& op) const {
    if (!has_rows(op.operands[0]) || !op.attrs.has("shape")) return false;
    const ir::Type& to = graph_.type(op.results[0]);
    const auto p = row_axes(to.shape, rows);
    if (!p) return false;
    return is_reshape(graph_, op) || fits(op.operands[0], to.shape, *p);
  }

  bool gemm(const Op& op, bool& sums) const {
    const bool ta = op.attrs.boolean("ta");
    const ValueId a = op.operands[0], b = op.operands[1], c = gemm_addend(op);
    const auto flat = [&](ValueId v) { return graph_.type(v).shape.size() == 2 && graph_.type(v).shape[0] == rows; };
    if (ta) {
      sums = true;
      return flat(a) && flat(b) && has_rows(a) && has_rows(b) && !op.attrs.boolean("tb") &&
             (c == kNone || (!inside[graph_.value(c).op] && graph_.type(c).dtype == DType::f32));
    }
    const bool plain = graph_.type(b).shape.size() == 2 && !inside[graph_.value(b).op];
    return flat(a) && has_rows(a) && plain && (c == kNone || (flat(c) && has_rows(c)));
  }

  // Something wide that is kept, or something from outside that depends on what is inside.
  bool leaks() {
    after = depending();
    for (OpId id = 0; id < size_; ++id) {
      if (inside[id]) after[id] = false;
    }
    const auto kept = [&](ValueId v) { return wide(v) && inside[graph_.value(v).op]; };
    for (const ir::Output& output : graph_.outputs()) {
      if (kept(output.value)) return true;
    }
    for (const ir::Update& update : graph_.updates()) {
      if (kept(update.value)) return true;
    }
    for (OpId id = 0; id < size_; ++id) {
      if (inside[id] && any(graph_.op(id).operands, [&](ValueId v) { return after[graph_.value(v).op]; })) return true;
    }
    return false;
  }

  const Graph& graph_;
  const size_t size_;
  const OpId product_;
  int64_t wide_ = 0;  ///< elements
};

/// Writes the graph with the cluster's ops once per part.
class Chunker {
 public:
  Chunker(const Graph& graph, const Cluster& cluster, int64_t chunks)
      : graph_(graph), cluster_(cluster), chunks_(chunks), part_(cluster.rows / chunks), out_(like(graph)), rw_(graph, out_) {}

  Graph run() {
    const size_t count = graph_.ops().size();
    for (OpId id = 0; id < count; ++id) {
      if (!cluster_.inside[id] && !cluster_.after[id]) rw_.copy(graph_.op(id));
    }
    for (chunk_ = 0; chunk_ < chunks_; ++chunk_) {
      slices_.clear();
      now_.clear();
      for (OpId id = 0; id < count; ++id) {
        if (cluster_.inside[id]) repeat(graph_.op(id));
      }
    }
    join();
    for (OpId id = 0; id < count; ++id) {
      if (cluster_.after[id]) rw_.copy(graph_.op(id));
    }
    rw_.finish();
    return with_names(out_, names_);
  }

 private:
  // A part has its rows on one axis; what has no rows loses leading axes of size 1, so that it still broadcasts.
  Shape part_shape(const Shape& shape) const {
    const size_t p = *row_axes(shape, cluster_.rows);
    Shape out{part_};
    out.insert(out.end(), shape.begin() + static_cast<std::ptrdiff_t>(p), shape.end());
    return out;
  }

  ValueId without_rows(ValueId old, size_t rest) {
    const ValueId now = rw_(old);
    const Shape& shape = out_.type(now).shape;
    if (shape.size() <= rest) return now;
    return rw_.b().reshape(now, Shape(shape.end() - static_cast<std::ptrdiff_t>(rest), shape.end()));
  }

  // This part of a value from outside: of what it is a reshape of, which is the forward's own.
  ValueId slice(ValueId old) {
    ValueId base = old;
    while (is_reshape(graph_, graph_.maker(base)) && row_axes(graph_.type(graph_.maker(base).operands[0]).shape, cluster_.rows)) {
      base = graph_.maker(base).operands[0];
    }
    ir::Builder& b = rw_.b();
    b.set_name(part_name(base));
    b.set_phase(ir::Phase::forward);
    const auto [at, fresh] = slices_.try_emplace(base, kNone);
    if (fresh) {
      const Shape part = part_shape(graph_.type(base).shape);
      Shape all = part;
      all[0] = cluster_.rows;
      std::vector<int64_t> starts(all.size(), 0);
      starts[0] = chunk_ * part_;
      at->second = b.slice(in_shape(b, rw_(base), all), std::move(starts), part);
    }
    return in_shape(b, at->second, part_shape(graph_.type(old).shape));
  }

  std::string part_name(ValueId old) const { return fmt::format("{}.part{}", graph_.value(old).name, chunk_); }

  /// `with_rows`: is it cut, when it comes from outside?
  ValueId operand(ValueId old, bool with_rows, size_t rest) {
    if (old == kNone) return kNone;
    if (const auto at = now_.find(old); at != now_.end()) return at->second;
    return with_rows ? slice(old) : without_rows(old, rest);
  }

  // Of an op that is made row by row. The right side of a product is one for all rows, whatever its size.
  bool operand_has_rows(const Op& op, size_t i, size_t rest) const {
    const ValueId value = op.operands[i];
    if (value == kNone) return false;
    if (is_gemm(op)) return i != 1 && cluster_.has_rows(value);
    return is_scalar(op) ? cluster_.has_rows(value, rest) : cluster_.has_rows(value);
  }

  void repeat(const Op& op) {
    const ValueId result = op.results[0];
    if (!cluster_.rowed[result]) return sum(op);
    const ir::Type& type = graph_.type(result);
    const size_t rest = part_shape(type.shape).size() - 1;
    std::vector<ValueId> operands;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const size_t kept = is_gemm(op) ? 2 : is_scalar(op) ? rest : graph_.type(op.operands[i]).shape.size();
      operands.push_back(operand(op.operands[i], operand_has_rows(op, i, rest), kept));
    }
    ir::Attrs attrs = op.attrs;
    if (attrs.has("shape")) attrs.set("shape", part_shape(type.shape));
    if (attrs.has("axes")) attrs.set("axes", part_axes(op));
    const ValueId made = place(op, std::move(operands), std::move(attrs));
    ir::check(out_.type(made) == ir::Type{type.dtype, part_shape(type.shape)}, "chunk_head: a part of another type");
    now_[result] = made;
    parts_[result].push_back(made);
  }

  ValueId place(const Op& op, std::vector<ValueId> operands, ir::Attrs attrs) {
    ir::Builder& b = rw_.b();
    rw_.at(op);
    b.set_name(part_name(op.results[0]));
    b.set_phase(ir::Phase::forward);
    return b.op(*op.def, std::move(operands), std::move(attrs)).results[0];
  }

  std::vector<int64_t> part_axes(const Op& op) const {
    const auto p = static_cast<int64_t>(*row_axes(graph_.type(op.operands[0]).shape, cluster_.rows));
    std::vector<int64_t> axes;
    for (const int64_t axis : op.attrs.integers("axes")) {
      if (axis >= p) axes.push_back(axis - p + 1);
    }
    return axes;
  }

  // A sum over all rows: this part's, added to those before it.
  void sum(const Op& op) {
    const ValueId result = op.results[0];
    const auto before = sums_.find(result);
    std::vector<ValueId> operands;
    for (size_t i = 0; i < 2 && i < op.operands.size(); ++i)
      operands.push_back(operand(op.operands[i], cluster_.has_rows(op.operands[i]), 2));
    ir::Attrs attrs = op.attrs;
    if (is_gemm(op)) {
      const ValueId c = before != sums_.end() ? before->second : rw_(gemm_addend(op));
      if (c != kNone) operands.push_back(c);
      attrs.set("dtype", DType::f32);
      ValueId sum = place(op, std::move(operands), std::move(attrs));
      // Rounded once, after the last part, when that part is no longer needed: the sum stays where it is until then.
      if (chunk_ + 1 == chunks_ && graph_.type(result).dtype != DType::f32) sum = rw_.b().cast(sum, graph_.type(result).dtype);
      sums_[result] = sum;
      return;
    }
    std::vector<int64_t> axes = part_axes(op);
    axes.insert(axes.begin(), 0);
    attrs.set("axes", axes);
    const ValueId part = place(op, std::move(operands), std::move(attrs));
    sums_[result] = before == sums_.end() ? part : rw_.b().add(before->second, part);
  }

  // What the rest of the graph reads, whole again.
  void join() {
    for (const auto& [old, value] : sums_) {
      rw_.map(old, value);
      names_[value] = graph_.value(old).name;
    }
    for (const ValueId old : read_outside()) {
      ir::Builder& b = rw_.b();
      rw_.at(graph_.maker(old));
      b.set_phase(ir::Phase::forward);
      rw_.map(old, b.reshape(b.concat(parts_.at(old), 0), graph_.type(old).shape));
      names_[rw_(old)] = graph_.value(old).name;
    }
  }

  std::set<ValueId> read_outside() const {
    std::set<ValueId> values;
    const auto note = [&](ValueId value) {
      if (value != kNone && cluster_.rowed[value]) values.insert(value);
    };
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      if (!cluster_.after[id]) continue;
      for (const ValueId operand : graph_.op(id).operands) note(operand);
    }
    for (const ir::Output& output : graph_.outputs()) note(output.value);
    for (const ir::Update& update : graph_.updates()) note(update.value);
    return values;
  }

  const Graph& graph_;
  const Cluster& cluster_;
  const int64_t chunks_, part_;
  int64_t chunk_ = 0;
  Graph out_;
  ir::Rewriter rw_;
  std::map<ValueId, ValueId> slices_, now_;        ///< of this part
  std::map<ValueId, std::vector<ValueId>> parts_;  ///< all parts of what has rows
  std::map<ValueId, ValueId> sums_;                ///< of the parts so far
  std::unordered_map<ValueId, std::string> names_;
};

// A product of plain rows by something without rows, many times as wide as they are.
bool far_wider(const Graph& graph, const Op& op, int64_t times) {
  if (!is_gemm(op) || op.attrs.boolean("ta") || op.phase != ir::Phase::forward) return false;
  const Shape &a = graph.type(op.operands[0]).shape, &y = graph.type(op.results[0]).shape;
  return y.size() == 2 && y[1] > times * a[1];
}

// How many parts, all of the same rows; 1: none.
int64_t chunk_count(const ir::Type& type, const Options& options) {
  const int64_t rows = type.shape[0];
  if (options.chunks == 0 && type.bytes() <= options.least) return 1;
  int64_t chunks = options.chunks > 0 ? options.chunks : std::max<int64_t>(2, (type.bytes() + options.most - 1) / options.most);
  while (chunks < rows && rows % chunks != 0) ++chunks;
  return chunks < rows ? chunks : 1;
}

bool parted(const Graph& graph) {
  return std::any_of(graph.values().begin(), graph.values().end(),
                     [](const ir::Value& value) { return value.name.ends_with(".part0"); });
}

Graph run(const Graph& graph, PassContext& context) {
  Options options;
  options.least = std::stoll(context.option("least", std::to_string(options.least)));
  options.most = std::stoll(context.option("most", std::to_string(options.most)));
  options.chunks = std::stoll(context.option("chunks", "0"));
  if (parted(graph)) return graph;
  for (OpId id = 0; id < graph.ops().size(); ++id) {
    const Op& op = graph.op(id);
    if (!far_wider(graph, op, options.chunks > 0 ? 1 : 7)) continue;
    const int64_t chunks = chunk_count(graph.type(op.results[0]), options);
    if (chunks == 1) continue;
    Cluster cluster(graph, id);
    if (cluster.find()) return Chunker(graph, cluster, chunks).run();
  }
  return graph;
}

}  // namespace

PassInfo chunk_head_pass() {
  return {"chunk_head",
          "Makes a product far wider than its operands, and what is computed from it, for a part of the rows at a time.",
          {"least", "most", "chunks"},
          false,
          run};
}

}  // namespace ingot::passes
