// Partial rows that fused regions left, added by one launch for many of them: a task a sum.
#include <fmt/format.h>

#include "codegen/cpu/emit.h"

namespace ingot::codegen::cpu {

Launch add_row_sums(const std::vector<RowSum>& sums) {
  Launch launch;
  launch.stem = "add_partials";
  std::string text;
  for (size_t k = 0; k < sums.size(); ++k) {
    const int index = static_cast<int>(k);
    launch.args.push_back(workspace_arg(index, ir::AccessMode::read));
    launch.args.push_back(result_arg(index));
    launch.sizes.push_back(sums[k].rows);
    launch.sizes.push_back(sums[k].width);
    if (k + 1 < sums.size() && sums[k + 1].dtype == sums[k].dtype) continue;
    text += fmt::format(
        "if (task < {}) return ig_add_partials<{}>(args[2 * task], args[2 * task + 1], sizes[2 * task], sizes[2 * task + 1]);\n",
        k + 1, storage_type(sums[k].dtype));
  }
  launch.tasks = static_cast<int64_t>(sums.size());
  launch.text = kernel_text({"reduce_cpu.inc"}, text);
  return launch;
}

}  // namespace ingot::codegen::cpu
