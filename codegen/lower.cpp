#include "codegen/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "codegen/gemm.h"
#include "codegen/homes.h"
#include "codegen/sums.h"
#include "ir/base/error.h"
#include "ir/graph/op_def.h"
#include "passes/algebra.h"

namespace ingot::codegen {
namespace {

using ir::Access;
using ir::AccessMode;
using ir::BufferId;
using ir::BufferRole;
using ir::Call;
using ir::CallKind;
using ir::kNoBuffer;
using ir::kNone;
using ir::Op;
using ir::Type;
using ir::ValueId;

class ProgramLowering {
 public:
  ProgramLowering(PlanDraft& draft, const ir::Graph& graph, const Target& target)
      : draft_(draft),
        graph_(graph),
        target_(target),
        sums_(target.sum_limits()),
        homes_(find_homes(graph, draft.layout())),
        storage_(graph.values().size(), kNoBuffer) {
    find_readers();
  }

  void run() {
    ir::check(graph_.level() >= ir::Level::core, "lowering needs a graph at core level, but @" + graph_.name() + " is at " +
                                                     std::string(level_name(graph_.level())));
    for (const Op& op : graph_.ops()) add_input(op);
    for (ir::OpId id = 0; id < graph_.ops().size(); ++id) {
      if (homes_.joins[id] || !homes_.live[id]) continue;
      if (homes_.packed[id]) {
        finish_pack(graph_.op(id));
      } else {
        lower(id);
      }
    }
    copy_outputs();
    copy_updates();
    add_sums();
    for (const auto& output : graph_.outputs()) draft_.add_output(output.name, output_buffer(output));
  }

 private:
  const std::string& name(ValueId value) const { return graph_.value(value).name; }
  const Type& type(ValueId value) const { return graph_.type(value); }

  // ---- buffers

  // Every input is a port, read or not: the host need not know what the compiler removed.
  void add_input(const Op& op) {
    if (!ir::lowering_as<ir::SourceLowering>(op) || !variable_of(op).empty()) return;
    const ValueId value = op.results[0];
    storage_[value] = draft_.add_buffer(name(value), type(value), BufferRole::input, op.loc);
    draft_.add_input(name(value), storage_[value]);
  }

  // The storage of a root, made when a call first needs it.
  BufferId storage(ValueId root) {
    const Home& home = homes_.home[root];
    switch (home.kind) {
      case Home::Kind::variable:
        return draft_.variable(home.variable);
      case Home::Kind::constant:
        return constant(root);
      default:
        break;
    }
    if (homes_.strip_places[home.owner].strip >= 0) return part_of_strip(home.owner);
    BufferId& buffer = storage_[home.owner];
    if (buffer == kNoBuffer) {
      const BufferRole role = home.kind == Home::Kind::output ? BufferRole::output : BufferRole::temp;
      buffer = draft_.add_buffer(name(home.owner), type(home.owner), role, graph_.maker(home.owner).loc);
    }
    return buffer;
  }

  // A strip stands as the storage of the first of its owners.
  BufferId part_of_strip(ValueId owner) {
    const StripPlace place = homes_.strip_places[owner];
    const std::vector<ValueId>& owners = homes_.strips[static_cast<size_t>(place.strip)].owners;
    BufferId& strip = storage_[owners[0]];
    if (strip == kNoBuffer) {
      const Type all{type(owner).dtype, {type(owner).elements() * static_cast<int64_t>(owners.size())}};
      strip = draft_.add_buffer(name(owners[0]) + "+", all, BufferRole::temp, graph_.maker(owners[0]).loc);
    }
    return draft_.view(strip, name(owner), type(owner), place.offset, graph_.maker(owner).loc);
  }

  BufferId buffer(ValueId value) {
    return draft_.view(storage(homes_.root[value]), name(value), type(value), homes_.offset[value], graph_.maker(value).loc);
  }

  // One temp per number, filled before its first reader.
  BufferId constant(ValueId value) {
    const double number = *constant_of(graph_, value);
    const auto key = std::pair(type(value).dtype, std::bit_cast<uint64_t>(number));
    const auto known = constants_.find(key);
    if (known != constants_.end()) return known->second;
    const BufferId made = draft_.add_buffer(name(value), type(value), BufferRole::temp, graph_.maker(value).loc);
    constants_.emplace(key, made);
    add_fill(name(value), made, number, graph_.maker(value).loc);
    return made;
  }

  // ---- calls

  double bytes_of(const Call& call) const {
    std::set<BufferId> seen;
    double bytes = 0;
    for (const Access& access : call.args) {
      if (access.buffer == kNoBuffer || draft_.plan().buffers[access.buffer].role == BufferRole::workspace) continue;
      const double size = static_cast<double>(draft_.plan().buffers[access.buffer].type.bytes());
      // Written in place: both ways count.
      if (seen.insert(access.buffer).second || access.mode == AccessMode::inout) bytes += size;
    }
    return bytes;
  }

  void add(Call call) {
    if (sums_.touched(draft_.plan(), call)) add_sums();
    call.bytes = bytes_of(call);
    draft_.add_call(std::move(call));
  }

  void add_fill(const std::string& label, BufferId to, double value, ir::Loc loc) {
    Call call;
    call.kind = CallKind::fill;
    call.label = label;
    call.fill = value;
    call.args = {{to, AccessMode::write}};
    call.loc = loc;
    add(std::move(call));
  }

  void add_copy(const std::string& label, BufferId from, BufferId to, ir::Loc loc) {
    Call call;
    call.kind = CallKind::copy;
    call.label = label;
    call.args = {{from, AccessMode::read}, {to, AccessMode::write}};
    call.loc = loc;
    add(std::move(call));
  }

  void lower(ir::OpId id) {
    const Op& op = graph_.op(id);
    if (ir::lowering_as<ir::SourceLowering>(op)) return;
    if (ir::lowering_as<ir::GenerateLowering>(op) && constant_of(graph_, op.results[0])) return;
    if (ir::lowering_as<ir::ViewLowering>(op) && (homes_.shown[op.results[0]] || fill_view(op))) return;
    if (ir::lowering_as<ir::GemmLowering>(op)) return homes_.call_of[id] < 0 ? lower_gemm(op) : lower_one_of(id);
    if (left_to_sums_.contains(&op)) return;
    launch(id);
  }

  // A number spread over a shape needs no operand.
  bool fill_view(const Op& op) {
    const std::optional<double> number = spread_constant(graph_, op.results[0]);
    if (!number) return false;
    if (homes_.read[homes_.root[op.results[0]]]) add_fill(name(op.results[0]), buffer(op.results[0]), *number, op.loc);
    return true;
  }

  // Most parts are where they belong already; the others are brought there.
  void finish_pack(const Op& op) {
    const ValueId pack = op.results[0];
    int64_t at = 0;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId part = op.operands[i];
      const int64_t begin = at;
      at += type(part).bytes();
      if (homes_.root[part] == homes_.root[pack] && homes_.offset[part] == homes_.offset[pack] + begin) continue;
      const std::optional<double> number = spread_constant(graph_, part);
      if (number == 0.0 && homes_.zero_gaps[homes_.root[pack]]) continue;
      const BufferId place = draft_.view(buffer(pack), fmt::format("{}[{}]", name(pack), i), type(part), begin, op.loc);
      if (number) {
        add_fill(name(pack), place, *number, op.loc);
      } else {
        add_copy(name(pack), buffer(part), place, op.loc);
      }
    }
  }

  double flops(const Op& op) const {
    if (op.def->flops) return op.def->flops(graph_, op);
    double elements = 0;
    for (const ValueId result : op.results) elements += static_cast<double>(type(result).elements());
    return elements;
  }

  std::string label(const Op& op) const {
    for (const ValueId result : op.results) {
      if (homes_.used[result]) return name(result);
    }
    return name(op.results[0]);
  }

  // Part of a matrix for one of several gemm calls.
  BufferId part(ValueId value, int64_t first, int64_t size) {
    const BufferId whole = buffer(value);
    if (first == 0 && size == type(value).elements()) return whole;
    return draft_.view(whole, fmt::format("{}[{}:{}]", name(value), first, first + size), {type(value).dtype, {size}},
                       first * ir::dtype_bytes(type(value).dtype), graph_.maker(value).loc);
  }

  void lower_gemm(const Op& op) {
    const auto [a, b, c, d] = matrices(op);
    const auto parts = parts_of(op);
    for (const GemmPart& p : parts) {
      Call call = product(op, p.gemm);
      call.args = {{part(a, p.a, p.a_size), AccessMode::read}, {part(b, p.b, p.b_size), AccessMode::read}};
      if (c != kNone) call.args.push_back({call.gemm.has_bias() ? buffer(c) : part(c, p.d, p.d_size), AccessMode::read});
      call.args.push_back({part(d, p.d, p.d_size), AccessMode::write});
      call.flops = flops(op) / static_cast<double>(parts.size());
      add_product(std::move(call));
    }
  }

  void lower_one_of(ir::OpId id) {
    const Together& together = homes_.together[static_cast<size_t>(homes_.call_of[id])];
    const bool first = id == *std::min_element(together.ops.begin(), together.ops.end());
    if (first) lower_siblings(together);
  }

  // One call for all of them, where the first stands.
  void lower_siblings(const Together& together) {
    const Op& first = graph_.op(together.ops[0]);
    Call call = product(first, parts_of(first)[0].gemm);
    call.label += fmt::format("+{}", together.ops.size() - 1);
    ir::Gemm& g = call.gemm;
    g.batch = static_cast<int64_t>(together.ops.size());
    int64_t* strides[] = {&g.stride_a, &g.stride_b, &g.stride_c, &g.stride_d};
    for (size_t i = 0; i < together.strides.size(); ++i) {
      const ValueId begin = matrices(first)[i];
      if (begin == kNone) continue;
      *strides[i] = together.strides[i] / ir::dtype_bytes(type(begin).dtype);
      const ValueId end = matrices(graph_.op(together.ops.back()))[i];
      call.args.push_back({walked(begin, end, *strides[i] * (g.batch - 1)), i == kMade ? AccessMode::write : AccessMode::read});
    }
    for (const ir::OpId id : together.ops) call.flops += flops(graph_.op(id));
    add_product(std::move(call));
  }

  std::vector<GemmPart> parts_of(const Op& op) const {
    return gemm_parts(type(op.operands[0]).shape, type(op.operands[1]).shape, op.attrs.boolean("ta"), op.attrs.boolean("tb"));
  }

  // A call without its arguments.
  Call product(const Op& op, const ir::Gemm& gemm) const {
    Call call;
    call.kind = CallKind::gemm;
    call.label = label(op);
    call.gemm = gemm;
    call.loc = op.loc;
    if (matrices(op)[kAdded] == kNone) return call;
    call.gemm.beta = 1;
    if (passes::adds_bias(graph_, op)) return call;
    call.gemm.ldc = gemm.ldd;
    call.gemm.stride_c = gemm.stride_d;
    return call;
  }

  void add_product(Call call) {
    Access &c = call.args[2], &d = call.args.back();
    if (call.args.size() > 3 && same_bytes(c.buffer, d.buffer)) c.mode = d.mode = AccessMode::inout;
    add(std::move(call));
  }

  // From the first byte of one value, `apart` elements, to the last of another.
  BufferId walked(ValueId from, ValueId to, int64_t apart) {
    if (apart == 0) return buffer(from);
    const Type span{type(from).dtype, {apart + type(from).elements()}};
    return draft_.view(buffer(from), fmt::format("{}..{}", name(from), name(to)), span, 0, graph_.maker(from).loc);
  }

  void launch(ir::OpId id) {
    const Op& op = graph_.op(id);
    const std::vector<ir::Alias>& aliases = allowed_aliases(graph_, id, homes_);
    std::vector<bool> dead;
    for (const ValueId result : op.results) dead.push_back(!homes_.used[result]);
    const std::map<int, int64_t> offered = partials_for(op);
    const OpLaunches lowered = target_.lower({graph_, op, dead, results_over_operands(op, aliases, offered), offered});
    const std::map<int, BufferId> partials = take_partials(op, offered, lowered.added);
    std::vector<BufferId> workspaces(lowered.workspace_bytes.size(), kNoBuffer);
    const auto workspace = [&](int index) {
      BufferId& scratch = workspaces[index];
      if (scratch == kNoBuffer) {
        scratch = draft_.add_buffer(fmt::format("{}#{}", label(op), index),
                                    {ir::DType::boolean, {lowered.workspace_bytes[index]}}, BufferRole::workspace, op.loc);
      }
      return scratch;
    };
    bool first = true;
    for (const Launch& l : lowered.launches) {
      Call call;
      call.label = label(op);
      call.kernel = draft_.kernels().add(l);
      call.sizes = l.sizes;
      call.tasks = l.tasks;
      call.loc = op.loc;
      call.flops = first ? flops(op) : 0;  // of the whole op, once
      first = false;
      for (const LaunchArg& arg : l.args) {
        const auto added = arg.kind == LaunchArg::Kind::operand ? partials.find(arg.index) : partials.end();
        call.args.push_back({added == partials.end() ? argument(op, arg, workspace) : added->second, arg.mode});
      }
      mark_aliases(aliases, l, call);
      add(std::move(call));
    }
    for (const PendingSum& pending : lowered.sums) {
      const ValueId result = op.results[pending.result];
      wait({.sum = pending.sum, .partials = workspace(pending.workspace), .value = result, .label = name(result), .loc = op.loc},
           op);
    }
  }

  // Per value the op that alone reads it, if one does.
  void find_readers() {
    std::vector<int> readers(graph_.values().size(), 0);
    only_reader_.assign(readers.size(), nullptr);
    for (const Op& op : graph_.ops()) {
      for (const ValueId value : op.operands) {
        if (value != kNone) only_reader_[value] = ++readers[value] == 1 ? &op : nullptr;
      }
    }
    for (const ir::Output& output : graph_.outputs()) only_reader_[output.value] = nullptr;
    for (const ir::Update& update : graph_.updates()) only_reader_[update.value] = nullptr;
  }

  // A sum whose one reader may add it itself, so that it needs no bytes.
  bool left_to_reader(ValueId value, const Op* reader, const RowSum& sum) const {
    if (reader == nullptr || sum.dtype != ir::DType::f32) return false;
    const Home& home = homes_.home_of(value);
    const auto stands_on_it = [&](ValueId result) { return homes_.home_of(result).owner == value; };
    return home.kind == Home::Kind::temp && home.owner == value &&
           std::none_of(reader->results.begin(), reader->results.end(), stands_on_it);
  }

  // A number of few partials that a region reads.
  bool is_number(ValueId value, const RowSum& sum) const {
    return only_reader_[value]->region && sum.width == 1 && sum.rows <= target_.sum_limits().rows_in_reader;
  }

  // The value under the last of the shapes that it has before its one reader computes something.
  ValueId as_read(ValueId value) const {
    const Op* reader = only_reader_[value];
    while (reader != nullptr && ir::lowering_as<ir::ViewLowering>(*reader) && homes_.shown[reader->results[0]] &&
           type(reader->results[0]).elements() == type(value).elements()) {
      value = reader->results[0];
      reader = only_reader_[value];
    }
    return value;
  }

  // What is added to the sum of `op` by an `add`, an accumulator as a rule; kNone: it is no such reader, or more than that reads
  // it.
  ValueId accumulator_of(const Op& op, ValueId value) {
    const Op& reader = *only_reader_[value];
    if (reader.name() != "add" || reader.region || !homes_.used[reader.results[0]]) return kNone;
    const ValueId other = reader.operands[reader.operands[0] == value ? 1 : 0];
    const bool made = &graph_.maker(other) < &op && sums_.find(other) == nullptr;
    const bool alike = type(other) == type(value) && type(reader.results[0]) == type(value);
    if (!made || !alike || only_reader_[other] != &reader) return kNone;
    return kept_between(op, reader) ? other : kNone;
  }

  // May the result of `later` be written as soon as `op` has run? Where it stands over something (a variable's old value, an
  // operand) that was settled for its own place in the order: nobody may read those bytes before it.
  bool kept_between(const Op& op, const Op& later) const {
    const Run result = run_of(later.results[0]);
    const auto there = [&](ValueId value) { return value != kNone && run_of(value).meets(result); };
    return std::none_of(&op + 1, &later,
                        [&](const Op& between) { return std::any_of(between.operands.begin(), between.operands.end(), there); });
  }

  // Bytes of a storage: of a segment of variables, of a variable that lies alone, of a root value.
  struct Run {
    Home::Kind kind = Home::Kind::temp;
    int segment = -1;
    std::string_view variable;
    ValueId owner = kNone;
    int64_t begin = 0, end = 0;

    bool meets(const Run& other) const {
      const bool same = kind == other.kind && segment == other.segment &&
                        (kind != Home::Kind::variable ? owner == other.owner : segment >= 0 || variable == other.variable);
      return same && begin < other.end && other.begin < end;
    }
  };
  Run run_of(ValueId value) const {
    const Home& home = homes_.home_of(value);
    Run run{home.kind, -1, home.variable, home.owner, homes_.offset[value], 0};
    if (home.kind == Home::Kind::variable) {
      const Layout::Place place = draft_.layout().place(home.variable);
      run.segment = place.segment;
      run.begin += place.segment >= 0 ? place.offset : 0;
    }
    run.end = run.begin + type(value).bytes();
    return run;
  }

  // A sum of an op that has run: its reader may take it over, or is taken over itself.
  void wait(WaitingSum sum, const Op& op) {
    const ValueId read = as_read(sum.value);
    const bool left = left_to_reader(sum.value, only_reader_[read], sum.sum);
    if (const ValueId accumulator = left ? accumulator_of(op, read) : kNone; accumulator != kNone) {
      const Op& add = *only_reader_[read];
      left_to_sums_.insert(&add);
      sum.sum.plus = true;
      sum.plus = buffer(accumulator);
      sum.value = add.results[0];
      sum.label = name(sum.value);
      sum.result = buffer(sum.value);
    } else if (!left || read != sum.value || !is_number(sum.value, sum.sum)) {
      sum.result = buffer(sum.value);
    }
    // One call reads and writes in no order: what another sum starts from is replaced by a later one.
    if (sums_.touched(draft_.plan(), sum.result) || sums_.touched(draft_.plan(), sum.plus)) add_sums();
    sums_.add(std::move(sum));
    if (sums_.full()) add_sums();
  }

  // Operands that wait for this op to add them.
  std::map<int, int64_t> partials_for(const Op& op) {
    std::map<int, int64_t> out;
    for (size_t i = 0; op.region && i < op.operands.size(); ++i) {
      const WaitingSum* waiting = op.operands[i] == kNone ? nullptr : sums_.find(op.operands[i]);
      if (waiting != nullptr && waiting->result == kNoBuffer) out[static_cast<int>(i)] = waiting->sum.rows;
    }
    return out;
  }

  // Of those the ones that it does add, by operand; the others are added before it.
  std::map<int, BufferId> take_partials(const Op& op, const std::map<int, int64_t>& offered, const std::vector<int>& added) {
    std::map<int, BufferId> out;
    for (const auto& [operand, rows] : offered) {
      const ValueId value = op.operands[static_cast<size_t>(operand)];
      if (std::find(added.begin(), added.end(), operand) != added.end()) {
        out[operand] = sums_.remove(value);
      } else {
        sums_.find(value)->result = buffer(value);
      }
    }
    return out;
  }

  // All that wait, in one call.
  void add_sums() {
    std::vector<WaitingSum> sums = sums_.take();
    if (sums.empty()) return;
    std::vector<RowSum> rows;
    for (WaitingSum& waiting : sums) {
      rows.push_back(waiting.sum);
      if (waiting.result == kNoBuffer) waiting.result = buffer(waiting.value);
    }
    const Launch launch = target_.add_sums(rows);
    Call call;
    call.label = sums[0].label;
    if (sums.size() > 1) call.label += fmt::format("+{}", sums.size() - 1);
    call.kernel = draft_.kernels().add(launch);
    call.sizes = launch.sizes;
    call.tasks = launch.tasks;
    call.loc = sums[0].loc;
    for (const LaunchArg& arg : launch.args) {
      const WaitingSum& waiting = sums[static_cast<size_t>(arg.index)];
      call.args.push_back({buffer_of(waiting, arg.kind), arg.mode});
      const bool in_place = arg.kind != LaunchArg::Kind::workspace && same_bytes(waiting.plus, waiting.result);
      if (in_place) call.args.back().mode = AccessMode::inout;
    }
    add(std::move(call));
  }

  static BufferId buffer_of(const WaitingSum& waiting, LaunchArg::Kind kind) {
    if (kind == LaunchArg::Kind::workspace) return waiting.partials;
    return kind == LaunchArg::Kind::operand ? waiting.plus : waiting.result;
  }

  template <class Workspace>
  BufferId argument(const Op& op, const LaunchArg& arg, const Workspace& workspace) {
    if (arg.kind == LaunchArg::Kind::workspace) return workspace(arg.index);
    const bool operand = arg.kind == LaunchArg::Kind::operand;
    const auto& list = operand ? op.operands : op.results;
    const ValueId value = static_cast<size_t>(arg.index) < list.size() ? list[arg.index] : kNone;
    if (value == kNone || (!operand && !homes_.used[value])) return kNoBuffer;
    return buffer(value);
  }

  // Of a region: its text depends on them.
  std::vector<ir::Alias> results_over_operands(const Op& op, const std::vector<ir::Alias>& aliases,
                                               const std::map<int, int64_t>& partials) {
    std::vector<ir::Alias> out;
    if (!op.region) return out;
    for (const ir::Alias& alias : aliases) {
      const ValueId result = op.results[alias.result];
      if (partials.contains(alias.operand)) continue;  // it may have no bytes
      if (homes_.used[result] && same_bytes(buffer(result), buffer(op.operands[alias.operand]))) out.push_back(alias);
    }
    return out;
  }

  // A result written over an operand, as homes.h allows, is said so: any other shared byte is refused by verify_plan.
  void mark_aliases(const std::vector<ir::Alias>& aliases, const Launch& l, Call& call) const {
    using K = LaunchArg::Kind;
    for (const ir::Alias& alias : aliases) {
      for (size_t r = 0; r < l.args.size(); ++r) {
        if (l.args[r].kind != K::result || l.args[r].index != alias.result || call.args[r].buffer == kNoBuffer) continue;
        for (size_t o = 0; o < l.args.size(); ++o) {
          if (l.args[o].kind != K::operand || l.args[o].index != alias.operand ||
              !same_bytes(call.args[r].buffer, call.args[o].buffer))
            continue;
          call.args[r].mode = call.args[o].mode = AccessMode::inout;
        }
      }
    }
  }

  bool same_bytes(BufferId a, BufferId b) const {
    if (a == kNoBuffer || b == kNoBuffer) return false;
    const ir::Buffer &x = draft_.plan().buffers[a], &y = draft_.plan().buffers[b];
    const auto owner = [](BufferId id, const ir::Buffer& buffer) { return buffer.view_of == kNoBuffer ? id : buffer.view_of; };
    return owner(a, x) == owner(b, y) && x.offset == y.offset && x.bytes == y.bytes;
  }

  // ---- the end of the program: every reader of an old value stands before the copy that replaces it

  BufferId output_buffer(const ir::Output& output) {
    const auto copied = copied_outputs_.find(output.name);
    return copied == copied_outputs_.end() ? buffer(output.value) : copied->second;
  }

  void copy_outputs() {
    for (const size_t i : homes_.output_copies) {
      const ir::Output& output = graph_.outputs()[i];
      const BufferId from = buffer(output.value);
      const BufferId to = draft_.add_buffer(output.name + "#out", type(output.value), BufferRole::output, output.loc);
      add_copy(output.name, from, to, output.loc);
      copied_outputs_.emplace(output.name, to);
    }
  }

  // Old values of variables that other copies replace are put aside first.
  void copy_updates() {
    std::vector<BufferId> from;
    for (const size_t i : homes_.update_copies) {
      const ir::Update& update = graph_.updates()[i];
      BufferId source = buffer(update.value);
      if (holds_old_value(update.value)) {
        const BufferId aside = draft_.add_buffer(update.variable + "#old", type(update.value), BufferRole::temp, update.loc);
        add_copy(update.variable, source, aside, update.loc);
        source = aside;
      }
      from.push_back(source);
    }
    for (size_t k = 0; k < from.size(); ++k) {
      const ir::Update& update = graph_.updates()[homes_.update_copies[k]];
      add_copy(update.variable, from[k], draft_.variable(update.variable), update.loc);
    }
  }

  // Of a variable that is updated, or of several, one of which may be.
  bool holds_old_value(ValueId value) const {
    const ir::OpId maker = graph_.value(homes_.root[value]).op;
    if (homes_.joins[maker]) return true;
    const std::string variable = variable_of(graph_.op(maker));
    const auto& updates = graph_.updates();
    return !variable.empty() &&
           std::any_of(updates.begin(), updates.end(), [&](const auto& u) { return u.variable == variable; });
  }

  PlanDraft& draft_;
  const ir::Graph& graph_;
  const Target& target_;
  SumQueue sums_;
  std::vector<const Op*> only_reader_;  ///< per value
  std::set<const Op*> left_to_sums_;    ///< additions that are made where the sum is that they add
  Homes homes_;
  std::vector<BufferId> storage_;  ///< per owner
  std::map<std::pair<ir::DType, uint64_t>, BufferId> constants_;
  std::map<std::string, BufferId> copied_outputs_;
};

void add_init(PlanDraft& draft, const ir::Module& module) {
  draft.begin_program("init");
  for (const ir::Variable& v : module.variables) {
    if (v.role == ir::VariableRole::compute) continue;  // made by prepare
    Call call;
    call.kind = CallKind::init;
    call.label = v.name;
    call.init = v.init;
    call.args = {{draft.variable(v.name), AccessMode::write}};
    call.bytes = static_cast<double>(v.type.bytes());
    call.loc = v.loc;
    draft.add_call(std::move(call));
  }
  for (const BufferId gap : draft.zero_gaps()) {
    Call call;
    call.kind = CallKind::fill;
    call.label = draft.plan().buffers[gap].name;
    call.args = {{gap, AccessMode::write}};
    call.bytes = static_cast<double>(draft.plan().buffers[gap].bytes);
    draft.add_call(std::move(call));
  }
  draft.end_program({});
}

void refuse(const std::vector<std::pair<std::string, ir::Graph>>& programs, const Target& target) {
  ir::Diagnostics diagnostics;
  std::set<std::string> said;
  for (const auto& [name, graph] : programs) {
    for (const Op& op : graph.ops()) {
      const std::string reason = target.refuses(graph, op);
      if (!reason.empty() && said.insert(op.loc.text() + reason).second) {
        diagnostics.error(op.loc, fmt::format("{}: {}", op.name(), reason));
      }
    }
  }
  diagnostics.throw_if_any();
}

}  // namespace

void lower_program(PlanDraft& draft, const ir::Graph& graph, const std::string& name, const Target& target,
                   const Arrangement& arrangement) {
  draft.begin_program(name);
  ProgramLowering(draft, graph, target).run();
  draft.end_program(arrangement);
}

ir::Plan assemble(const ir::Module& module, const std::vector<std::pair<std::string, ir::Graph>>& programs, const Target& target,
                  const CompileOptions& options) {
  refuse(programs, target);
  const ir::Graph* prepare = module.find_graph("prepare");
  std::vector<const ir::Graph*> graphs;
  for (const auto& [name, graph] : programs) graphs.push_back(&graph);
  if (prepare) graphs.push_back(prepare);
  PlanDraft draft(module, Layout(module, graphs));
  add_init(draft, module);
  const Arrangement arrangement{options.reuse_memory, options.lanes > 0 ? options.lanes : target.lanes(),
                                target.gemm_workspace_bytes()};
  const auto lower = [&](const ir::Graph& graph, const std::string& name) {
    lower_program(draft, graph, name, target, arrangement);
  };
  lower(prepare ? *prepare : ir::Graph("prepare", ir::Level::core), "prepare");
  for (const auto& [name, graph] : programs) lower(graph, name);
  ir::Plan plan = draft.finish(target);
  ir::verify_plan(plan);
  return plan;
}

}  // namespace ingot::codegen
