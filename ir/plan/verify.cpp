// verify_plan: what holds for every plan that runs. It shares no code with the planner: it trusts only the plan.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "ir/base/error.h"
#include "ir/base/lexer.h"
#include "ir/base/text.h"
#include "ir/plan/check.h"

namespace ingot::ir {

void bad_plan(const std::string& sentence) { throw UserError(Loc{}, "bad plan: " + sentence); }

std::string show(const Plan& plan, BufferId id) { return value_text(plan.buffers[id].name); }

std::string show(const Program& program, size_t call) {
  const Call& c = program.calls[call];
  return fmt::format("program {}, call {} ({} {})", program.name, call, call_kind_name(c.kind), quoted(c.label));
}

bool needs_contents(const Plan& plan, const Access& access) {
  if (access.mode == AccessMode::write) return false;
  return access.mode == AccessMode::read || plan.buffers[access.buffer].role != BufferRole::workspace;
}

ByteRange bytes_of(const Buffer& buffer) { return {buffer.offset, buffer.offset + buffer.bytes}; }

namespace {

constexpr double kMostBytes = 0x1p56;  ///< sums and products below stay exact enough in double and inside int64

void check_names(const auto& list, const auto& name_of, std::string_view what) {
  std::unordered_set<std::string> seen;
  for (const auto& item : list) {
    const std::string& name = name_of(item);
    if (name.empty()) bad_plan(fmt::format("a {} without a name", what));
    if (!seen.insert(name).second) bad_plan(fmt::format("two {}s named '{}'", what, name));
  }
}
constexpr auto kName = [](const auto& item) -> const std::string& { return item.name; };

bool persistent(BufferRole role) { return role <= BufferRole::compute; }
bool always_live(BufferRole role) { return role <= BufferRole::output; }

void check_type(const Plan& plan, BufferId id) {
  const Buffer& b = plan.buffers[id];
  double bytes = static_cast<double>(dtype_bytes(b.type.dtype));
  for (const int64_t size : b.type.shape) {
    if (size <= 0) bad_plan(fmt::format("{} has the shape {}", show(plan, id), shape_text(b.type.shape)));
    bytes *= static_cast<double>(size);
    if (bytes > kMostBytes) bad_plan(fmt::format("{} is too large: {}", show(plan, id), b.type.text()));
  }
  if (b.bytes < b.type.bytes()) bad_plan(fmt::format("{} has {} bytes for {}", show(plan, id), b.bytes, b.type.text()));
}

void check_place(const Plan& plan, BufferId id) {
  const Buffer& b = plan.buffers[id];
  if (b.arena < 0 || b.arena >= static_cast<int>(plan.arenas.size())) bad_plan(fmt::format("{} is in no arena", show(plan, id)));
  const Arena& arena = plan.arenas[b.arena];
  if (b.offset < 0 || b.bytes > arena.bytes || b.offset > arena.bytes - b.bytes) {
    bad_plan(fmt::format("{} reaches past the end of arena {} ({} bytes)", show(plan, id), arena.name, arena.bytes));
  }
  const int64_t unit = b.view_of == kNoBuffer ? kBufferAlignment : dtype_bytes(b.type.dtype);
  if (b.offset % unit != 0) bad_plan(fmt::format("{} at {} is not aligned to {} bytes", show(plan, id), b.offset, unit));
}

void check_life(const Plan& plan, BufferId id) {
  const Buffer& b = plan.buffers[id];
  const int programs = static_cast<int>(plan.programs.size());
  if (persistent(b.role) != (b.program == -1) || b.program < -1 || b.program >= programs) {
    bad_plan(fmt::format("{} ({}) belongs to the wrong program", show(plan, id), buffer_role_name(b.role)));
  }
  if (always_live(b.role)) {
    if (b.first != -1 || b.last != -1)
      bad_plan(fmt::format("{} ({}) has a live range", show(plan, id), buffer_role_name(b.role)));
    return;
  }
  const int calls = static_cast<int>(plan.programs[b.program].calls.size());
  if (b.first < 0 || b.last < b.first || b.last >= calls) {
    bad_plan(fmt::format("{} is live {}..{} in a program of {} calls", show(plan, id), b.first, b.last, calls));
  }
}

void check_view(const Plan& plan, BufferId id) {
  const Buffer& view = plan.buffers[id];
  if (view.view_of == kNoBuffer) return;
  if (view.view_of >= plan.buffers.size() || plan.buffers[view.view_of].view_of != kNoBuffer) {
    bad_plan(fmt::format("{} is a view of no owner", show(plan, id)));
  }
  const Buffer& owner = plan.buffers[view.view_of];
  const ByteRange inner = bytes_of(view), outer = bytes_of(owner);
  if (view.arena != owner.arena || inner.begin < outer.begin || inner.end > outer.end) {
    bad_plan(fmt::format("{} reaches outside {}, which it is a view of", show(plan, id), show(plan, view.view_of)));
  }
  if (view.role != owner.role || view.program != owner.program || view.first != owner.first || view.last != owner.last) {
    bad_plan(fmt::format("{} lives otherwise than {}, which it is a view of", show(plan, id), show(plan, view.view_of)));
  }
}

BufferRole role_of(VariableRole role) { return static_cast<BufferRole>(static_cast<uint8_t>(role)); }

// Variables may be parts of one buffer, but never of each other.
void check_apart(const Plan& plan, std::vector<BufferId> variables) {
  const auto key = [&](BufferId id) { return std::pair(owner_of(plan, id), plan.buffers[id].offset); };
  std::sort(variables.begin(), variables.end(), [&](BufferId a, BufferId b) { return key(a) < key(b); });
  for (size_t i = 1; i < variables.size(); ++i) {
    const BufferId a = variables[i - 1], b = variables[i];
    if (owner_of(plan, a) == owner_of(plan, b) && bytes_of(plan.buffers[a]).overlaps(bytes_of(plan.buffers[b]))) {
      bad_plan(fmt::format("the variables in {} and {} share bytes", show(plan, a), show(plan, b)));
    }
  }
}

void check_bindings(const Plan& plan) {
  check_names(
      plan.bindings, [](const Binding& b) -> const std::string& { return b.variable.name; }, "variable");
  std::set<BufferId> bound;
  for (const Binding& b : plan.bindings) {
    const Variable& v = b.variable;
    if (b.buffer >= plan.buffers.size()) bad_plan(fmt::format("variable {} has no buffer", value_text(v.name)));
    const Buffer& buffer = plan.buffers[b.buffer];
    if (buffer.role != role_of(v.role) || !(buffer.type == v.type)) {
      bad_plan(fmt::format("variable {} ({} {}) is bound to {} ({} {})", value_text(v.name), variable_role_name(v.role),
                           v.type.text(), show(plan, b.buffer), buffer_role_name(buffer.role), buffer.type.text()));
    }
    if (!bound.insert(b.buffer).second) bad_plan(fmt::format("two variables are bound to {}", show(plan, b.buffer)));
  }
  check_apart(plan, {bound.begin(), bound.end()});
}

// What every card of a CUDA target can launch; elsewhere there are no blocks.
void check_block(const Plan& plan, const Kernel& k) {
  const bool cuda = plan.target.starts_with("cuda");
  if (cuda ? k.threads < 1 || k.threads > 1024 : k.threads != 0) {
    bad_plan(fmt::format("kernel {} has blocks of {} threads on the target {}", k.name, k.threads, quoted(plan.target)));
  }
  if (k.shared_bytes < 0 || k.shared_bytes > 227 * 1024 || (!cuda && k.shared_bytes != 0)) {
    bad_plan(fmt::format("kernel {} asks for {} bytes of shared memory on the target {}", k.name, k.shared_bytes,
                         quoted(plan.target)));
  }
}

}  // namespace

void check_files(const Plan& plan) {
  check_names(plan.kernels, kName, "kernel");
  if (!plan.listed.empty()) {
    for (const auto& [name, entry] : plan.listed) {
      const auto it = plan.files.find(name);
      if (it == plan.files.end()) bad_plan(fmt::format("file {} is missing", quoted(name)));
      if (entry.bytes != static_cast<int64_t>(it->second.size()) || entry.hash != hash64(it->second)) {
        bad_plan(fmt::format("file {} is not the one the plan was made with (its hash differs)", quoted(name)));
      }
    }
    for (const auto& [name, text] : plan.files) {
      if (!plan.listed.contains(name)) bad_plan(fmt::format("file {} is not listed", quoted(name)));
    }
  }
  for (const Kernel& k : plan.kernels) {
    if (k.symbol.empty()) bad_plan(fmt::format("kernel {} has no symbol", k.name));
    if (!plan.files.contains(k.image)) bad_plan(fmt::format("kernel {}: image {} is missing", k.name, quoted(k.image)));
    if (!plan.files.contains(k.source)) bad_plan(fmt::format("kernel {}: source {} is missing", k.name, quoted(k.source)));
    if (k.args < 0 || k.sizes < 0) bad_plan(fmt::format("kernel {} takes {} arguments and {} sizes", k.name, k.args, k.sizes));
    check_block(plan, k);
  }
}

void check_buffers(const Plan& plan) {
  check_names(plan.arenas, kName, "arena");
  check_names(plan.programs, kName, "program");
  check_names(plan.buffers, kName, "buffer");
  for (const Arena& arena : plan.arenas) {
    if (arena.bytes < 0 || static_cast<double>(arena.bytes) > kMostBytes) {
      bad_plan(fmt::format("arena {} has {} bytes", arena.name, arena.bytes));
    }
  }
  for (BufferId id = 0; id < plan.buffers.size(); ++id) {
    check_type(plan, id);
    check_place(plan, id);
    check_life(plan, id);
  }
  for (BufferId id = 0; id < plan.buffers.size(); ++id) check_view(plan, id);
  check_bindings(plan);
  check_names(
      plan.ranges, [](const InputRange& r) -> const std::string& { return r.input; }, "input range");
}

void verify_plan(const Plan& plan) {
  check_files(plan);
  check_buffers(plan);
  check_overlap(plan);
  check_programs(plan);
  check_order(plan);
  check_lanes(plan);
}

}  // namespace ingot::ir
