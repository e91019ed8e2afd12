// Kernels of every op's examples, of every head size of wkv7 and of wide rows, compiled by NVRTC: what the host compiler takes in
// the emulator, NVRTC must take too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <tuple>

#include "codegen/cuda/nvrtc.h"
#include "codegen/sums.h"
#include "codegen/target.h"
#include "ir/graph/op_def.h"
#include "ir/graph/text.h"
#include "tests/common/loss_region.h"

namespace ingot::codegen {
namespace {

/// The text without its "range" lines, as a graph.
ir::Graph graph_of(const std::string& text) {
  std::istringstream lines(text);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("range ")) kept += line + "\n";
  }
  return ir::parse_graph(kept.find("graph @") != std::string::npos ? kept : "graph @main at train {\n" + kept + "}\n");
}

bool is_lowered(const ir::Op& op) {
  return !std::holds_alternative<ir::SourceLowering>(op.def->lowering) &&
         !std::holds_alternative<ir::GemmLowering>(op.def->lowering) &&
         !std::holds_alternative<ir::DecomposeLowering>(op.def->lowering) &&
         !std::holds_alternative<std::monostate>(op.def->lowering);
}

class NvrtcOps : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::Nvrtc::found()) GTEST_SKIP() << "no NVRTC on this machine: no CUDA kernel is compiled";
  }

  void add(const std::string& text) {
    const ir::Graph graph = graph_of(text);
    for (const ir::Op& op : graph.ops()) {
      if (!is_lowered(op) || !target_->refuses(graph, op).empty()) continue;
      const OpLaunches lowered = with_sums(target_->lower({graph, op, std::vector<bool>(op.results.size(), false)}), *target_);
      for (const Launch& launch : lowered.launches) {
        const std::string name = fmt::format("{}_{}", launch.stem, texts_.size());
        std::string named = launch.text;
        for (size_t at; (at = named.find("KERNEL")) != std::string::npos;) named.replace(at, 6, name);
        if (known_.emplace(launch.text, name).second) texts_.push_back({name, named});
      }
    }
  }

  void build() const {
    for (const ir::Kernel& kernel : target_->build(texts_).kernels) EXPECT_EQ(kernel.spill_bytes, 0) << kernel.name;
  }

  static CudaTargetOptions strict() {
    CudaTargetOptions options;
    options.warnings_fail = true;
    return options;
  }

  std::unique_ptr<Target> target_ = make_cuda_target(strict());
  std::vector<KernelText> texts_;
  std::map<std::string, std::string> known_;
};

TEST_F(NvrtcOps, ExamplesOfEveryOp) {
  for (const ir::OpDef* def : ir::op_table().all()) {
    for (const ir::Example& example : def->examples) add(example.text);
  }
  EXPECT_GT(texts_.size(), 60u);
  build();
}

TEST_F(NvrtcOps, EveryHeadSizeOfWkv7) {
  for (int n : {16, 20, 32, 48, 64, 96, 128}) {
    for (const char* dtype : {"f32", "bf16"}) {
      const std::string x = fmt::format("{}[2, 33, 2, {}]", dtype, n), s = fmt::format("f32[2, 2, {0}, {0}]", n);
      const std::string saved = fmt::format("f32[2, 2, 2, {0}, {0}]", n);
      std::string text;
      for (const char* name : {"r", "w", "k", "v", "a", "b", "dy"}) text += fmt::format("input %{}: {}\n", name, x);
      text += fmt::format("%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b) {{chunk: 32}}: {}, {}, {}\n", x, s, saved);
      text += fmt::format(
          "%dr, %dw, %dk, %dv, %da, %db, %ds = wkv7_grad(%r, %w, %k, %v, %a, %b, %c, %dy, none, none) {{chunk: 32}}: "
          "{0}, {0}, {0}, {0}, {0}, {0}, {1}\n",
          x, s);
      add(text);
    }
  }
  build();
}

TEST_F(NvrtcOps, Wkv7ByChunks) {
  for (const char* arch : {"sm_80", "sm_90"}) {
    CudaTargetOptions options = strict();
    options.arch = arch;
    target_ = make_cuda_target(options);
    texts_.clear(), known_.clear();
    for (const auto& [head, dtype, starts, segments] : {std::tuple{64, "bf16", "", 1},
                                                        {64, "bf16", ", %starts", 1},
                                                        {32, "f16", ", %starts", 1},
                                                        {64, "bf16", "", 2},
                                                        {64, "bf16", ", %starts", 2},
                                                        {16, "f16", ", %starts", 2}}) {
      const std::string x = fmt::format("{}[2, 70, 2, {}]", dtype, head), s = fmt::format("f32[2, 2, {0}, {0}]", head);
      const std::string attrs = fmt::format("{{chunk: 64, saved_dtype: bf16, segments: {}}}", segments);
      std::string text = "input %starts: i64[2, 70]\n";
      for (const char* name : {"r", "w", "k", "v", "a", "b", "dy"}) text += fmt::format("input %{}: {}\n", name, x);
      text += fmt::format("%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b, none{}) {}: {}, {}, bf16[2, 2, 2, {}, {}]\n", starts, attrs,
                          x, s, head, head);
      text += fmt::format(
          "%dr, %dw, %dk, %dv, %da, %db, %ds = wkv7_grad(%r, %w, %k, %v, %a, %b, %c, %dy, none{2}) {3}: "
          "{0}, {0}, {0}, {0}, {0}, {0}, {1}\n",
          x, s, starts, attrs);
      add(text);
    }
    // Time in one piece 3 kernels; in segments 7, of which the gradients are the same, and the joins know nothing of starts.
    EXPECT_EQ(texts_.size(), 9u + 21u - 2u - 2u) << arch;
    for (const ir::Kernel& kernel : target_->build(texts_).kernels) {
      EXPECT_EQ(kernel.spill_bytes, 0) << kernel.name << " for " << arch;
      const bool twice = kernel.name.find("gradients") != std::string::npos;  // two blocks of 256 threads a multiprocessor
      EXPECT_LE(kernel.registers, twice ? 128 : 168) << kernel.name << " for " << arch;
    }
  }
}

TEST_F(NvrtcOps, RowsUpToAVocabulary) {
  for (const int width : {7, 96, 768, 2048, 4096, 10001, 65536}) {
    const std::string x = fmt::format("bf16[300, {}]", width), f = fmt::format("f32[300, {}]", width), row = "f32[300, 1]";
    add("graph @main at fused {\ninput %x: " + x + "\n%y, %m = fuse(%x) {kind: \"row\", rows: 300} (%a: " + x +
        ") {\n  %f = cast(%a) {dtype: f32}: " + f + "\n  %m = max(%f) {axes: [1], keep: true}: " + row +
        "\n  %s = sub(%f, %m): " + f + "\n  %e = exp(%s): " + f + "\n  %t = sum(%e) {axes: [1], keep: true}: " + row +
        "\n  %p = div(%e, %t): " + f + "\n  yield %p, %m\n}: " + f + ", " + row + "\n}");
  }
  build();
}

// Blocks of 1024 threads leave no register over.
TEST_F(NvrtcOps, LossesOverAVocabulary) {
  for (const char* arch : {"sm_75", "sm_80", "sm_90"}) {
    CudaTargetOptions options = strict();
    options.arch = arch;
    target_ = make_cuda_target(options);
    texts_.clear(), known_.clear();
    for (const char* dtype : {"f32", "bf16", "f16"}) {
      for (const int width : {9001, 20000, 20002, 32004, 50257, 65536, 131072})
        add(tests::loss_region(4096, width, dtype, fmt::format("0..{}", width - 1)));
    }
    build();
  }
}

}  // namespace
}  // namespace ingot::codegen
