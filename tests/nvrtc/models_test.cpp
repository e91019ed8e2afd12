// Every kernel of every shipped model, compiled by NVRTC for two architectures: no spills, no warnings. Needs no GPU; skips
// itself where there is no NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "codegen/compile.h"
#include "codegen/cuda/nvrtc.h"
#include "models/loader.h"
#include "tests/common/places.h"

namespace ingot::codegen {
namespace {

/// Lowers as the CUDA target does and gathers the texts of several plans instead of compiling them.
class Gathering final : public Target {
 public:
  explicit Gathering(const Target& target) : target_(target) {}

  std::string name() const override { return target_.name(); }
  OpLaunches lower(const OpSite& site) const override { return target_.lower(site); }
  Launch add_sums(const std::vector<RowSum>& sums) const override { return target_.add_sums(sums); }
  std::string refuses(const ir::Graph& graph, const ir::Op& op) const override { return target_.refuses(graph, op); }
  GemmCosts gemm_costs() const override { return target_.gemm_costs(); }
  BuiltKernels build(const std::vector<KernelText>& kernels) const override {
    BuiltKernels out;
    out.files["image"] = "";
    for (const KernelText& kernel : kernels) {
      texts_.emplace(kernel.name, kernel.text);
      out.kernels.emplace_back();
      out.kernels.back().image = out.kernels.back().source = "image";
    }
    return out;
  }

  std::vector<KernelText> texts() const {
    std::vector<KernelText> out;
    for (const auto& [name, text] : texts_) out.push_back({name, text});
    return out;
  }

 private:
  const Target& target_;
  mutable std::map<std::string, std::string> texts_;  ///< by name; a name holds a hash of its text
};

struct Model {
  const char* file;
  std::vector<std::pair<std::string, std::string>> overrides;
  const char* precision;
  bool carry_state = false;
};

void gather(const Target& target, const Model& model) {
  models::LoadOptions load;
  load.overrides = model.overrides;
  const models::LoadedModel loaded = models::load_model(tests::source_file(std::string("models/") + model.file), load);
  CompileOptions options;
  options.precision = model.precision;
  options.carry_state = model.carry_state;
  options.programs = {"train", "eval", "decode"};
  compile(loaded.module, target, options);
}

class NvrtcModels : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(For, NvrtcModels, testing::Values("sm_80", "sm_90"),
                         [](const auto& each) { return std::string(each.param); });

void expect_all_compile(const std::string& arch, const std::vector<Model>& models) {
  if (!cuda::Nvrtc::found()) GTEST_SKIP() << "no NVRTC on this machine: no CUDA kernel is compiled";
  CudaTargetOptions options;
  options.arch = arch;
  options.warnings_fail = true;
  const std::unique_ptr<Target> target = make_cuda_target(options);
  Gathering gathering(*target);
  for (const Model& model : models) gather(gathering, model);
  const std::vector<KernelText> texts = gathering.texts();
  const auto start = std::chrono::steady_clock::now();
  const BuiltKernels built = target->build(texts);  // throws on a spill or a warning, with the kernel's source
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  int most = 0;
  for (const ir::Kernel& kernel : built.kernels) {
    EXPECT_GT(kernel.registers, 0) << kernel.name;
    EXPECT_EQ(kernel.spill_bytes, 0) << kernel.name;
    EXPECT_EQ(built.files.at(kernel.image).substr(0, 4), "\177ELF") << kernel.name;
    most = std::max(most, kernel.registers);
  }
  EXPECT_GT(texts.size(), 20u);
  fmt::print("{}: {} kernels in {:.1f} s, at most {} registers\n", arch, texts.size(), spent.count(), most);
}

TEST_P(NvrtcModels, EveryKernelCompilesWithoutSpillsOrWarnings) {
  expect_all_compile(GetParam(), {{"rwkv7.yaml", {{"layers", "2"}}, "f32"},
                                  {"rwkv7.yaml", {{"layers", "2"}}, "bf16"},
                                  {"rwkv7_0.1b.yaml", {{"layers", "2"}}, "bf16"},
                                  {"rwkv7_0.4b.yaml", {{"layers", "2"}}, "bf16"},
                                  {"rwkv7_1.5b.yaml", {{"layers", "2"}}, "bf16"},
                                  {"rwkv7_demo.yaml", {{"layers", "2"}}, "f32"},
                                  {"mixer.yaml", {}, "f32"},
                                  {"mixer.yaml", {}, "bf16"}});
}

// What the same models are compiled to with other flags.
TEST(Slow, KernelsOfOtherPrecisionsAndOfDocumentsCompile) {
  for (const char* arch : {"sm_80", "sm_90"}) {
    expect_all_compile(arch, {{"rwkv7_0.1b.yaml", {{"layers", "2"}}, "f16"},
                              {"rwkv7_0.1b.yaml", {{"layers", "2"}, {"eod", "0"}}, "bf16", true},
                              {"rwkv7_1.5b.yaml", {{"layers", "2"}}, "f32"}});
  }
}

}  // namespace
}  // namespace ingot::codegen
