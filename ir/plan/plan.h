// The plan: effects, no formulas. One set of arenas and several programs over it; a program is one graph capture, a list of
// calls over buffers at fixed places. The list order is a valid serial order (the CPU uses it). A plan runs without the compiler:
// nothing here or in runtime/ knows what an op is.
//
// What changes between steps lives in buffers (hyper, state), never in call arguments. Nothing allocates after load.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/loc.h"
#include "ir/base/type.h"
#include "ir/base/variable.h"

namespace ingot::ir {

using BufferId = uint32_t;
inline constexpr BufferId kNoBuffer = 0xffffffffu;
inline constexpr int64_t kBufferAlignment = 256;  ///< bytes; arena offsets are multiples of it

/// param, state, hyper: persistent, one per variable.    compute: persistent 16-bit copies made by `prepare`.
/// input: written by the host before a program runs.      output: read by the host after it; keeps its value until the next run.
/// temp: dead outside its live range.                     workspace: temp scratch of one call, contents undefined at its start.
enum class BufferRole : uint8_t { param, state, hyper, compute, input, output, temp, workspace };
std::string_view buffer_role_name(BufferRole role);

struct Buffer {
  std::string name;  ///< unique in the plan; program-local ones are "program/value"
  Type type;         ///< workspace: bytes as bool[n]
  BufferRole role = BufferRole::temp;
  int program = -1;  ///< index of the program a temp/workspace/input/output belongs to; -1 = persistent
  int arena = 0;
  int64_t offset = 0;         ///< bytes from the arena's start
  int64_t bytes = 0;          ///< of storage (>= type.bytes())
  int first = -1, last = -1;  ///< inclusive range of call indexes in which it is live; -1,-1 = always (persistent, input, output)
  /// A contiguous part of another buffer (its owner, which is no view itself): same arena, role, program and live range, bytes
  /// inside the owner's. Two views of one owner may share bytes: that is how reshapes, slices and in-place results are written
  /// down.
  BufferId view_of = kNoBuffer;
  Loc loc;
  bool operator==(const Buffer&) const = default;
};

enum class AccessMode : uint8_t { read, write, inout };
std::string_view access_mode_name(AccessMode mode);

/// kNoBuffer: an absent argument (the kernel sees a null pointer). Arguments of one call that share bytes, one of them written,
/// are a declared alias: the same bytes exactly, and `inout` both. On a workspace `inout` means scratch: what it held does not
/// matter.
struct Access {
  BufferId buffer = kNoBuffer;
  AccessMode mode = AccessMode::read;
  bool operator==(const Access&) const = default;
};

/// A compiled function. On the CPU `void symbol(void* const* args, const int64_t* sizes, int64_t task)`, called for task in
/// 0..tasks-1 in any order, on any thread; the answer never depends on how tasks meet threads.
/// On CUDA `__global__ void symbol(args..., sizes...)`: a pointer per argument, then a `long long` per size; a task is a block of
/// `threads` threads (grid.x = tasks), the image a cubin of this kernel.
struct Kernel {
  std::string name;    ///< unique in the plan
  std::string symbol;  ///< in the image
  std::string image;   ///< file inside the plan
  std::string source;  ///< file inside the plan that defines it
  int args = 0, sizes = 0;
  // CUDA; all 0 on the CPU.
  int threads = 0;                     ///< of a block
  int shared_bytes = 0;                ///< shared memory to ask for at the launch, beside what the kernel declares itself
  int registers = 0, spill_bytes = 0;  ///< per thread, as compiled
  bool operator==(const Kernel&) const = default;
};

/// D[b] = alpha * op(A[b]) op(B[b]) + beta * C[b], row-major; args: A, B, (C,) D, and where the target's library takes one, a
/// workspace, which products of one lane share. f32 accumulation. C with ldc 0 is one row that is added to every row: a bias.
struct Gemm {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool ta = false, tb = false;
  int64_t lda = 0, ldb = 0, ldc = 0, ldd = 0;                      ///< elements between rows as stored
  int64_t stride_a = 0, stride_b = 0, stride_c = 0, stride_d = 0;  ///< elements between batches; 0 = shared
  double alpha = 1, beta = 0;
  std::string algorithm;  ///< tuned choice of the target's library, "" = default

  /// Which argument is D; C, if there is one, stands before it, the workspace behind it.
  size_t result() const { return beta != 0 ? 3 : 2; }
  bool has_bias() const { return beta != 0 && ldc == 0; }
  bool operator==(const Gemm&) const = default;
};

enum class CallKind : uint8_t { launch, gemm, copy, fill, init, collective };
std::string_view call_kind_name(CallKind kind);

struct Call {
  CallKind kind = CallKind::launch;
  std::string label;           ///< the value it makes, for traces: "blocks.0.att.xr"
  std::string kernel;          ///< launch
  std::vector<int64_t> sizes;  ///< launch: the `sizes` array
  int64_t tasks = 1;           ///< launch: how many tasks (CUDA: blocks); fixed by shapes, never by threads
  std::vector<Access>
      args;  ///< launch: args array in order; gemm: A, B, (C,) D(, workspace); copy: from, to; fill, init: the buffer
  Gemm gemm;
  double fill = 0;   ///< fill: value of every element
  std::string init;  ///< init: initial-value expression (Variable::init), keyed by `label`
  int lane = 0;
  std::vector<int> after;       ///< earlier calls on other lanes that must have finished
  double flops = 0, bytes = 0;  ///< counted from the graph
  Loc loc;

  /// gemm: the buffer it may scribble in; kNoBuffer: none.
  BufferId workspace() const { return args.size() > gemm.result() + 1 ? args[gemm.result() + 1].buffer : kNoBuffer; }
  bool operator==(const Call&) const = default;
};

struct Port {
  std::string name;  ///< "tokens", "loss", "logits", ...
  BufferId buffer = kNoBuffer;
  bool operator==(const Port&) const = default;
};

struct Program {
  std::string name;  ///< init, prepare, train, first, next, last, eval, decode, verify, ...
  std::vector<Port> inputs, outputs;
  std::vector<Call> calls;
  bool operator==(const Program&) const = default;
};

struct Arena {
  std::string name;  ///< "params", "states", "work"
  int64_t bytes = 0;
  bool operator==(const Arena&) const = default;
};

/// A variable and where it lives.
struct Binding {
  Variable variable;
  BufferId buffer = kNoBuffer;
  bool operator==(const Binding&) const = default;
};

/// What plan.txt says about a file beside it.
struct FileEntry {
  int64_t bytes = 0;
  uint64_t hash = 0;  ///< hash64 of the contents
  bool operator==(const FileEntry&) const = default;
};

struct Plan {
  std::string name;             ///< the model's
  std::string target;           ///< "cpu", "cuda:sm_90"
  std::string target_features;  ///< cpu: the flags the code was compiled for, e.g. "avx512f avx512_bf16"
  std::vector<Arena> arenas;
  std::vector<Buffer> buffers;
  std::vector<Kernel> kernels;
  std::vector<Binding> bindings;
  std::vector<Program> programs;
  std::vector<InputRange> ranges;
  std::vector<std::string> checkpoint_ignore;
  std::vector<std::pair<std::string, std::string>> info;  ///< config, precision, options, versions
  /// Everything else in the zip, by name: "kernels/*.cpp", "image.so", "graphs/train.core.ir", "model.yaml".
  std::map<std::string, std::string> files;
  /// The files as plan.txt lists them; filled by parse_plan, empty in a plan just compiled. verify_plan holds `files` to it.
  std::map<std::string, FileEntry> listed;

  const Program* find_program(std::string_view name) const;
  const Binding* find_binding(std::string_view variable) const;
  const Kernel* find_kernel(std::string_view name) const;
};

/// Do two plans say the same, `listed` apart (files by name, size and contents)?
bool same(const Plan& a, const Plan& b);

/// plan.txt: everything but `files`' contents (their names, sizes and hashes are listed). parse(print(p)) equals p but for the
/// contents, and print(parse(t)) == t for a printed t. InternalError when a reference leads nowhere (print only verified plans).
std::string print_plan(const Plan& plan);
/// Located UserError for text that is not a plan of this format version.
Plan parse_plan(std::string_view text, std::string_view file = "plan.txt");

/// Runs at every load. Throws UserError with one sentence when: two buffers live at the same call overlap and neither is a
/// declared view of the other; a temp, output or workspace is read before it was written; an output is left unwritten; an input
/// is written; anything is out of bounds, misaligned, touched outside its live range, or of the wrong size for its call;
/// arguments of one call share bytes without being a declared alias; calls on different lanes touch the same bytes without
/// happens-before; names repeat; a name leads nowhere; a listed file is missing, extra, or of another size or hash.
void verify_plan(const Plan& plan);

/// The container: a stored (uncompressed) zip holding plan.txt and the files, sealed by a hash over all of it. Written aside,
/// synced, renamed, the directory synced; on failure (MachineError) nothing of it is left and an older file of that name is
/// untouched. The same plan gives the same bytes.
void write_plan(const Plan& plan, const std::string& path);
/// Reads and verifies. One-sentence UserError when truncated, foreign, or of another format version.
Plan read_plan(const std::string& path);

}  // namespace ingot::ir
