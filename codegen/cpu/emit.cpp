#include "codegen/cpu/emit.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot::codegen::cpu {

Tiling tile(int64_t rows, int64_t columns, int64_t elements) {
  Tiling out;
  rows = std::max<int64_t>(rows, 1);
  columns = std::max<int64_t>(columns, 1);
  out.columns_per_task = columns <= 2 * elements ? columns : elements;
  out.rows_per_task = std::max<int64_t>(1, std::min(rows, elements / out.columns_per_task));
  const int64_t down = (rows + out.rows_per_task - 1) / out.rows_per_task;
  out.tasks = down * ((columns + out.columns_per_task - 1) / out.columns_per_task);
  return out;
}

std::string kernel_text(const std::vector<std::string_view>& includes, const std::string& body) {
  std::string out;
  for (std::string_view name : includes) out += fmt::format("#include \"{}\"\n", name);
  return out + "extern \"C\" void KERNEL(void* const* args, const int64_t* sizes, int64_t task) {\n" + body + "}\n";
}

std::string input_pointer(std::string_view type, int arg) { return fmt::format("static_cast<const {}*>(args[{}])", type, arg); }
std::string output_pointer(std::string_view type, int arg) { return fmt::format("static_cast<{}*>(args[{}])", type, arg); }

}  // namespace ingot::codegen::cpu
