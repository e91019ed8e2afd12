// plan.txt, written. One line per thing; whatever a reader may want to search for (`%name`, `kernel name`) is spelled the same
// everywhere.
#include <fmt/format.h>

#include <bit>
#include <iterator>
#include <unordered_set>

#include "ir/base/error.h"
#include "ir/base/lexer.h"
#include "ir/base/text.h"
#include "ir/plan/format.h"
#include "ir/plan/plan.h"

namespace ingot::ir {
namespace {

class Printer {
 public:
  explicit Printer(const Plan& plan) : plan_(plan) {}

  std::string run() {
    check_unique();
    line("{} {}", kPlanMagic, kPlanFormat);
    line("name {}", quoted(plan_.name));
    line("target {}", quoted(plan_.target));
    line("features {}", quoted(plan_.target_features));
    for (const auto& [key, value] : plan_.info) line("info {} = {}", quoted(key), quoted(value));
    for (const std::string& glob : plan_.checkpoint_ignore) line("ignore {}", quoted(glob));
    for (const InputRange& range : plan_.ranges) print(range);
    for (const Arena& arena : plan_.arenas) line("arena {} {}", name_text(arena.name), arena.bytes);
    for (const Buffer& buffer : plan_.buffers) print(buffer);
    for (const Kernel& kernel : plan_.kernels) print(kernel);
    for (const Binding& binding : plan_.bindings) print(binding);
    print_files();
    for (const Program& program : plan_.programs) print(program);
    return std::move(out_);
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    put(format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  // References are written by name, so names must tell things apart.
  void check_unique() const {
    const auto unique = [](const auto& list, const char* what) {
      std::unordered_set<std::string_view> seen;
      for (const auto& item : list)
        check(seen.insert(item.name).second, [&] { return fmt::format("print_plan: two {} named {}", what, item.name); });
    };
    unique(plan_.arenas, "arenas");
    unique(plan_.buffers, "buffers");
    unique(plan_.programs, "programs");
  }

  std::string buffer_name(BufferId id) const {
    if (id == kNoBuffer) return "none";
    check(id < plan_.buffers.size(), "print_plan: a buffer id past the end");
    return value_text(plan_.buffers[id].name);
  }

  void end(const Loc& loc) {
    if (loc.file) {
      put(" loc({}:{}:{}{})", quoted(*loc.file), loc.line, loc.col, loc.origin ? ", " + quoted(*loc.origin) : "");
    } else if (loc != Loc{}) {
      put(" loc(none:{}:{}{})", loc.line, loc.col, loc.origin ? ", " + quoted(*loc.origin) : "");
    }
    out_ += '\n';
  }

  void print(const InputRange& range) {
    put("range {} {}..{}", name_text(range.input), range.lo, range.hi);
    if (!range.also.empty()) put(" or {}", shape_text(range.also));
    end(range.loc);
  }

  void print(const Buffer& b) {
    check(b.arena >= 0 && b.arena < static_cast<int>(plan_.arenas.size()), "print_plan: a buffer in no arena");
    check(b.program >= -1 && b.program < static_cast<int>(plan_.programs.size()), "print_plan: a buffer of no program");
    put("buffer {}: {} {}", value_text(b.name), b.type.text(), buffer_role_name(b.role));
    if (b.program >= 0) put(" of {}", name_text(plan_.programs[b.program].name));
    put(" in {} at {} bytes {}", name_text(plan_.arenas[b.arena].name), b.offset, b.bytes);
    if (b.first != -1 || b.last != -1) put(" live {}..{}", b.first, b.last);
    if (b.view_of != kNoBuffer) put(" view of {}", buffer_name(b.view_of));
    end(b.loc);
  }

  void print(const Kernel& k) {
    line("kernel {} symbol {} image {} source {} args {} sizes {} threads {} shared {} registers {} spills {}", name_text(k.name),
         quoted(k.symbol), quoted(k.image), quoted(k.source), k.args, k.sizes, k.threads, k.shared_bytes, k.registers,
         k.spill_bytes);
  }

  void print(const Binding& binding) {
    const Variable& v = binding.variable;
    put("{} {}: {} = {} at {}", variable_role_name(v.role), value_text(v.name), v.type.text(), quoted(v.init),
        buffer_name(binding.buffer));
    if (!v.trainable) put(" frozen");
    if (!v.saved) put(" unsaved");
    if (!same_real(v.lr_factor, 1)) put(" lr {}", real_text(v.lr_factor));
    if (!same_real(v.decay_factor, 1)) put(" decay {}", real_text(v.decay_factor));
    end(v.loc);
  }

  // What is there is described; of a plan parsed from text alone, what its text said.
  void print_files() {
    std::map<std::string, FileEntry> entries = plan_.listed;
    for (const auto& [name, text] : plan_.files) {
      if (!text.empty() || !entries.contains(name)) entries[name] = {static_cast<int64_t>(text.size()), hash64(text)};
    }
    for (const auto& [name, entry] : entries) line("file {} bytes {} hash \"{:016x}\"", quoted(name), entry.bytes, entry.hash);
  }

  void print(const Program& program) {
    line("program {} {{", name_text(program.name));
    for (const Port& port : program.inputs) line("  input {} = {}", name_text(port.name), buffer_name(port.buffer));
    for (const Port& port : program.outputs) line("  output {} = {}", name_text(port.name), buffer_name(port.buffer));
    for (const Call& call : program.calls) print(call);
    line("}}");
  }

  void print(const Call& call) {
    put("  {} {} (", call_kind_name(call.kind), quoted(call.label));
    const char* comma = "";
    for (const Access& access : call.args) {
      put("{}{} {}", comma, access_mode_name(access.mode), buffer_name(access.buffer));
      comma = ", ";
    }
    put(")");
    if (!call.kernel.empty()) put(" kernel {}", name_text(call.kernel));
    if (!call.sizes.empty()) put(" sizes {}", shape_text(call.sizes));
    if (call.tasks != 1) put(" tasks {}", call.tasks);
    if (!(call.gemm == Gemm{})) print(call.gemm);
    if (!same_real(call.fill, 0)) put(" value {}", real_text(call.fill));
    if (!call.init.empty()) put(" from {}", quoted(call.init));
    if (call.lane != 0) put(" lane {}", call.lane);
    if (!call.after.empty()) put(" after {}", shape_text(std::vector<int64_t>(call.after.begin(), call.after.end())));
    if (!same_real(call.flops, 0)) put(" flops {}", real_text(call.flops));
    if (!same_real(call.bytes, 0)) put(" bytes {}", real_text(call.bytes));
    end(call.loc);
  }

  void print(const Gemm& g) {
    put(" m {} n {} k {} batch {} ta {} tb {} ld [{}, {}, {}, {}] strides [{}, {}, {}, {}] alpha {} beta {} algorithm {}", g.m,
        g.n, g.k, g.batch, g.ta, g.tb, g.lda, g.ldb, g.ldc, g.ldd, g.stride_a, g.stride_b, g.stride_c, g.stride_d,
        real_text(g.alpha), real_text(g.beta), quoted(g.algorithm));
  }

  // Bit for bit: -0.0 and NaN are written too.
  static bool same_real(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

  const Plan& plan_;
  std::string out_;
};

}  // namespace

std::string print_plan(const Plan& plan) { return Printer(plan).run(); }

}  // namespace ingot::ir
