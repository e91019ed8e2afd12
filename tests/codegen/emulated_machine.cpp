#include "tests/codegen/emulated_machine.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "codegen/cache.h"
#include "codegen/cpu/process.h"
#include "codegen/cuda/build.h"
#include "tests/common/places.h"

namespace ingot::testing {
namespace {

constexpr size_t kKernelsTogether = 24;  // in one compilation: the headers cost as much as several kernels

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

class EmulatedMachine final : public BenchMachine {
 public:
  explicit EmulatedMachine(const std::string& arch) {
    codegen::CudaTargetOptions options;
    options.arch = arch;
    target_ = codegen::make_cuda_target(options);
    // As __CUDA_ARCH__ decides in the texts.
    flags_.push_back(arch < "sm_90" ? "-DIG_STAGES=2" : "-DIG_STAGES=3");
    flags_.push_back(arch == "sm_90" ? "-DIG_WARPGROUPS=1" : "-DIG_WARPGROUPS=0");
  }

  const codegen::Target& target() const override { return *target_; }

  void build(const std::vector<codegen::KernelText>& kernels) override {
    const std::string header = file_text(tests::source_file("tests/codegen/emulated_cuda.h"));
    std::string material = header;
    for (const auto& file : codegen::cuda::text_files()) material += file.content;
    for (const auto& kernel : kernels) material += kernel.text;
    for (const auto& flag : flags_) material += flag;
    const codegen::Cache cache(tests::build_file("kernel-cache"));
    const std::string key = codegen::Cache::key(material);
    std::optional<std::string> image = cache.find(key);
    if (!image) {
      image = compile(kernels, header);
      cache.store(key, *image);
    }
    image_ = std::make_unique<Image>(*image);
  }

  void run(const std::string& symbol, const codegen::Launch& launch, const std::vector<Guarded*>& guarded) override {
    const std::vector<void*> args = addresses(guarded);
    using Run = void (*)(void* const*, const int64_t*, int64_t, int);
    reinterpret_cast<void (*)(bool)>(image_->address("ig_watch"))(launch.shared_bytes > 0);
    reinterpret_cast<Run>(image_->address("run_" + symbol))(args.data(), launch.sizes.data(), launch.tasks, launch.threads);
    const std::string races = reinterpret_cast<const char* (*)()>(image_->address("ig_races"))();
    if (!races.empty()) ADD_FAILURE() << symbol << " races on shared memory:\n" << races;
  }

 private:
  std::vector<std::string> command(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {
        "c++", "-std=c++20", "-O1", "-fPIC", "-fwrapv", "-fno-strict-aliasing", "-fno-math-errno", "-w", "-U_FORTIFY_SOURCE"};
    words.insert(words.end(), flags_.begin(), flags_.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  /// A folder with the header and its precompiled form: half a second less for every part of every test. (A compiler that cannot
  /// use what is there reads the header.)
  std::string compiled_header(const std::string& header) const {
    const std::filesystem::path folder = tests::build_file("kernel-cache");
    const std::filesystem::path kept = folder / ("header-" + codegen::Cache::key(header + flags_.front() + flags_.back()));
    if (std::filesystem::exists(kept)) return kept.string();
    std::filesystem::create_directories(folder);
    const codegen::cpu::PrivateDirectory work(folder.string());
    std::ofstream(work.path() / "emulated_cuda.h") << header;
    const auto made =
        codegen::cpu::run_process(command({"-x", "c++-header", "emulated_cuda.h", "-o", "emulated_cuda.h.gch"}), work.path());
    if (made.status != 0) throw std::runtime_error("the emulation does not compile:\n" + made.output);
    std::error_code another_was_first;
    std::filesystem::rename(work.path(), kept, another_was_first);
    if (!std::filesystem::exists(kept)) throw std::runtime_error("cannot write " + kept.string());
    return kept.string();
  }

  std::string compile(const std::vector<codegen::KernelText>& kernels, const std::string& header) const {
    const codegen::cpu::PrivateDirectory work("");
    const std::string emulation = compiled_header(header);
    for (const auto& file : codegen::cuda::text_files()) std::ofstream(work.path() / file.name) << file.content;
    std::vector<std::vector<std::string>> commands;
    std::vector<std::string> link = {"c++", "-shared", "-o", "image.so"};
    for (size_t begin = 0; begin < kernels.size(); begin += kKernelsTogether) {
      const std::string name = fmt::format("part{}", begin / kKernelsTogether);
      std::ofstream text(work.path() / (name + ".cpp"));
      text << "#include \"emulated_cuda.h\"\n#define IG_RESIDENT(blocks) blocks\n#include \"vocabulary.h\"\n";
      for (size_t k = begin; k < std::min(begin + kKernelsTogether, kernels.size()); ++k) {
        text << kernels[k].text
             << fmt::format(
                    "extern \"C\" void run_{0}(void* const* args, const int64_t* sizes, int64_t blocks, int threads) {{\n"
                    "  ig_emulation::launch({0}, args, sizes, blocks, threads);\n}}\n",
                    kernels[k].name);
      }
      text.close();
      commands.push_back(command({"-I" + emulation, "-c", name + ".cpp", "-o", name + ".o"}));
      link.push_back(name + ".o");
    }
    for (const auto& result : codegen::cpu::run_processes(commands, work.path(), 2)) {
      if (result.status != 0) throw std::runtime_error("emulated kernels do not compile:\n" + result.output);
    }
    const auto linked = codegen::cpu::run_process(link, work.path());
    if (linked.status != 0) throw std::runtime_error("emulated kernels do not link:\n" + linked.output);
    return file_text((work.path() / "image.so").string());
  }

  std::unique_ptr<codegen::Target> target_;
  std::vector<std::string> flags_;
  std::unique_ptr<Image> image_;
};

}  // namespace

std::unique_ptr<BenchMachine> emulated_machine(const std::string& arch) { return std::make_unique<EmulatedMachine>(arch); }

}  // namespace ingot::testing
