// What the emitters of this folder share: the card a text is made for, kernels under construction, blocks for so much work.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/spelling.h"
#include "codegen/target.h"
#include "ir/graph/op_def.h"

namespace ingot::codegen::cuda {

/// What an architecture decides. Grids follow from these constants and from shapes, never from the card present, so that a plan
/// gives the same bits on every card of its architecture.
struct Arch {
  int version = 90;           ///< sm_90
  int multiprocessors = 132;  ///< of its usual large card

  std::string name() const { return "sm_" + std::to_string(version); }
  /// Shared memory that one block may have where copies to it run by themselves; 0 where they do not.
  int64_t shared_bytes() const;
};
/// "sm_90" -> 90. UserError when it is no architecture from sm_75 on.
Arch parse_arch(std::string_view name);

/// An op in its place and the card it is lowered for.
struct Site : OpSite {
  Arch arch;
};

inline constexpr int kBlock = 256;  ///< threads of a block where nothing asks for another number

/// Blocks for `work` pieces when a block takes `each`: no more than fill the card several times, the rest is looped over.
int64_t blocks_for(const Arch& arch, int64_t work, int64_t each);

/// A launch whose parameters are declared one by one, in the order of its arguments and then of its sizes.
class KernelBuilder {
 public:
  explicit KernelBuilder(std::string stem, int threads = kBlock) {
    launch_.stem = std::move(stem);
    launch_.threads = threads;
  }
  /// Adds the argument as a parameter "const TYPE* NAME"; a written one without const.
  void argument(LaunchArg arg, std::string_view type, const std::string& name);
  void argument(LaunchArg arg, std::string_view type, const std::string& name, bool restricted);
  /// Adds "long long NAME".
  void size(int64_t value, const std::string& name);
  /// A macro or type before the kernel.
  void include(std::string_view file) { include_ = file; }
  void blocks(int64_t tasks) { launch_.tasks = tasks; }
  /// Blocks of this kernel a multiprocessor should hold at once; decides how many registers a thread may have. 0 = no matter.
  void resident(int blocks) { resident_ = blocks; }
  /// Dynamic shared memory to ask for at the launch.
  void shared(int bytes) { launch_.shared_bytes = bytes; }
  /// Text that stands before the body.
  void before(const std::string& text) { before_ += text; }
  int threads() const { return launch_.threads; }
  Launch finish(const std::string& body);

 private:
  Launch launch_;
  std::string_view include_ = "threads_cuda.inc";
  std::vector<std::string> parameters_, size_parameters_;
  std::string before_;
  int resident_ = 0;
};

/// "int" or "long long": what counts that many elements, with room to step past the end.
std::string_view index_type(int64_t elements);

// One emitter per lowering kind; each is given an op with that lowering.
OpLaunches lower_scalar(const Site& site, const ir::ScalarLowering& lowering);
OpLaunches lower_generate(const Site& site, const ir::GenerateLowering& lowering);
OpLaunches lower_reduce(const Site& site, const ir::ReduceLowering& lowering);
OpLaunches lower_scan(const Site& site, const ir::ScanLowering& lowering);
OpLaunches lower_view(const Site& site, const ir::ViewLowering& lowering);
OpLaunches lower_pack(const Site& site);
OpLaunches lower_gather(const Site& site);
OpLaunches lower_put(const Site& site);
OpLaunches lower_row_region(const Site& site);

/// Target::add_sums.
Launch add_row_sums(const std::vector<RowSum>& sums);

/// The hand-written kernels, by KernelLowering::kernel.
struct HandKernel {
  std::string_view name;
  OpLaunches (*lower)(const Site& site);
  std::string (*refuses)(const ir::Graph& graph, const ir::Op& op, const Arch& arch);
  ir::Attrs (*configure)(const ir::Graph& graph, const ir::Op& op, const Arch& arch);  ///< Target::configure; null: as written
};
/// nullptr when there is none of that name.
const HandKernel* find_hand_kernel(std::string_view name);

}  // namespace ingot::codegen::cuda
