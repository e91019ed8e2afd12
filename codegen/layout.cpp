#include "codegen/layout.h"

#include <algorithm>
#include <optional>

#include "codegen/parts.h"
#include "ir/graph/op_def.h"
#include "ir/plan/plan.h"

namespace ingot::codegen {
namespace {

using ir::Graph;
using ir::Module;
using ir::Variable;
using Member = Segment::Member;

// Takes a variable in; false when it is of another role or dtype than those before it.
bool join(Segment& segment, const Variable* variable, int64_t offset) {
  if (!variable) return false;
  if (segment.members.empty()) {
    segment.role = variable->role;
    segment.dtype = variable->type.dtype;
  }
  segment.members.push_back({variable->name, offset, variable->type.bytes()});
  return segment.role == variable->role && segment.dtype == variable->type.dtype;
}

constexpr int64_t kMostGaps = 1 << 20;  ///< bytes; more than this and than the members need, and they are no neighbours

// Two members or more, each aligned as any buffer, apart from each other but not far.
bool sound(Segment& segment) {
  std::vector<Member>& members = segment.members;
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.offset < b.offset; });
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].offset % ir::kBufferAlignment != 0) return false;
    const int64_t end = i + 1 < members.size() ? members[i + 1].offset : segment.bytes;
    if (members[i].offset + members[i].bytes > end) return false;
  }
  int64_t held = 0;
  for (const Member& member : members) held += member.bytes;
  return members.size() > 1 && members[0].offset == 0 && segment.bytes - held <= std::max(held, kMostGaps);
}

}  // namespace

std::vector<Segment::Gap> Segment::gaps() const {
  std::vector<Gap> out;
  int64_t at = 0;
  for (const Member& member : members) {
    if (member.offset > at) out.push_back({at, member.offset - at});
    at = member.offset + member.bytes;
  }
  if (bytes > at) out.push_back({at, bytes - at});
  return out;
}

Layout::Layout(const Module& module, const std::vector<const Graph*>& graphs) {
  // What is read as one comes first: a view saves more than an update in place.
  std::vector<Parts> parts;
  for (const Graph* graph : graphs) parts.push_back(find_parts(*graph));
  for (size_t i = 0; i < graphs.size(); ++i) concats(module, *graphs[i], parts[i]);
  for (size_t i = 0; i < graphs.size(); ++i) updates(module, *graphs[i], parts[i]);
}

Layout::Place Layout::place(std::string_view variable) const {
  const auto at = places_.find(variable);
  return at == places_.end() ? Place{} : at->second;
}

// Variables whole, zeros between them.
void Layout::concats(const Module& module, const Graph& graph, const Parts& parts) {
  for (ir::OpId id = 0; id < graph.ops().size(); ++id) {
    const ir::Op& op = graph.op(id);
    if (!parts.live[id] || parts.packed[id] || !joins_runs(graph, op)) continue;
    Segment wanted;
    wanted.zero_gaps = true;
    bool fits = true;
    for (const ir::ValueId operand : op.operands) {
      const std::string name = variable_of(graph.maker(parts.root[operand]));
      if (!name.empty() && parts.whole(graph, operand)) {
        fits = fits && join(wanted, module.find_variable(name), wanted.bytes);
      } else {
        fits = fits && spread_constant(graph, operand) == 0.0;
      }
      wanted.bytes += graph.type(operand).bytes();
    }
    if (fits && sound(wanted)) request(std::move(wanted));
  }
}

// New values that are parts of one.
void Layout::updates(const Module& module, const Graph& graph, const Parts& parts) {
  std::map<ir::ValueId, std::vector<const ir::Update*>> by_root;
  for (const ir::Update& update : graph.updates()) by_root[parts.root[update.value]].push_back(&update);
  for (const auto& [root, list] : by_root) {
    Segment wanted;
    wanted.bytes = graph.type(root).bytes();
    wanted.zero_gaps = parts.packed[graph.value(root).op];
    bool fits = true;
    for (const ir::Update* update : list) {
      const Variable* variable = module.find_variable(update->variable);
      fits = fits && join(wanted, variable, parts.offset[update->value]) && graph.type(update->value) == variable->type;
    }
    if (fits && sound(wanted)) request(std::move(wanted));
  }
}

// First come, first served; who asks for the same again gets it.
void Layout::request(Segment wanted) {
  const Place first = place(wanted.members[0].variable);
  if (first.segment >= 0) {
    Segment& known = segments_[static_cast<size_t>(first.segment)];
    if (known.members == wanted.members && known.bytes == wanted.bytes) known.zero_gaps |= wanted.zero_gaps;
    return;
  }
  const auto taken = [&](const Member& member) { return place(member.variable).segment >= 0; };
  if (std::any_of(wanted.members.begin(), wanted.members.end(), taken)) return;
  for (const Member& member : wanted.members) {
    places_[member.variable] = {static_cast<int>(segments_.size()), member.offset};
  }
  segments_.push_back(std::move(wanted));
}

}  // namespace ingot::codegen
