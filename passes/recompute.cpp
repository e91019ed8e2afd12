// recompute: which forward values the backward keeps, and which it makes again.
//
//   %a = matmul(%x, %w)                             %a = matmul(%x, %w)
//   %s = sigmoid(%a)                                %s = sigmoid(%a)
//   ...                                     =>      ...
//   backward %g = mul(%d, %s)                       recompute %s.2 = sigmoid(%a)
//                                                   backward %g = mul(%d, %s.2)
//   (saved: %a and %s)                              (saved: %a)
//
// What is kept is a minimum cut over bytes (and writes that only the backward asks for) between what cannot be made again and
// what the backward reads; of several such cuts the one nearest the backward, which makes least again. Parameters, inputs and
// constants are there anyway. Made-again ops carry the phase `recompute`, so that cse does not undo this, and stand right before
// the first backward op that reads them. narrow=bf16: what is kept costs what it will be stored as (storage.h).
//
// A statistic of a row (a reduction of so many columns that a block of threads must meet for it) is kept rather than made again: it
// is one number a row, and every one that the backward makes again is a step all threads of its kernel wait in.
//
// mode=none   everything the backward reads is kept.
// mode=cheap  every forward value that costs no gemm and no tuned kernel may be made again.
// mode=block  everything inside a layer may be, from what crosses layers: a value of one layer that another one reads. Those
//             values themselves are kept or stand for a cut behind them, so no layer is made again for the sake of a later one.
// mode=BYTES  (1000000, 20GiB) cheap, then gemms and kernels of layers may be made again too, first those that save most bytes
//             per microsecond, equal ones in the order of the layers, until what is kept fits.
//
// A value's layer is its name up to the first component that is a number: the model file names what it repeats
// (`blocks.3.att.k` is of `blocks.3`), and no pass takes a name away. Bytes alone do not show layers: the residual is as
// narrow between the two halves of one.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "ir/graph/builder.h"
#include "passes/min_cut.h"
#include "passes/passes.h"
#include "passes/storage.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::OpId;
using ir::Phase;
using ir::ValueId;

bool source(const Op& op) { return std::holds_alternative<ir::SourceLowering>(op.def->lowering); }

/// "blocks.3" of "blocks.3.att.k"; "" outside every layer.
std::string layer_of(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const bool number =
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin), name.begin() + static_cast<std::ptrdiff_t>(end),
                    [](unsigned char c) { return std::isdigit(c) != 0; });
    if (number && begin > 0 && end > begin && end < name.size()) return name.substr(0, end);
    begin = end + 1;
  }
  return "";
}

constexpr int64_t kStatisticColumns = 256;  ///< more than one warp reduces

/// What may be made again.
struct Policy {
  std::vector<bool> again;     ///< per op
  std::vector<bool> boundary;  ///< per value: not even if its op may
};

/// What is kept under a policy.
struct Cut {
  std::vector<bool> saved;  ///< per value
  int64_t bytes = 0;
};

/// The forward of a graph, as the backward reads it.
class Forward {
 public:
  Forward(const Graph& graph, const Storage& storage) : graph_(graph), storage_(storage) {
    find_wanted();
    find_stored();
  }

  bool along(const Op& op) const { return storage_.along(graph_.value(op.results[0]).op); }

  Policy cheap_policy() const {
    Policy policy{{}, std::vector<bool>(graph_.values().size(), false)};
    for (const Op& op : graph_.ops()) policy.again.push_back(cheap(op) && !statistic(op));
    return policy;
  }

  // Everything in layers, from what crosses them.
  Policy block_policy() const {
    Policy policy = cheap_policy();
    const std::vector<std::string> layers = find_layers();
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      const Op& op = graph_.op(id);
      if (op.phase != Phase::forward || source(op)) continue;
      if (!layers[id].empty()) policy.again[id] = true;
      if (along(op)) continue;
      for (const ValueId operand : op.operands) {
        if (operand == kNone) continue;
        const ValueId base = storage_.base(operand);
        const OpId maker = graph_.value(base).op;
        if (!along(graph_.op(maker)) && layers[maker] != layers[id]) policy.boundary[base] = true;
      }
    }
    return policy;
  }

  // Two nodes a value, in and out; the edge between them costs what keeping the value costs.
  Cut cut(const Policy& policy) const {
    const int count = static_cast<int>(graph_.values().size()), from = 2 * count, to = from + 1;
    MinCut graph(2 * count + 2);
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::forward || source(op)) continue;
      for (const ValueId result : op.results) {
        const int in = 2 * static_cast<int>(result), out = in + 1;
        const bool again = may_remake(policy, result);
        // A view is no value of its own: what it shows is kept or nothing.
        graph.edge(in, out, along(op) ? MinCut::kInfinite : price(result));
        if (!again) graph.edge(from, in, MinCut::kInfinite);
        for (const ValueId operand : op.operands) {
          if (again && operand != kNone && !source(graph_.maker(operand)))
            graph.edge(2 * static_cast<int>(operand) + 1, in, MinCut::kInfinite);
        }
        if (wanted_[result]) graph.edge(out, to, MinCut::kInfinite);
      }
    }
    graph.run(from, to);
    const std::vector<bool> late = graph.sink_side(to);
    Cut cut;
    cut.saved.assign(graph_.values().size(), false);
    for (ValueId value = 0; value < cut.saved.size(); ++value) {
      cut.saved[value] = !late[2 * value] && late[2 * value + 1];
      if (cut.saved[value]) cut.bytes += storage_.bytes(value);
    }
    return cut;
  }

  bool may_remake(const Policy& policy, ValueId value) const {
    return policy.again[graph_.value(value).op] && !policy.boundary[value];
  }

  /// The first policy beyond `cheap` whose cut fits, and its cut.
  std::pair<Policy, Cut> within(int64_t budget) const {
    const Policy from = cheap_policy(), to = block_policy();
    std::pair<Policy, Cut> best{from, cut(from)};
    if (best.second.bytes <= budget) return best;
    const std::vector<OpId> order = costly_ops(from, to, best.second);
    // More that may be made again makes the cut no dearer.
    size_t too_few = 0, enough = order.size();
    best = partly(to, from, order, enough);
    if (best.second.bytes > budget) {
      throw ir::UserError({}, fmt::format("recompute: {} cannot be reached: with everything inside the layers made again the "
                                          "backward still keeps {}; allow that much, or lower batch or time",
                                          size_text(budget), size_text(best.second.bytes)));
    }
    while (enough - too_few > 1) {
      const size_t middle = (too_few + enough) / 2;
      std::pair<Policy, Cut> tried = partly(to, from, order, middle);
      (tried.second.bytes <= budget ? enough : too_few) = middle;
      if (tried.second.bytes <= budget) best = std::move(tried);
    }
    return best;
  }

 private:
  static std::string size_text(int64_t bytes) {
    return bytes < 10'000'000 ? fmt::format("{} bytes", bytes) : fmt::format("{:.2f} GiB", static_cast<double>(bytes) / 0x1p30);
  }

  // Forward values that backward ops read.
  void find_wanted() {
    wanted_.assign(graph_.values().size(), false);
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::backward) continue;
      for (const ValueId operand : op.operands) {
        if (operand != kNone && graph_.maker(operand).phase == Phase::forward) wanted_[operand] = true;
      }
    }
  }

  // What the forward writes to memory anyway: results of gemms and kernels, what such read, and what is read again behind one (by
  // an op that waits for more of them than the value itself did).
  void find_stored() {
    stored_.assign(graph_.values().size(), false);
    std::vector<int> waits(graph_.values().size(), 0);
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::forward) continue;
      int most = 0;
      for (const ValueId operand : op.operands) most = std::max(most, operand == kNone ? 0 : waits[operand]);
      const bool barrier = !source(op) && !cheap(op);
      for (const ValueId operand : op.operands) {
        if (operand != kNone && (barrier || waits[operand] < most)) stored_[storage_.base(operand)] = true;
      }
      for (const ValueId result : op.results) {
        waits[result] = most + barrier;
        stored_[result] = barrier;
      }
    }
  }

  bool cheap(const Op& op) const {
    return along(op) || std::holds_alternative<ir::ScalarLowering>(op.def->lowering) ||
           std::holds_alternative<ir::ReduceLowering>(op.def->lowering);
  }

  bool statistic(const Op& op) const {
    if (!std::holds_alternative<ir::ReduceLowering>(op.def->lowering)) return false;
    const ir::Type &from = graph_.type(op.operands[0]), &to = graph_.type(op.results[0]);
    return to.elements() > 1 && from.elements() >= kStatisticColumns * to.elements() && from.shape.back() >= kStatisticColumns;
  }

  // What keeping a value costs: its bytes, and a quarter more when it is written for the backward alone.
  int64_t price(ValueId value) const { return storage_.bytes(value) * (stored_[value] ? 4 : 5) + 1; }

  std::vector<std::string> find_layers() const {
    std::vector<std::string> layers;
    for (const Op& op : graph_.ops()) layers.push_back(layer_of(graph_.value(op.results[0]).name));
    return layers;
  }

  // The boundaries of `all`, and the first `count` of its costly ops.
  std::pair<Policy, Cut> partly(const Policy& all, const Policy& few, const std::vector<OpId>& order, size_t count) const {
    Policy policy{few.again, all.boundary};
    for (size_t i = 0; i < count; ++i) policy.again[order[i]] = true;
    Cut made = cut(policy);
    return {std::move(policy), std::move(made)};
  }

  // What `block` makes again and `cheap` does not, by the bytes that are kept for it over the time it takes.
  std::vector<OpId> costly_ops(const Policy& few, const Policy& all, const Cut& cut) const {
    std::vector<std::pair<double, OpId>> worth;
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      if (few.again[id] || !all.again[id]) continue;
      double saved = 0;
      for (const ValueId result : graph_.op(id).results) saved += cut.saved[result] ? bytes(result) : 0;
      worth.emplace_back(-saved / microseconds(graph_.op(id)), id);
    }
    std::sort(worth.begin(), worth.end());
    std::vector<OpId> order;
    for (const auto& [rate, id] : worth) order.push_back(id);
    return order;
  }

  double bytes(ValueId value) const { return static_cast<double>(storage_.bytes(value)); }

  // On a machine of 100 flops a byte, as accelerators are: only the order counts.
  double microseconds(const Op& op) const {
    double moved = 0;
    for (const ValueId operand : op.operands) moved += operand == kNone ? 0 : bytes(operand);
    for (const ValueId result : op.results) moved += bytes(result);
    const double flops = op.def->flops ? op.def->flops(graph_, op) : 0;
    return flops / 3e8 + moved / 3e6;
  }

  const Graph& graph_;
  const Storage& storage_;
  std::vector<bool> wanted_, stored_;
};

/// Writes the graph whose backward reads what a cut keeps.
class Recompute {
 public:
  Recompute(const Graph& graph, const Forward& forward, Policy policy, Cut cut)
      : graph_(graph),
        forward_(forward),
        policy_(std::move(policy)),
        cut_(std::move(cut)),
        out_(like(graph)),
        rw_(graph, out_),
        again_(graph.values().size(), kNone) {}

  Graph run() {
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::backward) {
        backward(op);
      } else {
        rw_.copy(op);
      }
    }
    rw_.finish();
    return std::move(out_);
  }

 private:
  void backward(const Op& op) {
    std::vector<ValueId> operands;
    for (ValueId operand : op.operands)
      operands.push_back(operand != kNone && graph_.maker(operand).phase == Phase::forward ? made_again(operand) : rw_(operand));
    rw_.copy_on(op, std::move(operands));
  }

  // The value as the backward may read it: kept, free, or made again (once) from such.
  ValueId made_again(ValueId value) {
    const Op& op = graph_.maker(value);
    if (cut_.saved[value] || source(op) || !forward_.may_remake(policy_, value)) return rw_(value);
    if (again_[value] != kNone) return again_[value];
    std::vector<ValueId> operands;
    bool changed = false;
    for (ValueId operand : op.operands) {
      operands.push_back(operand == kNone ? kNone : made_again(operand));
      changed = changed || operands.back() != rw_(operand);
    }
    // A view of something kept is the view that is there.
    if (forward_.along(op) && !changed) return again_[value] = rw_(value);
    rw_.at(op);
    rw_.b().set_phase(Phase::recompute);
    const Op& made = rw_.b().op(*op.def, std::move(operands), op.attrs, names_of(op));
    for (size_t i = 0; i < op.results.size(); ++i) again_[op.results[i]] = made.results[i];
    return again_[value];
  }

  std::vector<std::string> names_of(const Op& op) const {
    std::vector<std::string> names;
    for (ValueId result : op.results) names.push_back(graph_.value(result).name);
    return names;
  }

  const Graph& graph_;
  const Forward& forward_;
  const Policy policy_;
  const Cut cut_;
  Graph out_;
  ir::Rewriter rw_;
  std::vector<ValueId> again_;
};

// "1000000", "512MiB", "20GiB"; -1 for anything else.
int64_t bytes_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  if (error != std::errc()) return -1;
  for (const auto& [name, bytes] : {std::pair("", 1.0), {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}}) {
    if (unit == name) return number * bytes >= 1 && number * bytes < 0x1p60 ? static_cast<int64_t>(number * bytes) : -1;
  }
  return -1;
}

Graph run(const Graph& graph, PassContext& ctx) {
  const std::string mode = ctx.option("mode", "cheap");
  if (mode == "none") return graph;
  const Storage storage(graph, storage_options(graph, ctx));
  const Forward forward(graph, storage);
  if (mode == "cheap" || mode == "block") {
    Policy policy = mode == "cheap" ? forward.cheap_policy() : forward.block_policy();
    Cut cut = forward.cut(policy);
    return Recompute(graph, forward, std::move(policy), std::move(cut)).run();
  }
  check_recompute(mode);
  auto [policy, cut] = forward.within(bytes_of(mode));
  return Recompute(graph, forward, std::move(policy), std::move(cut)).run();
}

}  // namespace

void check_recompute(const std::string& mode) {
  if (mode == "none" || mode == "cheap" || mode == "block" || bytes_of(mode) > 0) return;
  throw ir::UserError({}, fmt::format("recompute is none, cheap, block or a number of bytes (20GiB), not '{}'", mode));
}

PassInfo recompute_pass() {
  PassInfo info;
  info.name = "recompute";
  info.summary = "Keeps of the forward what costs least bytes and makes the rest again in the backward.";
  info.options = {"mode", "narrow"};
  info.run = run;
  return info;
}

}  // namespace ingot::passes
