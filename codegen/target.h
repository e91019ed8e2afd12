// What can be compiled: a Target turns core ops into launches of generated code, and generated code into an image.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"
#include "ir/plan/plan.h"

namespace ingot::codegen {

/// Every argument of a launch begins at a multiple of so many bytes: what one instruction may read.
inline constexpr int64_t kArgumentAlignment = 16;

/// Who an argument of a launch is: an operand or result of the op, or scratch that lives for the op's launches.
struct LaunchArg {
  enum class Kind : uint8_t { operand, result, workspace } kind = Kind::operand;
  int index = 0;
  ir::AccessMode mode = ir::AccessMode::read;
};

/// One launch. `text` defines one function whose name is the literal token KERNEL; equal texts share one kernel (and its block),
/// so sizes belong in `sizes` and not in the text unless speed needs them there.
struct Launch {
  std::string stem;  ///< readable part of the kernel's name: "mul", "reduce_sum", "wkv7_grad"
  std::string text;
  std::vector<LaunchArg> args;
  std::vector<int64_t> sizes;
  int64_t tasks = 1;
  int threads = 0;       ///< CUDA: of a block
  int shared_bytes = 0;  ///< CUDA: shared memory to ask for at the launch; static arrays in the text are not counted
};

/// Partial sums f32 [rows][width] that are added in the order of their rows to a result of that dtype, [width]; `plus`: f32, and
/// to it an operand like the result, last.
struct RowSum {
  int64_t rows = 0, width = 0;
  ir::DType dtype = ir::DType::f32;
  bool plus = false;
  int64_t bytes() const { return rows * width * 4; }
};

/// A sum that the op's launches leave undone: its partials stand in a workspace and may wait there for those of other ops.
struct PendingSum {
  int workspace = 0, result = 0;
  RowSum sum;
};

/// All launches of one op, in order, and the scratch they share. Operands and results are dense row-major; a dead result
/// (no reader, no output) arrives as a null pointer when `dead[i]`.
struct OpLaunches {
  std::vector<Launch> launches;
  std::vector<int64_t> workspace_bytes;
  std::vector<PendingSum> sums = {};  ///< of results that are not dead; after all launches
  std::vector<int> added = {};        ///< operands of OpSite::partials whose argument is the partials: the launches add them
};

/// How many sums one launch adds at most, and of how many bytes of partials: they keep their bytes while they wait.
struct SumLimits {
  size_t sums = 64;
  int64_t bytes = int64_t{48} << 20;
  int64_t rows_in_reader = 1024;  ///< a number's partials, up to so many, may be added by the op that reads it
};

/// What a target needs to know about an op in its place.
struct OpSite {
  const ir::Graph& graph;
  const ir::Op& op;
  std::vector<bool> dead;            ///< per result
  std::vector<ir::Alias> over = {};  ///< results of a region that stand on the bytes of an operand (allowed_aliases in homes.h)
  std::map<int, int64_t> partials = {};  ///< operands, numbers, that are sums nobody has added yet: rows of their partials

  bool is_dead(int result) const { return static_cast<size_t>(result) < dead.size() && dead[static_cast<size_t>(result)]; }
  bool stands_on_operand(int result) const {
    return std::any_of(over.begin(), over.end(), [&](const ir::Alias& alias) { return alias.result == result; });
  }
  bool written_over(int operand) const {
    return std::any_of(over.begin(), over.end(), [&](const ir::Alias& alias) { return alias.operand == operand; });
  }
};

struct KernelText {
  std::string name;  ///< symbol
  std::string text;  ///< definition with KERNEL replaced by the symbol
};

struct BuiltKernels {
  std::map<std::string, std::string> files;  ///< images and sources for Plan::files
  std::vector<ir::Kernel> kernels;           ///< image, source and resource fields filled, in the order given
  std::string features;                      ///< Plan::target_features
};

/// Matrix products against traffic: what saved bytes are worth in added operations.
struct GemmCosts {
  /// Operations of narrow products in the time in which a copy moves one byte, read and written bytes alike.
  double flops_per_byte = 0;
  /// A result is made in tiles, so many at a time: a product costs as much as one that fills its last round of them.
  int64_t tile_rows = 1, tile_columns = 1, tiles_at_a_time = 1;
  int64_t wide_tile_columns = 1;  ///< of results that have so many columns, if more
};

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string name() const = 0;  ///< "cpu", "cuda:sm_90"
  /// Launches for any op whose lowering is scalar, reduce, scan, view (non-contiguous), pack, generate, gather, put, kernel or
  /// region. InternalError for an op it cannot lower (the `check` pass has refused it before).
  virtual OpLaunches lower(const OpSite& site) const = 0;
  /// One launch for sums that OpLaunches left to wait, of one op or of several: workspace k are the partials of sum k, operand k
  /// what is added to it, result k where it goes; results may stand on the operands.
  virtual Launch add_sums(const std::vector<RowSum>& sums) const;
  virtual SumLimits sum_limits() const { return {}; }
  /// Can this kernel-lowered op be lowered with these types? "" or the reason, for the check pass and located errors.
  virtual std::string refuses(const ir::Graph& graph, const ir::Op& op) const = 0;
  /// The attributes this target wants a kernel-lowered op to have: how long chunks are, what is saved in which dtype.
  virtual ir::Attrs configure(const ir::Graph& graph, const ir::Op& op) const;
  /// On how many lanes calls run best where nobody asks for a number. One: the CPU's calls use all cores; a card has not been
  /// measured with more.
  virtual int lanes() const { return 1; }
  /// Bytes of scratch that its products may use; those of one lane take turns with them.
  virtual int64_t gemm_workspace_bytes() const { return 0; }
  /// Can its gemms add a matrix of another dtype than the result's?
  virtual bool adds_other_dtypes() const { return true; }
  /// What its matrix products cost; by default nothing may be paid for in operations.
  virtual GemmCosts gemm_costs() const { return {}; }
  /// Compiles (through the on-disk cache).
  virtual BuiltKernels build(const std::vector<KernelText>& kernels) const = 0;
};

struct CacheOptions {
  std::string directory;      ///< "" = no cache
  bool keep_sources = false;  ///< keep generated files beside the cache entry for debugging
};

struct CpuTargetOptions {
  CacheOptions cache;
  std::string compiler = "c++";
  std::string arch = "native";  ///< -march=...
};
/// MachineError at build() when there is no working host compiler.
std::unique_ptr<Target> make_cpu_target(CpuTargetOptions options = {});

struct CudaTargetOptions {
  CacheOptions cache;
  std::string arch = "sm_90";  ///< sm_75 and up
  std::string home;            ///< where CUDA is installed, looked into before the usual places; "" = only those
  int jobs = 0;                ///< threads that compile; 0 = one per core
  /// A warning of NVRTC's fails the build, as a spill always does: for tests. A newer NVRTC than the tests knew may warn of more.
  bool warnings_fail = false;
};
/// Its texts need no GPU and no CUDA; build() compiles them by NVRTC: MachineError when there is none. UserError for an `arch`
/// that is none.
std::unique_ptr<Target> make_cuda_target(CudaTargetOptions options = {});

}  // namespace ingot::codegen
