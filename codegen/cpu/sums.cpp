// Partial rows that fused regions left, added by one launch for many of them: a task a sum.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cpu/emit.h"

namespace ingot::codegen::cpu {

Launch add_row_sums(const std::vector<RowSum>& sums) {
  Launch launch;
  launch.stem = "add_partials";
  std::string text;
  const bool plus = std::any_of(sums.begin(), sums.end(), [](const RowSum& sum) { return sum.plus; });
  for (size_t k = 0; k < sums.size(); ++k) {
    const int index = static_cast<int>(k);
    launch.args.push_back(workspace_arg(index, ir::AccessMode::read));
    if (plus) launch.args.push_back(operand_arg(index));  // none where the sum has none
    launch.args.push_back(result_arg(index));
    launch.sizes.push_back(sums[k].rows);
    launch.sizes.push_back(sums[k].width);
    if (k + 1 < sums.size() && sums[k + 1].dtype == sums[k].dtype) continue;
    text += fmt::format("if (task < {}) return ig_add_partials<{}>(args[{}], {}, sizes[2 * task], sizes[2 * task + 1]);\n", k + 1,
                        storage_type(sums[k].dtype), plus ? "3 * task" : "2 * task",
                        plus ? "args[3 * task + 1], args[3 * task + 2]" : "nullptr, args[2 * task + 1]");
  }
  launch.tasks = static_cast<int64_t>(sums.size());
  launch.text = kernel_text({"reduce_cpu.inc"}, text);
  return launch;
}

}  // namespace ingot::codegen::cpu
