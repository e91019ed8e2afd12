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

class NvrtcWkv7 : public NvrtcOps {
 protected:
  struct Case {
    int head;
    std::string dtype, starts;
    int segments = 1;
  };
  static std::string text(const Case& c) {
    const std::string x = fmt::format("{}[2, 70, 2, {}]", c.dtype, c.head), s = fmt::format("f32[2, 2, {0}, {0}]", c.head);
    const std::string attrs = fmt::format("{{chunk: 64, saved_dtype: bf16, segments: {}}}", c.segments);
    std::string out = "input %starts: i64[2, 70]\n";
    for (const char* name : {"r", "w", "k", "v", "a", "b", "dy"}) out += fmt::format("input %{}: {}\n", name, x);
    out += fmt::format("%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b, none{0}) {1}: {2}, {3}, bf16[2, 2, 2, {4}, {4}]\n", c.starts,
                       attrs, x, s, c.head);
    out += fmt::format(
        "%dr, %dw, %dk, %dv, %da, %db, %ds = wkv7_grad(%r, %w, %k, %v, %a, %b, %c, %dy, none{2}) {3}: "
        "{0}, {0}, {0}, {0}, {0}, {0}, {1}\n",
        x, s, c.starts, attrs);
    return out;
  }
  /// So many kernels, none of which spills or takes more registers than its blocks may have.
  void expect_compile(const std::string& arch, const std::vector<Case>& cases, size_t kernels) {
    CudaTargetOptions options = strict();
    options.arch = arch;
    target_ = make_cuda_target(options);
    texts_.clear(), known_.clear();
    for (const Case& c : cases) add(text(c));
    EXPECT_EQ(texts_.size(), kernels) << arch;
    for (const ir::Kernel& kernel : target_->build(texts_).kernels) {
      EXPECT_EQ(kernel.spill_bytes, 0) << kernel.name << " for " << arch;
      const bool twice = kernel.name.find("gradients") != std::string::npos;  // two blocks of 256 threads a multiprocessor
      EXPECT_LE(kernel.registers, twice ? 128 : 168) << kernel.name << " for " << arch;
    }
  }
};

TEST_F(NvrtcWkv7, ByChunks) {
  for (const char* arch : {"sm_80", "sm_90"})
    expect_compile(arch, {{64, "bf16", ""}, {64, "bf16", ", %starts"}, {32, "f16", ", %starts"}}, 9);
}

// Seven kernels each, of which the joins, both ways, know nothing of starts.
TEST_F(NvrtcWkv7, InSegments) {
  expect_compile("sm_90", {{64, "bf16", "", 2}, {64, "bf16", ", %starts", 2}, {16, "f16", ", %starts", 2}}, 19);
}
TEST_F(NvrtcWkv7, InSegmentsForSm80) { expect_compile("sm_80", {{64, "bf16", "", 2}, {64, "bf16", ", %starts", 2}}, 12); }

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
