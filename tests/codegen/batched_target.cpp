#include "tests/codegen/batched_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "codegen/cpu/build.h"
#include "codegen/cpu/process.h"
#include "ir/base/error.h"

namespace ingot::testing {
namespace {

using codegen::KernelText;

constexpr size_t kUnits = 4;  // two compilers at a time, of units that are not equally long

void write_file(const std::filesystem::path& path, std::string_view content) { std::ofstream(path, std::ios::binary) << content; }

/// The kernels one after the other, below whatever any of them includes.
std::string one_unit(const std::vector<const KernelText*>& kernels) {
  std::set<std::string> includes;
  std::string body;
  for (const KernelText* kernel : kernels) {
    std::istringstream lines(kernel->text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("#include")) {
        includes.insert(line);
      } else {
        body += line + "\n";
      }
    }
  }
  ir::check(!includes.contains("#include \"wkv7_cpu.inc\""), "batched_cpu_target: wkv7 has flags of its own");
  return fmt::format("#include \"vocabulary.h\"\n{}\n{}", fmt::join(includes, "\n"), body);
}

class BatchedTarget final : public codegen::Target {
 public:
  std::string name() const override { return cpu_->name(); }
  codegen::OpLaunches lower(const codegen::OpSite& site) const override { return cpu_->lower(site); }
  codegen::Launch add_sums(const std::vector<codegen::RowSum>& sums) const override { return cpu_->add_sums(sums); }
  std::string refuses(const ir::Graph& graph, const ir::Op& op) const override { return cpu_->refuses(graph, op); }

  codegen::BuiltKernels build(const std::vector<KernelText>& kernels) const override {
    const codegen::cpu::PrivateDirectory work("");
    codegen::BuiltKernels out;
    out.features = codegen::cpu::probe_compiler(options_).features;
    out.files["image.so"] = image(kernels, work.path());
    for (const KernelText& kernel : kernels) {
      ir::Kernel entry;
      entry.name = entry.symbol = kernel.name;
      entry.image = "image.so";
      entry.source = fmt::format("kernels/{}.cpp", kernel.name);
      out.files[entry.source] = kernel.text;
      out.kernels.push_back(std::move(entry));
    }
    return out;
  }

 private:
  std::string image(const std::vector<KernelText>& kernels, const std::filesystem::path& work) const {
    for (const codegen::cpu::TextFile& file : codegen::cpu::text_files()) write_file(work / file.name, file.content);
    std::vector<std::vector<const KernelText*>> units(std::min(kUnits, kernels.size()));
    for (size_t k = 0; k < kernels.size(); ++k) units[k % units.size()].push_back(&kernels[k]);
    std::vector<std::vector<std::string>> commands;
    std::vector<std::string> link = {options_.compiler, "-shared", "-o", "image.so"};
    for (size_t u = 0; u < units.size(); ++u) {
      write_file(work / fmt::format("unit{}.cpp", u), one_unit(units[u]));
      commands.push_back({options_.compiler});
      const std::vector<std::string> flags = codegen::cpu::compile_flags(options_);
      commands.back().insert(commands.back().end(), flags.begin(), flags.end());
      for (const std::string& word : {std::string("-O1"), std::string("-c"), fmt::format("unit{}.cpp", u)})
        commands.back().push_back(word);
      link.push_back(fmt::format("unit{}.o", u));
    }
    for (const auto& result : codegen::cpu::run_processes(commands, work, 2)) ir::check(result.status == 0, result.output);
    const codegen::cpu::ProcessResult linked = codegen::cpu::run_process(link, work);
    ir::check(linked.status == 0, linked.output);
    std::ifstream file(work / "image.so", std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  }

  codegen::CpuTargetOptions options_;
  std::unique_ptr<codegen::Target> cpu_ = codegen::make_cpu_target(options_);
};

}  // namespace

std::unique_ptr<codegen::Target> batched_cpu_target() { return std::make_unique<BatchedTarget>(); }

}  // namespace ingot::testing
