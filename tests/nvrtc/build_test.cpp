// What ptxas and NVRTC say of a kernel, and which of it fails a build.
#include <gtest/gtest.h>

#include <filesystem>

#include "codegen/cuda/build.h"
#include "codegen/cuda/nvrtc.h"
#include "ir/base/error.h"

namespace ingot::codegen {
namespace {

constexpr const char* kFigures =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90'\n"
    "ptxas info    : Function properties for k\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 38 registers, used 1 barriers, 536 bytes cmem[0]\n";

TEST(CudaLog, FiguresAreNoFault) {
  const cuda::Resources read = cuda::read_log(kFigures);
  EXPECT_EQ(read.registers, 38);
  EXPECT_EQ(read.spill_bytes, 0);
  EXPECT_EQ(read.stack_bytes, 0);
  EXPECT_EQ(read.serialised, "");
  EXPECT_EQ(read.warning, "");
}

TEST(CudaLog, SpillsAreStoresAndLoads) {
  const cuda::Resources read =
      cuda::read_log("ptxas         .     24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads\n");
  EXPECT_EQ(read.spill_bytes, 36);
  EXPECT_EQ(read.stack_bytes, 24);
}

TEST(CudaLog, SerialisedInstructionsAreNoRemark) {
  const std::string line =
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient "
      "register resources for the wgmma pipeline in the function 'k'";
  const cuda::Resources read = cuda::read_log(kFigures + line + "\n");
  EXPECT_EQ(read.serialised, line);
  EXPECT_EQ(read.warning, "");
}

TEST(CudaLog, TheFirstWarningIsKept) {
  const cuda::Resources read = cuda::read_log(std::string("k.cu(3): warning #550-D: \"x\" was set but never used\n\n") + kFigures);
  EXPECT_EQ(read.warning, "k.cu(3): warning #550-D: \"x\" was set but never used");
}

class NvrtcBuild : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::Nvrtc::found()) GTEST_SKIP() << "no NVRTC on this machine: no CUDA kernel is compiled";
    std::string name = (std::filesystem::temp_directory_path() / "ingot-nvrtc-test-XXXXXX").string();
    cache_ = mkdtemp(name.data());
  }
  void TearDown() override {
    if (!cache_.empty()) std::filesystem::remove_all(cache_);
  }

  std::unique_ptr<Target> target(bool warnings_fail, bool cached) const {
    CudaTargetOptions options;
    options.warnings_fail = warnings_fail;
    if (cached) options.cache.directory = cache_;
    return make_cuda_target(options);
  }

  std::string cache_;
};

const KernelText kUnused{"k", "extern \"C\" __global__ void k(float* p) { int x; x = 3; p[0] = 1; }\n"};

TEST_F(NvrtcBuild, AWarningFailsOnlyWhoAsksForThat) {
  for (const bool cached : {false, true}) {
    const BuiltKernels built = target(false, cached)->build({kUnused});
    EXPECT_EQ(built.files.at("kernels/k.cubin").substr(0, 4), "\177ELF");
    try {
      target(true, cached)->build({kUnused});
      FAIL() << "a warning passed";
    } catch (const ir::InternalError& error) {
      EXPECT_NE(std::string(error.what()).find("gets a warning: k.cu(2): warning"), std::string::npos) << error.what();
    }
  }
}

TEST_F(NvrtcBuild, ASpillFailsAlways) {
  const std::string text =
      "extern \"C\" __global__ void __launch_bounds__(1024, 2) k(float* p) {\n"
      "  float x[64];\n"
      "  for (int i = 0; i < 64; ++i) x[i] = p[i * 1024 + threadIdx.x];\n"
      "  __syncthreads();\n"
      "  for (int i = 0; i < 64; ++i) p[i * 1024 + threadIdx.x] = x[(i + 1) % 64] * x[63 - i];\n"
      "}\n";
  try {
    target(false, false)->build({{"k", text}});
    FAIL() << "a spill passed";
  } catch (const ir::InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("k for sm_90 spills "), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ingot::codegen
