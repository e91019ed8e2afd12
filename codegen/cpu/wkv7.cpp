#include "codegen/cpu/emit.h"

namespace ingot::codegen::cpu {
const HandKernel* find_hand_kernel(std::string_view) { return nullptr; }
}  // namespace ingot::codegen::cpu
