// verify_plan: ports and calls, each by itself.
#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "ir/base/text.h"
#include "ir/plan/check.h"

namespace ingot::ir {
namespace {

/// One call in its program, with what its checks need.
class CallCheck {
 public:
  CallCheck(const Plan& plan, int program, size_t index, const std::unordered_map<std::string_view, const Kernel*>& kernels)
      : plan_(plan), program_(program), index_(index), call_(plan.programs[program].calls[index]), kernels_(kernels) {}

  void run() const {
    for (const Access& access : call_.args) check_access(access);
    if (call_.lane < 0 || call_.lane >= 64) fail(fmt::format("lane {} is not within 0..63", call_.lane));
    for (const int after : call_.after) {
      if (after < 0 || after >= static_cast<int>(index_)) fail(fmt::format("waits for call {}, which is not before it", after));
    }
    switch (call_.kind) {
      case CallKind::launch:
        check_launch();
        break;
      case CallKind::gemm:
        check_gemm();
        break;
      case CallKind::copy:
        check_copy();
        break;
      case CallKind::fill:
        need({AccessMode::write});
        break;
      case CallKind::init:
        check_init();
        break;
      case CallKind::collective:
        fail("this format version has no collectives");
        break;
    }
    check_aliases();
  }

 private:
  [[noreturn]] void fail(const std::string& text) const {
    bad_plan(fmt::format("{}: {}", show(plan_.programs[program_], index_), text));
  }

  const Buffer& buffer(size_t arg) const { return plan_.buffers[call_.args[arg].buffer]; }
  std::string name(size_t arg) const { return show(plan_, call_.args[arg].buffer); }

  void check_access(const Access& access) const {
    if (access.buffer == kNoBuffer) return;
    if (access.buffer >= plan_.buffers.size()) fail("an argument is no buffer");
    const Buffer& b = plan_.buffers[access.buffer];
    if (b.program != -1 && b.program != program_) fail(fmt::format("{} belongs to another program", show(plan_, access.buffer)));
    if (b.first != -1 && (static_cast<int>(index_) < b.first || static_cast<int>(index_) > b.last)) {
      fail(fmt::format("{} is used outside its live range {}..{}", show(plan_, access.buffer), b.first, b.last));
    }
    if (b.role == BufferRole::input && writes(access))
      fail(fmt::format("{} is an input and written", show(plan_, access.buffer)));
  }

  void need(std::initializer_list<AccessMode> modes) const {
    const size_t given = call_.args.size() - (has_workspace() ? 1 : 0);
    if (given != modes.size()) fail(fmt::format("{} arguments; {} needed", given, modes.size()));
    size_t i = 0;
    for (const AccessMode mode : modes) {
      const Access& access = call_.args[i++];
      if (access.buffer == kNoBuffer) fail("an argument is absent");
      const bool fits = mode == AccessMode::read ? access.mode != AccessMode::write : writes(access);
      if (!fits)
        fail(fmt::format("argument {} is '{}'; '{}' needed", i - 1, access_mode_name(access.mode), access_mode_name(mode)));
    }
  }

  // A product's last argument may be scratch.
  bool has_workspace() const {
    if (call_.kind != CallKind::gemm || call_.args.empty() || call_.args.back().buffer == kNoBuffer) return false;
    return buffer(call_.args.size() - 1).role == BufferRole::workspace;
  }

  void check_launch() const {
    const auto it = kernels_.find(call_.kernel);
    if (it == kernels_.end()) fail(fmt::format("no kernel named '{}'", call_.kernel));
    const Kernel& k = *it->second;
    if (static_cast<int>(call_.args.size()) != k.args)
      fail(fmt::format("{} arguments; the kernel takes {}", call_.args.size(), k.args));
    if (static_cast<int>(call_.sizes.size()) != k.sizes)
      fail(fmt::format("{} sizes; the kernel takes {}", call_.sizes.size(), k.sizes));
    if (call_.tasks < 1) fail(fmt::format("{} tasks", call_.tasks));
    if (plan_.target.starts_with("cuda")) check_cuda_launch();
  }

  // What every card takes: a grid of that size, and accesses of 16 bytes.
  void check_cuda_launch() const {
    if (call_.tasks > 0x7fffffff) fail(fmt::format("{} tasks; a grid holds 2147483647 blocks", call_.tasks));
    for (const Access& access : call_.args) {
      if (access.buffer != kNoBuffer && plan_.buffers[access.buffer].offset % 16 != 0) {
        fail(fmt::format("{} begins at {}, no multiple of 16 bytes", show(plan_, access.buffer),
                         plan_.buffers[access.buffer].offset));
      }
    }
  }

  void check_copy() const {
    need({AccessMode::read, AccessMode::write});
    if (buffer(0).type.dtype != buffer(1).type.dtype || buffer(0).type.elements() != buffer(1).type.elements()) {
      fail(fmt::format("{} ({}) does not fit {} ({})", name(0), buffer(0).type.text(), name(1), buffer(1).type.text()));
    }
  }

  void check_init() const {
    need({AccessMode::write});
    if (call_.init.empty()) fail("no initial value");
    if (buffer(0).program != -1) fail(fmt::format("{} is no variable's", name(0)));
  }

  void check_gemm() const {
    const Gemm& g = call_.gemm;
    const bool has_c = g.beta != 0;
    if (has_c) {
      need({AccessMode::read, AccessMode::read, AccessMode::read, AccessMode::write});
    } else {
      need({AccessMode::read, AccessMode::read, AccessMode::write});
    }
    if (has_workspace() && !writes(call_.args.back())) fail("its workspace is only read");
    for (size_t i = 0; i <= g.result(); ++i) {
      if (!is_float(buffer(i).type.dtype)) fail(fmt::format("no gemm of {}: {}", dtype_name(buffer(i).type.dtype), name(i)));
    }
    if (g.m < 1 || g.n < 1 || g.k < 1 || g.batch < 1) fail(fmt::format("m {} n {} k {} batch {}", g.m, g.n, g.k, g.batch));
    check_matrix(0, g.ta ? g.k : g.m, g.ta ? g.m : g.k, g.lda, g.stride_a, true);
    check_matrix(1, g.tb ? g.n : g.k, g.tb ? g.k : g.n, g.ldb, g.stride_b, true);
    if (g.has_bias()) {
      check_bias();
    } else if (has_c) {
      check_matrix(2, g.m, g.n, g.ldc, g.stride_c, true);
    }
    check_matrix(g.result(), g.m, g.n, g.ldd, g.stride_d, false);
  }

  // One row, added as it is. Every row of the result reads it, so no row may be written over it.
  void check_bias() const {
    const Gemm& g = call_.gemm;
    if (g.alpha != 1 || g.beta != 1) fail(fmt::format("a bias is added with alpha {} and beta {}; 1 needed", g.alpha, g.beta));
    if (writes(call_.args[2])) fail(fmt::format("the bias {} is written", name(2)));
    const DType bias = buffer(2).type.dtype, result = buffer(3).type.dtype;
    if (bias != DType::f32 && bias != result) {
      fail(fmt::format("the bias {} is {}; f32 or the result's {} needed", name(2), dtype_name(bias), dtype_name(result)));
    }
    check_matrix(2, 1, g.n, g.n, g.stride_c, true);
  }

  // The last element read or written lies inside the buffer; a result's batches do not overlap.
  void check_matrix(size_t arg, int64_t rows, int64_t cols, int64_t ld, int64_t stride, bool may_share) const {
    const auto real = [](int64_t x) { return static_cast<double>(x); };
    const double extent = real(call_.gemm.batch - 1) * real(stride) + real(rows - 1) * real(ld) + real(cols);
    if (ld < cols || stride < 0 || extent > real(buffer(arg).type.elements())) {
      fail(fmt::format("{} rows of {} every {}, {} batches every {}, do not fit {} ({})", rows, cols, ld, call_.gemm.batch,
                       stride, name(arg), buffer(arg).type.text()));
    }
    if (!may_share && call_.gemm.batch > 1 && real(stride) < real(rows - 1) * real(ld) + real(cols)) {
      fail(fmt::format("batches of {} overlap", name(arg)));
    }
  }

  void check_aliases() const {
    const auto& args = call_.args;
    for (size_t i = 0; i < args.size(); ++i) {
      for (size_t j = i + 1; j < args.size(); ++j) {
        if (args[i].buffer == kNoBuffer || args[j].buffer == kNoBuffer || (!writes(args[i]) && !writes(args[j]))) continue;
        const ByteRange a = bytes_of(buffer(i)), b = bytes_of(buffer(j));
        if (buffer(i).arena != buffer(j).arena || !a.overlaps(b)) continue;
        const bool declared = a == b && args[i].mode == AccessMode::inout && args[j].mode == AccessMode::inout;
        if (!declared)
          fail(fmt::format("arguments {} ({}) and {} ({}) share bytes without being a declared alias", i, name(i), j, name(j)));
      }
    }
  }

  const Plan& plan_;
  int program_;
  size_t index_;
  const Call& call_;
  const std::unordered_map<std::string_view, const Kernel*>& kernels_;
};

void check_ports(const Plan& plan, int index, const std::vector<Port>& ports, BufferRole role) {
  const Program& program = plan.programs[index];
  std::unordered_set<std::string_view> seen;
  for (const Port& port : ports) {
    const std::string what = fmt::format("program {}: {} '{}'", program.name, buffer_role_name(role), port.name);
    if (port.name.empty() || !seen.insert(port.name).second) bad_plan(what + " has no name of its own");
    if (port.buffer >= plan.buffers.size()) bad_plan(what + " has no buffer");
    const Buffer& b = plan.buffers[port.buffer];
    if (b.role != role || b.program != index) {
      bad_plan(fmt::format("{} is in {}, which is no {} of this program", what, show(plan, port.buffer), buffer_role_name(role)));
    }
  }
}

// A copy derived from the parameters is made by `prepare`: nobody else would do it after a load.
void check_prepared(const Plan& plan) {
  std::unordered_map<BufferId, Written> made;
  if (const Program* prepare = plan.find_program("prepare")) {
    for (const Call& call : prepare->calls) {
      for (const Access& access : call.args) {
        if (access.buffer != kNoBuffer && writes(access))
          made[owner_of(plan, access.buffer)].add(contents_of(plan.buffers[access.buffer]));
      }
    }
  }
  for (const Binding& b : plan.bindings) {
    if (b.variable.role == VariableRole::compute && !made[owner_of(plan, b.buffer)].covers(contents_of(plan.buffers[b.buffer]))) {
      bad_plan(fmt::format("{} is a compute copy that program prepare does not make", show(plan, b.buffer)));
    }
  }
}

}  // namespace

void check_programs(const Plan& plan) {
  std::unordered_map<std::string_view, const Kernel*> kernels;
  for (const Kernel& k : plan.kernels) kernels.emplace(k.name, &k);
  for (int p = 0; p < static_cast<int>(plan.programs.size()); ++p) {
    check_ports(plan, p, plan.programs[p].inputs, BufferRole::input);
    check_ports(plan, p, plan.programs[p].outputs, BufferRole::output);
    for (size_t i = 0; i < plan.programs[p].calls.size(); ++i) CallCheck(plan, p, i, kernels).run();
  }
  check_prepared(plan);
}

}  // namespace ingot::ir
