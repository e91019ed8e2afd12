// lerp: a narrow product of rows mixed with their neighbours is made from the rows as they are.
//
//   %p = shift_rows(%x) {by: 1}          %c = sub(1, %mu)
//   %d = sub(%p, %x)                     %a = mul(%w, %c), %b = mul(%w, %mu)        both by channel, as large as %w
//   %s = mul(%d, %mu)             =>     %z = matmul(%x, concat(%a, %b))            twice the columns
//   %m = add(%x, %s)                     %y = add(%z[:, :r], shift_rows(%z[:, r:]))
//   %y = matmul(%m, %w)
//
// By linearity: (x (1 - mu) + S x mu) W = x ((1 - mu) W) + S (x (mu W)), S being any view that moves whole rows. Products over
// the same x become one, which reads x once. What a row is mixed with is found by algebra, from what scalar bodies and views
// mean: any sums, differences, negations and products by channel that come to x c + (S x) d. Before autodiff, so gradients of x,
// mu and W are those of what stands here; composites count as what they are written out in.
//
// It is bytes against operations: the mixed rows are never stored, but the product has twice the columns, forward and in both
// gradients. Taken only when the bytes saved, at `flops_per_byte` (what products do in the time a byte is copied, the target's to
// say), are worth more than the operations added, and never when more rows are kept for the backward. Operations count by whole
// tiles of results and rounds of tiles: a product that does not fill the device takes more columns for nothing. Among products
// over one x the narrower ones are asked first; the best number of them is taken. In the compute dtype (`dtype`) the rows and the
// mixed weights are rounded, in place of the mixed rows and the weights.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ir/base/text.h"
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

// ---------------------------------------------------------------- what ops are written out in

/// An op on inputs of its own, a composite written out behind itself.
struct WrittenOut {
  Graph graph{"trial"};
  std::vector<ValueId> inputs;  ///< per operand
  ValueId result = kNone;       ///< of the op's first result
};

WrittenOut write_out(const Graph& graph, const Op& op) {
  WrittenOut out;
  out.graph.set_level(graph.level());
  ir::Builder b(out.graph);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ValueId old = op.operands[i];
    out.inputs.push_back(old == kNone ? kNone : b.input("a" + std::to_string(i), graph.type(old)));
  }
  const Op made = b.op(*op.def, out.inputs, op.attrs);
  out.result = made.results[0];
  if (const auto* composite = ir::lowering_as<ir::DecomposeLowering>(made)) {
    ir::DecomposeContext context{b, made, made.operands, std::vector<bool>(made.results.size(), false), {}};
    context.used[0] = true;
    for (const ValueId result : made.results) context.result_types.push_back(out.graph.type(result));
    out.result = composite->build(context)[0];
  }
  return out;
}

bool has_one_result(const Op& op) { return !op.region && !op.results.empty() && !op.operands.empty() && op.operands[0] != kNone; }

/// A view that moves whole rows of the last axis and leaves them as they are, zero where there is none.
struct RowView {
  const ir::OpDef* def = nullptr;
  ir::Attrs attrs;
  bool operator==(const RowView&) const = default;

  bool moves_rows(const ir::Type& type) const {
    const ir::View view = std::get<ir::ViewLowering>(def->lowering).map(type, type, attrs);
    if (view.guard_axis < 0 || view.offset != 0) return false;
    int64_t stride = 1, row = 1;
    for (size_t k = view.dims.size(); k-- > 0; stride *= view.dims[k]) {
      if (view.strides[k] != stride) return false;
      if (static_cast<int>(k) > view.guard_axis) row *= view.dims[k];
    }
    return row % type.shape.back() == 0;
  }
};

std::optional<RowView> row_view(const Graph& graph, const Op& op) {
  const bool maybe = ir::lowering_as<ir::ViewLowering>(op) || ir::lowering_as<ir::DecomposeLowering>(op);
  if (!maybe || !has_one_result(op) || graph.type(op.operands[0]) != graph.type(op.results[0])) return std::nullopt;
  const WrittenOut out = write_out(graph, op);
  const Op& made = out.graph.maker(out.result);
  if (!ir::lowering_as<ir::ViewLowering>(made) || made.operands[0] != out.inputs[0]) return std::nullopt;
  RowView view{made.def, made.attrs};
  return view.moves_rows(graph.type(op.results[0])) ? std::optional(view) : std::nullopt;
}

/// y [..., n] = x [..., k] times a matrix, [n, k] when `tb`; nothing added.
struct Product {
  bool tb = false;
};

std::optional<Product> product(const Graph& graph, const Op& op) {
  const bool maybe = is_gemm(op) || ir::lowering_as<ir::DecomposeLowering>(op);
  const auto present = std::count_if(op.operands.begin(), op.operands.end(), [](ValueId v) { return v != kNone; });
  if (!maybe || !has_one_result(op) || op.operands.size() < 2 || op.operands[1] == kNone || present != 2) return std::nullopt;
  if (graph.type(op.operands[1]).rank() != 2 || graph.type(op.operands[0]).rank() < 2) return std::nullopt;
  const WrittenOut out = write_out(graph, op);
  const auto behind_reshapes = [&](ValueId value) {
    while (is_reshape(out.graph, out.graph.maker(value))) value = out.graph.maker(value).operands[0];
    return value;
  };
  const Op& gemm = out.graph.maker(behind_reshapes(out.result));
  if (!is_gemm(gemm) || gemm_addend(gemm) != kNone || gemm.attrs.boolean("ta")) return std::nullopt;
  if (behind_reshapes(gemm.operands[0]) != out.inputs[0] || gemm.operands[1] != out.inputs[1]) return std::nullopt;
  // Row for row: the last axis is the only one that changes.
  Shape rows = graph.type(op.operands[0]).shape, made = graph.type(op.results[0]).shape;
  rows.back() = made.back() = 0;
  const ir::Type &x = graph.type(op.operands[0]), &y = graph.type(op.results[0]);
  if (rows != made || x.dtype != DType::f32 || y.dtype != DType::f32) return std::nullopt;
  return Product{gemm.attrs.boolean("tb")};
}

/// Does the op store what it makes, whatever reads it, and read what it is given from memory?
bool stores(const Graph& graph, const Op& op) {
  const auto fuses = [](const Op& piece) {
    return ir::lowering_as<ir::ScalarLowering>(piece) || ir::lowering_as<ir::ReduceLowering>(piece) ||
           ir::lowering_as<ir::ViewLowering>(piece) || ir::lowering_as<ir::GenerateLowering>(piece);
  };
  if (!ir::lowering_as<ir::DecomposeLowering>(op)) return !fuses(op);
  const WrittenOut out = write_out(graph, op);
  return std::any_of(out.graph.ops().begin(), out.graph.ops().end(), [&](const Op& piece) {
    return !ir::lowering_as<ir::SourceLowering>(piece) && !ir::lowering_as<ir::DecomposeLowering>(piece) && !fuses(piece);
  });
}

// ---------------------------------------------------------------- linear forms

/// A number per channel: a sum of products of values that have one number per channel, or one in all.
struct Coefficient {
  std::map<std::vector<ValueId>, double> terms;

  bool zero() const { return terms.empty(); }
  void add(const Coefficient& other, double sign) {
    for (const auto& [columns, factor] : other.terms) {
      if ((terms[columns] += sign * factor) == 0) terms.erase(columns);
    }
  }
  Coefficient times(ValueId column) const {
    Coefficient made;
    for (const auto& [columns, factor] : terms) {
      std::vector<ValueId> more = columns;
      more.insert(std::upper_bound(more.begin(), more.end(), column), column);
      made.terms[std::move(more)] = factor;
    }
    return made;
  }
};

/// x here + (S x) moved.
struct Form {
  Coefficient here, moved;
};

constexpr size_t kMostTerms = 8;  ///< per coefficient: a mix has two

/// Forms of values over one x and one view of it.
class Forms {
 public:
  Forms(const Graph& graph, ValueId x, RowView view) : graph_(graph), x_(x), view_(std::move(view)) {}

  std::optional<Form> of(ValueId value) {
    const auto [at, fresh] = known_.try_emplace(value);
    if (fresh) {
      std::optional<Form> form = make(value);
      if (form && (form->here.terms.size() > kMostTerms || form->moved.terms.size() > kMostTerms)) form.reset();
      known_[value] = std::move(form);
    }
    return known_[value];
  }

 private:
  std::optional<Form> make(ValueId value) {
    Form form;
    if (value == x_) {
      form.here.terms[{}] = 1;
      return form;
    }
    const Op& op = graph_.maker(value);
    if (graph_.type(value) != graph_.type(x_) || op.results[0] != value) return std::nullopt;
    if (!op.operands.empty() && op.operands[0] == x_ && row_view(graph_, op) == view_) {
      form.moved.terms[{}] = 1;
      return form;
    }
    if (is_sum(op) || is_difference(op)) return combined(op, is_sum(op) ? 1 : -1);
    if (is_negation(op)) {
      const std::optional<Form> negated = of(op.operands[0]);
      if (!negated) return std::nullopt;
      form.here.add(negated->here, -1);
      form.moved.add(negated->moved, -1);
      return form;
    }
    return is_product(op) ? scaled(op) : std::nullopt;
  }

  std::optional<Form> combined(const Op& op, double sign) {
    std::optional<Form> left = of(op.operands[0]);
    const std::optional<Form> right = left ? of(op.operands[1]) : std::nullopt;
    if (!right) return std::nullopt;
    left->here.add(right->here, sign);
    left->moved.add(right->moved, sign);
    return left;
  }

  std::optional<Form> scaled(const Op& op) {
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const ValueId column = op.operands[1 - side];
      if (!per_channel(column)) continue;
      if (const std::optional<Form> form = of(op.operands[side])) {
        return Form{form->here.times(column), form->moved.times(column)};
      }
    }
    return std::nullopt;
  }

  // [..., 1, 1, k] with k that of x, or one number.
  bool per_channel(ValueId value) const {
    const ir::Type& type = graph_.type(value);
    return type.dtype == DType::f32 && (type.elements() == 1 || type.elements() == type.shape.back()) &&
           (type.rank() == 0 || type.shape.back() == 1 || type.shape.back() == graph_.type(x_).shape.back());
  }

  const Graph& graph_;
  const ValueId x_;
  const RowView view_;
  std::map<ValueId, std::optional<Form>> known_;
};

// ---------------------------------------------------------------- the pass

/// What one of the processors that make tiles could move while a kernel begins and ends: 75 kB of an H200's 132 are 2.4
/// microseconds.
constexpr double kLaunchBytes = 75e3;

struct Options {
  DType dtype = DType::f32;   ///< that products are computed in
  double flops_per_byte = 0;  ///< what products do in the time one byte is copied
  double tile_rows = 1, tile_columns = 1, tiles_at_a_time = 1;
  bool gradients = false;  ///< a backward follows
  bool explain = false;

  /// Operations that a product [m, n] of sums over k keeps the device busy with: whole tiles, and whole rounds of them where sums
  /// are not long enough to be shared out.
  double occupied(double m, double n, double k, bool rounds) const {
    double tiles = std::ceil(m / tile_rows) * std::ceil(n / tile_columns);
    if (rounds) tiles = std::ceil(tiles / tiles_at_a_time) * tiles_at_a_time;
    return 2 * tiles * tile_rows * tile_columns * k;
  }
  /// The product of `rows` rows of k with a matrix of `columns` columns, and both gradients of it.
  double products(double rows, double columns, double k) const {
    const double forward = occupied(rows, columns, k, true);
    return gradients ? forward + occupied(rows, k, columns, true) + occupied(k, columns, rows, false) : forward;
  }
};

/// A product over mixed rows.
struct Candidate {
  OpId op = 0;
  ValueId weight = kNone;
  bool tb = false;
  int64_t width = 0;  ///< columns of the product
  Form form;
};

/// Candidates over one x and one view, the narrowest first.
struct Family {
  ValueId x = kNone;
  RowView view;
  std::vector<Candidate> members;
  size_t taken = 0;
};

/// Bytes and operations by which a family's first members, taken, differ from what stands there.
struct Cost {
  double saved = 0;         ///< bytes that need not be moved
  double flops = 0;         ///< operations added
  bool keeps_more = false;  ///< for the backward
  double gain(const Options& options) const { return saved * options.flops_per_byte - flops; }
};

class Lerp {
 public:
  Lerp(const Graph& graph, PassContext& context, Options options)
      : graph_(graph), context_(context), options_(options), out_(like(graph)), rw_(graph, out_) {}

  Graph run() {
    find_readers();
    for (OpId id = 0; id < graph_.ops().size(); ++id) consider(id);
    for (Family& family : families_) choose(family);
    if (std::all_of(families_.begin(), families_.end(), [](const Family& f) { return f.taken == 0; })) return graph_;
    for (size_t i = 0; i < families_.size(); ++i) {
      for (size_t k = 0; k < families_[i].taken; ++k) taken_[families_[i].members[k].op] = i;
    }
    for (OpId id = 0; id < graph_.ops().size(); ++id) visit(id);
    rw_.finish();
    return without_dead(with_names(out_, names_));
  }

 private:
  const std::string& name(ValueId value) const { return graph_.value(value).name; }

  // Outputs do not count: one added to look at a value must not change what the others are.
  void find_readers() {
    readers_.resize(graph_.values().size());
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      for (const ValueId operand : graph_.op(id).operands) {
        if (operand != kNone) readers_[operand].push_back(id);
      }
    }
  }

  // ---- candidates

  void consider(OpId id) {
    const Op& op = graph_.op(id);
    if (op.operands.size() < 2 || op.operands[0] == kNone || !mixes(op.operands[0])) return;
    const std::optional<Product> product = passes::product(graph_, op);
    if (!product || pinned(op.operands[0]) || pinned(op.operands[1]) || pinned(op.results[0])) return;
    const std::optional<OpId> moved = find_move(op.operands[0]);
    if (!moved) return;
    const ValueId x = graph_.op(*moved).operands[0];
    const RowView view = *views_.at(*moved);
    const std::optional<Form> form = Forms(graph_, x, view).of(op.operands[0]);
    if (!form || form->here.zero() || form->moved.zero() || !follows_[x] || follows_[op.operands[1]] || follows(*form)) return;
    // The products are moved in its place; a view that moves rows of two columns moves those of any number.
    ir::Type narrow = graph_.type(x);
    narrow.shape.back() = 2;
    if (!view.moves_rows(narrow)) return;
    const int64_t width = graph_.type(op.results[0]).shape.back();
    family(x, view, product->tb).members.push_back({id, op.operands[1], product->tb, width, *form});
  }

  bool mixes(ValueId value) const {
    const Op& op = graph_.maker(value);
    return is_sum(op) || is_difference(op);
  }

  Family& family(ValueId x, const RowView& view, bool tb) {
    for (Family& family : families_) {
      if (family.x == x && family.view == view && family.members[0].tb == tb) return family;
    }
    return families_.emplace_back(Family{x, view, {}, 0});
  }

  // The first view of rows behind sums and products.
  std::optional<OpId> find_move(ValueId value) {
    std::set<ValueId> seen;
    std::vector<ValueId> stack{value};
    while (!stack.empty()) {
      const ValueId v = stack.back();
      stack.pop_back();
      if (!seen.insert(v).second) continue;
      const Op& op = graph_.maker(v);
      const auto [at, fresh] = views_.try_emplace(graph_.value(v).op);
      if (fresh) at->second = row_view(graph_, op);
      if (at->second) return graph_.value(v).op;
      if (!is_sum(op) && !is_difference(op) && !is_product(op) && !is_negation(op)) continue;
      for (const ValueId operand : op.operands) stack.push_back(operand);
    }
    return std::nullopt;
  }

  bool follows(const Form& form) const {
    for (const Coefficient* coefficient : {&form.here, &form.moved}) {
      for (const auto& term : coefficient->terms) {
        if (std::any_of(term.first.begin(), term.first.end(), [&](ValueId column) { return follows_[column]; })) return true;
      }
    }
    return false;
  }

  // What the author wants in f32 is left as it is written.
  bool pinned(ValueId value) const {
    const auto& pins = context_.module.precision.pin;
    const std::string variable = read_variable(graph_.maker(value));
    return std::any_of(pins.begin(), pins.end(),
                       [&](const std::string& pin) { return ir::glob_match(pin, name(value)) || ir::glob_match(pin, variable); });
  }

  // ---- what pays

  void choose(Family& family) {
    std::stable_sort(family.members.begin(), family.members.end(),
                     [](const Candidate& a, const Candidate& b) { return a.width < b.width; });
    double best = 0;
    std::vector<Cost> costs;
    for (size_t count = 1; count <= family.members.size(); ++count) {
      const Cost cost = costs.emplace_back(this->cost(family, count));
      if (cost.saved <= 0 || cost.keeps_more || cost.gain(options_) <= best) continue;
      best = cost.gain(options_);
      family.taken = count;
    }
    if (!options_.explain || context_.remarks == nullptr) return;
    for (size_t i = 0; i < costs.size(); ++i) explain(family, i, costs[i]);
  }

  // Rows of width k (x and each mixed one) and of the products' widths, in the compute dtype; weights are made once a program.
  Cost cost(const Family& family, size_t count) const {
    const ir::Type& x = graph_.type(family.x);
    const double k = static_cast<double>(x.shape.back()), rows = static_cast<double>(x.elements()) / k;
    std::set<OpId> products;
    std::set<ValueId> mixed;
    double columns = 0;
    for (size_t i = 0; i < count; ++i) {
      products.insert(family.members[i].op);
      mixed.insert(graph_.op(family.members[i].op).operands[0]);
      columns += static_cast<double>(family.members[i].width);
    }
    const auto gone =
        static_cast<double>(std::count_if(mixed.begin(), mixed.end(), [&](ValueId m) { return only(m, products); }));
    const double made = stored(family.x, products) ? 0 : 1;  // x is stored for the product alone
    const double reads = static_cast<double>(count);
    // In rows of k: mixed rows written and read, against x; the backward makes them again. Gradients of mixed rows, written and
    // read, against that of x.
    double wide = gone + reads - made - 1;
    // In rows of all columns: the product is twice as wide, written and read.
    double narrow = -2;
    // In weights: read in f32, both mixes written, put side by side (read and written) and read, against one.
    double weights = -(4 + (2 + 4 + 1) * bytes());
    // For each product what its channels are scaled by and its mixed weights, all of them put together; one product for all.
    double launches = 2 * reads + 1 - (reads - 1);
    if (options_.gradients) {
      wide += gone + reads - made - 1 + 2 * (reads - 1);
      narrow -= 2 + 2 + 4 + 2;     // all dy side by side, moved, put beside themselves; the product's gradient read twice
      weights -= bytes();          // kept, and read against one
      weights -= 4 * (1 + 2 + 2);  // gradients of both mixes written and read, the weight and its gradient
      // The gradient put side by side, twice, and moved; for each product that of its weight, in two steps those of its channels.
      launches += 3 + 3 * reads - 2 * (reads - 1);
    }
    Cost cost;
    cost.saved = (wide * rows * k + narrow * rows * columns) * bytes() + weights * k * columns -
                 launches * options_.tiles_at_a_time * kLaunchBytes;
    cost.flops = options_.products(rows, 2 * columns, k);
    for (size_t i = 0; i < count; ++i) cost.flops -= options_.products(rows, static_cast<double>(family.members[i].width), k);
    cost.keeps_more = options_.gradients && made * rows * k + 2 * k * columns > gone * rows * k;
    return cost;
  }
  double bytes() const { return static_cast<double>(ir::dtype_bytes(options_.dtype)); }

  // Do only these products read the value?
  bool only(ValueId value, const std::set<OpId>& products) const {
    return std::all_of(readers_[value].begin(), readers_[value].end(),
                       [&](OpId reader) { return products.contains(reader) && graph_.op(reader).operands[1] != value; });
  }

  bool stored(ValueId x, const std::set<OpId>& products) const {
    if (stores(graph_, graph_.maker(x))) return true;
    return std::any_of(readers_[x].begin(), readers_[x].end(),
                       [&](OpId reader) { return !products.contains(reader) && stores(graph_, graph_.op(reader)); });
  }

  void explain(const Family& family, size_t i, const Cost& cost) {
    const Op& op = graph_.op(family.members[i].op);
    const bool taken = i < family.taken;
    const std::string with =
        i == 0 ? "" : fmt::format(" with the {} narrower {} over %{}", i, i == 1 ? "one" : "ones", name(family.x));
    std::string reason;
    if (!taken && cost.saved > 0 && cost.keeps_more) reason = ", and would keep more for the backward";
    context_.remarks->push_back(fmt::format(
        "lerp: {}: {}: %{} [{} columns]{}: {:.4g} MB less to move, worth {:.4g} GFLOP at {:.4g} FLOP a byte; {:.4g} GFLOP more{}",
        op.loc.text(), taken ? "taken" : "not taken", name(op.results[0]), family.members[i].width, with, cost.saved / 1e6,
        cost.saved * options_.flops_per_byte / 1e9, options_.flops_per_byte, cost.flops / 1e9, reason));
  }

  // ---- writing it down

  void visit(OpId id) {
    const Op& op = graph_.op(id);
    if (const auto at = taken_.find(id); at != taken_.end()) {
      if (!rw_.mapped(op.results[0])) write(families_[at->second]);
    } else if (op.results.empty() || !rw_.mapped(op.results[0])) {
      rw_.copy(op);
    }
  }

  // A value of the new graph, made now if it is not there yet.
  ValueId need(ValueId old) {
    if (rw_.mapped(old)) return rw_(old);
    const Op& op = graph_.maker(old);
    for (const ValueId operand : op.operands) {
      if (operand != kNone) need(operand);
    }
    rw_.copy(op);
    return rw_(old);
  }

  // All products of a family, where the first of them stands: columns of x first, then columns to be moved, all in one piece.
  void write(const Family& family) {
    ir::Builder& b = rw_.b();
    const bool tb = family.members[0].tb;
    std::vector<ValueId> here, moved;
    int64_t all = 0;
    for (size_t i = 0; i < family.taken; ++i) {
      const Candidate& c = family.members[i];
      here.push_back(mixed_weight(c, c.form.here));
      moved.push_back(mixed_weight(c, c.form.moved));
      all += c.width;
    }
    here.insert(here.end(), moved.begin(), moved.end());
    place(family.members[0], family.x, ".mix");
    const ValueId weights = b.concat(std::move(here), tb ? 0 : 1);
    const ValueId z = b.matmul(b.cast(need(family.x), options_.dtype), weights, false, tb);
    const ValueId shifted = b.op(*family.view.def, {columns(z, all, all)}, family.view.attrs).results[0];
    int64_t from = 0;
    for (size_t i = 0; i < family.taken; ++i) {
      const Candidate& c = family.members[i];
      const ValueId y = graph_.op(c.op).results[0];
      place(c, y, ".mix");
      rw_.map(y, b.add(b.cast(columns(z, from, c.width), DType::f32), b.cast(columns(shifted, from, c.width), DType::f32)));
      names_[rw_(y)] = name(y);
      from += c.width;
    }
  }

  void place(const Candidate& c, ValueId stem, const char* suffix) {
    rw_.at(graph_.op(c.op));
    rw_.b().set_loc(ir::derived(graph_.op(c.op).loc, "lerp"));
    rw_.b().set_name(name(stem) + suffix);
  }

  ValueId columns(ValueId z, int64_t from, int64_t count) {
    ir::Builder& b = rw_.b();
    Shape starts(b.shape(z).size(), 0), sizes = b.shape(z);
    starts.back() = from;
    sizes.back() = count;
    return b.slice(z, starts, sizes);
  }

  // The weight with each channel scaled, in the compute dtype.
  ValueId mixed_weight(const Candidate& c, const Coefficient& coefficient) {
    ir::Builder& b = rw_.b();
    const ValueId weight = need(c.weight);
    ValueId sum = kNone;
    for (const auto& [columns, factor] : coefficient.terms) {
      for (const ValueId column : columns) need(column);
      place(c, c.weight, ".mix");
      const ValueId part = term(columns, factor);
      sum = sum == kNone ? part : b.add(sum, part);
    }
    place(c, c.weight, ".mix");
    const Shape& shape = b.shape(sum);
    if (!shape.empty() && !c.tb) sum = b.reshape(sum, {shape.back(), 1});
    if (!shape.empty() && c.tb) sum = b.reshape(sum, {1, shape.back()});
    return b.cast(b.mul(weight, sum), options_.dtype);
  }

  ValueId term(const std::vector<ValueId>& columns, double factor) {
    ir::Builder& b = rw_.b();
    ValueId made = kNone;
    for (const ValueId column : columns) {
      const ValueId value = rw_(column);
      const ValueId flat = b.shape(value).empty() ? value : b.reshape(value, {b.shape(value).back()});
      made = made == kNone ? flat : b.mul(made, flat);
    }
    if (made == kNone) return b.constant(factor);
    return factor == 1 ? made : factor == -1 ? b.neg(made) : b.mul(made, factor);
  }

  const Graph& graph_;
  PassContext& context_;
  const Options options_;
  Graph out_;
  ir::Rewriter rw_;
  std::vector<std::vector<OpId>> readers_;  ///< per value
  // Weights and what mixes must not depend on an input: then they can be made where a product stands.
  const std::vector<bool> follows_ = follow_inputs(graph_);
  std::map<OpId, std::optional<RowView>> views_;
  std::vector<Family> families_;
  std::map<OpId, size_t> taken_;  ///< products, and their family
  std::unordered_map<ValueId, std::string> names_;
};

bool flag(const PassContext& context, const char* option) {
  const std::string text = context.option(option, "false");
  if (text != "true" && text != "false")
    throw ir::UserError({}, fmt::format("lerp: {} is true or false, not '{}'", option, text));
  return text == "true";
}

Graph run(const Graph& graph, PassContext& context) {
  const std::string text = context.option("dtype", "f32");
  const auto dtype = ir::dtype_from_name(text);
  if (!dtype || !ir::is_float(*dtype)) {
    throw ir::UserError({}, fmt::format("lerp: dtype must be f32, bf16 or f16, but is '{}'", text));
  }
  if (graph.level() != ir::Level::model) return graph;
  Options options;
  options.dtype = *dtype;
  options.flops_per_byte = number_option(context, "lerp", "flops_per_byte", "0", 0);
  options.tile_rows = number_option(context, "lerp", "tile_rows", "1", 1);
  options.tile_columns = number_option(context, "lerp", "tile_columns", "1", 1);
  options.tiles_at_a_time = number_option(context, "lerp", "tiles_at_a_time", "1", 1);
  options.gradients = flag(context, "gradients");
  options.explain = flag(context, "explain");
  return Lerp(graph, context, options).run();
}

}  // namespace

PassInfo lerp_pass() {
  return {"lerp",
          "Makes narrow products of mixed neighbouring rows from the rows themselves, where that moves less than it costs.",
          {"dtype", "flops_per_byte", "tile_rows", "tile_columns", "tiles_at_a_time", "gradients", "explain"},
          false,
          run};
}

}  // namespace ingot::passes
