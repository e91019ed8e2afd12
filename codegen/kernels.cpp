#include "codegen/kernels.h"

#include <fmt/format.h>

#include <cctype>

#include "ir/base/error.h"
#include "ir/base/text.h"

namespace ingot::codegen {
namespace {

constexpr std::string_view kToken = "KERNEL";

std::string named(std::string text, const std::string& name) {
  for (size_t at = 0; (at = text.find(kToken, at)) != std::string::npos; at += name.size()) text.replace(at, kToken.size(), name);
  return text;
}

// A C identifier: the name is a symbol.
std::string identifier(const std::string& stem) {
  std::string out = stem.empty() || std::isdigit(static_cast<unsigned char>(stem[0])) ? "k" + stem : stem;
  for (char& c : out) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return out;
}

}  // namespace

std::string KernelPool::add(const Launch& launch) {
  const auto [at, fresh] = by_text_.emplace(launch.text, entries_.size());
  const int args = static_cast<int>(launch.args.size()), sizes = static_cast<int>(launch.sizes.size());
  if (!fresh) {
    const Entry& entry = entries_[at->second];
    ir::check(entry.args == args && entry.sizes == sizes && entry.threads == launch.threads &&
                  entry.shared_bytes == launch.shared_bytes,
              "kernel " + entry.text.name + ": one text with two signatures");
    return entry.text.name;
  }
  ir::check(launch.text.find(kToken) != std::string::npos, "kernel " + launch.stem + ": its text names no KERNEL");
  std::string name = fmt::format("{}_{:016x}", identifier(launch.stem), ir::hash64(launch.text));
  while (!by_name_.emplace(name, entries_.size()).second) name += "_";  // two texts with one hash
  entries_.push_back({{name, named(launch.text, name)}, args, sizes, launch.threads, launch.shared_bytes});
  return name;
}

void KernelPool::build(const Target& target, ir::Plan& plan) const {
  if (entries_.empty()) return;
  std::vector<KernelText> texts;
  for (const Entry& entry : entries_) texts.push_back(entry.text);
  BuiltKernels built = target.build(texts);
  ir::check(built.kernels.size() == entries_.size(), "the target built another number of kernels than it was given");
  for (size_t i = 0; i < entries_.size(); ++i) {
    ir::Kernel& kernel = built.kernels[i];
    kernel.name = entries_[i].text.name;
    if (kernel.symbol.empty()) kernel.symbol = kernel.name;
    kernel.args = entries_[i].args;
    kernel.sizes = entries_[i].sizes;
    kernel.threads = entries_[i].threads;
    kernel.shared_bytes = entries_[i].shared_bytes;
    plan.kernels.push_back(kernel);
  }
  plan.files.merge(built.files);
  ir::check(built.files.empty(), "the target made a file of a name that is taken");
  plan.target_features = built.features;
}

}  // namespace ingot::codegen
