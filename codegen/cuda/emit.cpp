#include "codegen/cuda/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ir/base/error.h"

namespace ingot::codegen::cuda {
namespace {

int multiprocessors_of(int version) {
  switch (version) {
    case 75:
      return 68;
    case 80:
    case 87:
      return 108;
    case 86:
      return 84;
    case 90:
      return 132;
    case 100:
    case 103:
      return 148;
    case 120:
    case 121:
      return 188;
    default:
      return 128;
  }
}

}  // namespace

Arch parse_arch(std::string_view name) {
  Arch arch;
  arch.version = 0;
  if (name.starts_with("sm_")) std::from_chars(name.data() + 3, name.data() + name.size(), arch.version);
  if (arch.version < 75 || arch.version > 200 || arch.name() != name) {
    throw ir::UserError(ir::Loc{},
                        fmt::format("the CUDA target takes an architecture from sm_75 on, as in cuda:sm_90, not \"{}\"", name));
  }
  arch.multiprocessors = multiprocessors_of(arch.version);
  return arch;
}

int64_t Arch::shared_bytes() const {
  switch (version) {
    case 75:
      return 0;
    case 80:
    case 87:
      return 163 << 10;
    case 90:
    case 100:
    case 103:
      return 227 << 10;
    default:
      return 99 << 10;
  }
}

int64_t blocks_for(const Arch& arch, int64_t work, int64_t each) {
  return std::clamp<int64_t>((work + each - 1) / each, 1, 16 * arch.multiprocessors);
}

void KernelBuilder::argument(LaunchArg arg, std::string_view type, const std::string& name) { argument(arg, type, name, false); }

void KernelBuilder::argument(LaunchArg arg, std::string_view type, const std::string& name, bool restricted) {
  parameters_.push_back(
      fmt::format("{}{}*{} {}", arg.mode == ir::AccessMode::read ? "const " : "", type, restricted ? " __restrict__" : "", name));
  launch_.args.push_back(arg);
}

void KernelBuilder::size(int64_t value, const std::string& name) {
  size_parameters_.push_back("long long " + name);
  launch_.sizes.push_back(value);
}

Launch KernelBuilder::finish(const std::string& body) {
  std::vector<std::string> all = parameters_;
  all.insert(all.end(), size_parameters_.begin(), size_parameters_.end());
  const std::string bounds =
      resident_ > 0 ? fmt::format("{}, IG_RESIDENT({})", launch_.threads, resident_) : fmt::format("{}, 1", launch_.threads);
  launch_.text = fmt::format("#include \"{}\"\nextern \"C\" __global__ void __launch_bounds__({}) KERNEL({}) {{\n{}{}}}\n",
                             include_, bounds, fmt::join(all, ", "), before_, body);
  return std::move(launch_);
}

std::string_view index_type(int64_t elements) { return elements < (int64_t{1} << 30) ? "int" : "long long"; }

}  // namespace ingot::codegen::cuda
