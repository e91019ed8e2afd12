// What the emitters of this folder share: the cutting of work into tasks, and launches under construction.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/spelling.h"
#include "codegen/target.h"
#include "ir/graph/op_def.h"

namespace ingot::codegen::cpu {

/// A matrix of rows and columns cut into tasks of about `kTaskElements`.
inline constexpr int64_t kTaskElements = 8192;
struct Tiling {
  int64_t rows_per_task = 1, columns_per_task = 1, tasks = 1;
};
Tiling tile(int64_t rows, int64_t columns, int64_t elements = kTaskElements);

/// "extern "C" void KERNEL(...) {\n" BODY "}\n", after an #include of each text.
std::string kernel_text(const std::vector<std::string_view>& includes, const std::string& body);
/// "static_cast<const TYPE*>(args[I])" for an input, without const for an output.
std::string input_pointer(std::string_view type, int arg);
std::string output_pointer(std::string_view type, int arg);

// One emitter per lowering kind; each is given an op with that lowering.
OpLaunches lower_scalar(const OpSite& site, const ir::ScalarLowering& lowering);
OpLaunches lower_generate(const OpSite& site, const ir::GenerateLowering& lowering);
OpLaunches lower_reduce(const OpSite& site, const ir::ReduceLowering& lowering);
OpLaunches lower_scan(const OpSite& site, const ir::ScanLowering& lowering);
OpLaunches lower_view(const OpSite& site, const ir::ViewLowering& lowering);
OpLaunches lower_pack(const OpSite& site);
OpLaunches lower_gather(const OpSite& site);
OpLaunches lower_put(const OpSite& site);

/// Target::add_sums.
Launch add_row_sums(const std::vector<RowSum>& sums);

/// The hand-written kernels, by KernelLowering::kernel.
struct HandKernel {
  std::string_view name;
  OpLaunches (*lower)(const OpSite& site);
  std::string (*refuses)(const ir::Graph& graph, const ir::Op& op);
};
/// nullptr when there is none of that name.
const HandKernel* find_hand_kernel(std::string_view name);

}  // namespace ingot::codegen::cpu
