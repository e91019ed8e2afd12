#include "codegen/draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/lanes.h"
#include "ir/base/error.h"
#include "ir/plan/check.h"

namespace ingot::codegen {
namespace {

using ir::Buffer;
using ir::BufferId;
using ir::BufferRole;

constexpr std::string_view kWork = "work";

std::string_view arena_of(ir::VariableRole role) {
  switch (role) {
    case ir::VariableRole::param:
      return "params";
    case ir::VariableRole::state:
      return "states";
    case ir::VariableRole::hyper:
      return "hyper";
    case ir::VariableRole::compute:
      return "compute";
  }
  return "";
}

bool placed_by_life(const Buffer& b) { return b.role == BufferRole::temp || b.role == BufferRole::workspace; }

}  // namespace

PlanDraft::PlanDraft(const ir::Module& module, Layout layout) : layout_(std::move(layout)) {
  plan_.name = module.name;
  plan_.ranges = module.ranges;
  plan_.checkpoint_ignore = module.checkpoint_ignore;
  plan_.info = module.info;
  segments_.assign(layout_.segments().size(), ir::kNoBuffer);
  using R = ir::VariableRole;
  for (const R role : {R::param, R::state, R::hyper, R::compute}) {
    for (const ir::Variable& v : module.variables) {
      if (v.role != role) continue;
      Buffer b;
      b.name = v.name;
      b.type = v.type;
      b.role = static_cast<BufferRole>(role);
      b.arena = arena(arena_of(role));
      b.bytes = v.type.bytes();
      b.loc = v.loc;
      if (const Layout::Place place = layout_.place(v.name); place.segment >= 0) {
        BufferId& owner = segments_[static_cast<size_t>(place.segment)];
        if (owner == ir::kNoBuffer) owner = add_segment(layout_.segments()[place.segment], b);
        b.view_of = owner;
        b.offset = plan_.buffers[owner].offset + place.offset;
      } else {
        b.offset = allocate(b.arena, b.bytes);
      }
      variables_.emplace(v.name, push(std::move(b)));
    }
  }
  for (const ir::Variable& v : module.variables) plan_.bindings.push_back({v, variable(v.name)});
}

// The bytes of a segment, named after the first of its variables, which `like` is bound to.
BufferId PlanDraft::add_segment(const Segment& segment, Buffer like) {
  like.name += "+";
  like.type = {segment.dtype, {segment.bytes / ir::dtype_bytes(segment.dtype)}};
  like.bytes = segment.bytes;
  like.offset = allocate(like.arena, like.bytes);
  return push(std::move(like));
}

std::vector<BufferId> PlanDraft::zero_gaps() {
  std::vector<BufferId> out;
  for (size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = layout_.segments()[s];
    if (!segment.zero_gaps) continue;
    const std::string owner = plan_.buffers[segments_[s]].name;
    for (const Segment::Gap& gap : segment.gaps()) {
      const ir::Type type{segment.dtype, {gap.bytes / ir::dtype_bytes(segment.dtype)}};
      out.push_back(
          view(segments_[s], fmt::format("{}{}", owner, gap.offset), type, gap.offset, plan_.buffers[segments_[s]].loc));
    }
  }
  return out;
}

int PlanDraft::arena(std::string_view name) {
  const auto it = std::find_if(plan_.arenas.begin(), plan_.arenas.end(), [&](const ir::Arena& a) { return a.name == name; });
  if (it != plan_.arenas.end()) return static_cast<int>(it - plan_.arenas.begin());
  plan_.arenas.push_back({std::string(name), 0});
  return static_cast<int>(plan_.arenas.size()) - 1;
}

int64_t PlanDraft::allocate(int arena, int64_t bytes) {
  int64_t& end = plan_.arenas[arena].bytes;
  const int64_t offset = end;
  end += (bytes + ir::kBufferAlignment - 1) / ir::kBufferAlignment * ir::kBufferAlignment;
  return offset;
}

BufferId PlanDraft::push(Buffer buffer) {
  plan_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(plan_.buffers.size()) - 1;
}

std::string PlanDraft::local_name(std::string_view name) const { return fmt::format("{}/{}", plan_.programs.back().name, name); }

BufferId PlanDraft::variable(std::string_view name) const {
  const auto it = variables_.find(name);
  ir::check(it != variables_.end(), [&] { return fmt::format("no variable named {} is in the plan", name); });
  return it->second;
}

int PlanDraft::begin_program(std::string name) {
  plan_.programs.push_back({std::move(name), {}, {}, {}});
  first_local_ = plan_.buffers.size();
  return static_cast<int>(plan_.programs.size()) - 1;
}

BufferId PlanDraft::add_buffer(std::string_view name, const ir::Type& type, BufferRole role, ir::Loc loc) {
  Buffer b;
  b.name = local_name(name);
  b.type = type;
  b.role = role;
  b.program = static_cast<int>(plan_.programs.size()) - 1;
  b.bytes = type.bytes();
  b.arena = arena(placed_by_life(b) ? kWork : "io");
  if (!placed_by_life(b)) b.offset = allocate(b.arena, b.bytes);
  b.loc = loc;
  return push(std::move(b));
}

BufferId PlanDraft::view(BufferId of, std::string_view name, const ir::Type& type, int64_t offset, ir::Loc loc) {
  const Buffer& from = plan_.buffers[of];
  if (offset == 0 && type == from.type) return of;
  Buffer b = from;
  b.name = local_name(name);
  b.type = type;
  b.offset += offset;
  b.bytes = type.bytes();
  b.loc = loc;
  if (b.view_of == ir::kNoBuffer) b.view_of = of;
  const auto known = views_.find(b.name);
  if (known == views_.end()) return views_.emplace(b.name, push(b)).first->second;
  const Buffer& other = plan_.buffers[known->second];
  ir::check(other.view_of == b.view_of && other.offset == b.offset && other.type == b.type,
            [&] { return "two views named " + b.name; });
  return known->second;
}

// A temp lives at least from the first to the last call that touches it, which come in order.
void PlanDraft::touch(BufferId id, int call) {
  if (id == ir::kNoBuffer) return;
  Buffer& owner = plan_.buffers[ir::owner_of(plan_, id)];
  if (!placed_by_life(owner)) return;
  if (owner.first < 0) owner.first = call;
  owner.last = call;
}

void PlanDraft::add_call(ir::Call call) {
  const int index = static_cast<int>(current().calls.size());
  for (const ir::Access& access : call.args) touch(access.buffer, index);
  current().calls.push_back(std::move(call));
}

// One a lane: products of a lane run one after the other.
void PlanDraft::add_gemm_workspaces(int64_t bytes) {
  std::map<int, BufferId> workspaces;
  for (size_t i = 0; i < current().calls.size(); ++i) {
    const int lane = current().calls[i].lane;
    if (current().calls[i].kind != ir::CallKind::gemm) continue;
    const auto [at, fresh] = workspaces.try_emplace(lane, ir::kNoBuffer);
    if (fresh) at->second = add_buffer(fmt::format("#gemm{}", lane), {ir::DType::boolean, {bytes}}, BufferRole::workspace, {});
    current().calls[i].args.push_back({at->second, ir::AccessMode::inout});
    touch(at->second, static_cast<int>(i));
  }
}

// A temp keeps its bytes until nobody who runs beside those that touch it can be left.
void PlanDraft::lengthen_lives() {
  const std::vector<int> ends = ends_of_calls(current());
  for (size_t i = 0; i < ends.size(); ++i) {
    for (const ir::Access& access : current().calls[i].args) {
      if (access.buffer == ir::kNoBuffer) continue;
      Buffer& owner = plan_.buffers[ir::owner_of(plan_, access.buffer)];
      if (placed_by_life(owner)) owner.last = std::max(owner.last, ends[i]);
    }
  }
}

void PlanDraft::end_program(const Arrangement& arrangement) {
  if (arrangement.lanes > 1) spread_over_lanes(plan_, current(), arrangement.lanes);
  if (arrangement.gemm_workspace > 0) add_gemm_workspaces(arrangement.gemm_workspace);
  if (arrangement.lanes > 1) lengthen_lives();
  std::vector<BufferId> owners;
  std::vector<Life> lives;
  MemoryReport report;
  report.program = current().name;
  for (auto id = static_cast<BufferId>(first_local_); id < plan_.buffers.size(); ++id) {
    const Buffer& b = plan_.buffers[id];
    if (!placed_by_life(b) || b.view_of != ir::kNoBuffer) continue;
    ir::check(b.first >= 0, b.name + " has bytes but no call");
    owners.push_back(id);
    lives.push_back({b.bytes, b.first, b.last});
    report.total_bytes += b.bytes;
  }
  const Placement placement = place(lives, arrangement.reuse);
  for (size_t i = 0; i < owners.size(); ++i) plan_.buffers[owners[i]].offset = placement.offsets[i];
  for (size_t id = first_local_; id < plan_.buffers.size(); ++id) {
    Buffer& b = plan_.buffers[id];
    if (!placed_by_life(b) || b.view_of == ir::kNoBuffer) continue;
    const Buffer& owner = plan_.buffers[b.view_of];
    b.offset += owner.offset;
    b.first = owner.first;
    b.last = owner.last;
  }
  if (!owners.empty()) {
    int64_t& bytes = plan_.arenas[arena(kWork)].bytes;
    bytes = std::max(bytes, placement.bytes);
  }
  report.temps = static_cast<int64_t>(owners.size());
  report.bound_bytes = placement.bound;
  report.placed_bytes = placement.bytes;
  memory_.push_back(report);
}

ir::Plan PlanDraft::finish(const Target& target) {
  plan_.target = target.name();
  kernels_.build(target, plan_);
  for (const MemoryReport& m : memory_) {
    if (m.temps == 0) continue;
    plan_.info.emplace_back("memory." + m.program, fmt::format("temps {} total {} bound {} placed {}", m.temps, m.total_bytes,
                                                               m.bound_bytes, m.placed_bytes));
  }
  return std::move(plan_);
}

}  // namespace ingot::codegen
