// Figures of a large model's plan, from the equations alone: nothing is compiled and nothing run.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "codegen/compile.h"
#include "models/loader.h"
#include "tests/codegen/fake_target.h"
#include "tests/common/places.h"

namespace ingot::codegen {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

/// Plans as for an H200, but compiles nothing.
class Uncompiled final : public Target {
 public:
  std::string name() const override { return cuda_->name(); }
  OpLaunches lower(const OpSite& site) const override { return cuda_->lower(site); }
  Launch add_sums(const std::vector<RowSum>& sums) const override { return cuda_->add_sums(sums); }
  std::string refuses(const ir::Graph& graph, const ir::Op& op) const override { return cuda_->refuses(graph, op); }
  ir::Attrs configure(const ir::Graph& graph, const ir::Op& op) const override { return cuda_->configure(graph, op); }
  bool adds_other_dtypes() const override { return cuda_->adds_other_dtypes(); }
  int lanes() const override { return cuda_->lanes(); }
  int64_t gemm_workspace_bytes() const override { return cuda_->gemm_workspace_bytes(); }
  GemmCosts gemm_costs() const override { return cuda_->gemm_costs(); }
  BuiltKernels build(const std::vector<KernelText>& kernels) const override { return FakeTarget{}.build(kernels); }

 private:
  std::unique_ptr<Target> cuda_ = make_cuda_target();
};

/// The 1.5B model, four sequences of 4096 tokens, its update step in bf16.
ir::Plan large(CompileOptions options, const Target& target = FakeTarget{}) {
  models::LoadOptions load;
  load.overrides = {{"batch", "4"}, {"time", "4096"}};
  const models::LoadedModel model = models::load_model(tests::source_file("models/rwkv7_1.5b.yaml"), load);
  options.precision = "bf16";
  options.programs = {"train"};
  return compile(model.module, target, options);
}

const ir::Arena& arena(const ir::Plan& plan, const std::string& name) {
  for (const ir::Arena& a : plan.arenas) {
    if (a.name == name) return a;
  }
  throw std::logic_error("no arena " + name);
}

double arena_gib(const ir::Plan& plan) {
  double bytes = 0;
  for (const ir::Arena& a : plan.arenas) bytes += static_cast<double>(a.bytes);
  return bytes / kGiB;
}

/// The most that is live at one call of a program, from the buffer table alone.
double bound(const ir::Plan& plan, const std::string& program) {
  std::map<int, int64_t> changes;  // call -> bytes that begin or end to live there
  for (const ir::Buffer& b : plan.buffers) {
    if (b.first < 0 || b.view_of != ir::kNoBuffer || plan.programs[b.program].name != program) continue;
    const int64_t bytes = (b.bytes + ir::kBufferAlignment - 1) / ir::kBufferAlignment * ir::kBufferAlignment;
    changes[b.first] += bytes;
    changes[b.last + 1] -= bytes;
  }
  int64_t live = 0, most = 0;
  for (const auto& [call, change] : changes) most = std::max(most, live += change);
  return static_cast<double>(most);
}

// Calls of the update step that touch a buffer of which `picks` says so.
template <class F>
int touching(const ir::Plan& plan, F picks) {
  const auto& calls = plan.find_program("train")->calls;
  return static_cast<int>(std::count_if(calls.begin(), calls.end(), [&](const ir::Call& call) {
    return std::any_of(call.args.begin(), call.args.end(), [&](const ir::Access& access) {
      return access.buffer != ir::kNoBuffer && picks(plan.buffers[access.buffer], access.mode != ir::AccessMode::read);
    });
  }));
}

// All gradients are read for their norm and for the update; that one call writes parameters, moments and 16-bit copies, and adds
// the norm's partials itself: two launches in all.
void expect_one_update(const ir::Plan& plan) {
  int64_t largest = 0;  // the segment of the gradients
  for (const ir::Buffer& b : plan.buffers) largest = b.role == ir::BufferRole::temp ? std::max(largest, b.bytes) : largest;
  EXPECT_EQ(touching(plan, [&](const ir::Buffer& b, bool) { return b.role == ir::BufferRole::temp && b.bytes == largest; }), 2);
  for (const ir::BufferRole role : {ir::BufferRole::param, ir::BufferRole::state, ir::BufferRole::compute}) {
    const auto written = [&](const ir::Buffer& b, bool writes) { return writes && b.role == role && b.bytes > 8; };
    EXPECT_EQ(touching(plan, written), 1) << static_cast<int>(role);
  }
  const std::vector<ir::Call>& calls = plan.find_program("train")->calls;
  const auto reads_all = [&](const ir::Call& call) {
    return std::any_of(call.args.begin(), call.args.end(), [&](const ir::Access& access) {
      return access.buffer != ir::kNoBuffer && plan.buffers[access.buffer].role == ir::BufferRole::temp &&
             plan.buffers[access.buffer].bytes == largest;
    });
  };
  const auto norm = std::find_if(calls.begin(), calls.end(), reads_all);
  EXPECT_EQ(std::count_if(norm, calls.end(), [](const ir::Call& call) { return call.kind == ir::CallKind::launch; }), 2);
}

// All arenas: parameters, moments, 16-bit copies and the temps of the step, the gradients' segment among them.
TEST(Figures, MemoryOfALargeModelOnACard) {
  for (const auto& [grads, most] : {std::pair("f32", 49.1), {"bf16", 46.2}}) {
    CompileOptions options;
    options.grads = grads;
    const ir::Plan plan = large(options, Uncompiled{});
    expect_one_update(plan);
    EXPECT_LE(arena_gib(plan), most) << grads;
    EXPECT_LE(static_cast<double>(arena(plan, "work").bytes), 1.005 * bound(plan, "train")) << grads;
  }
}

// Partial sums of about one layer wait for each other; equal layers are added by one kernel.
TEST(Figures, PartialSumsOfALayerAreAddedByOneCall) {
  for (const char* grads : {"f32", "bf16"}) {
    CompileOptions options;
    options.grads = grads;
    const ir::Plan plan = large(options, Uncompiled{});
    std::map<std::string, int> calls;  // per kernel
    for (const ir::Call& call : plan.find_program("train")->calls) {
      if (call.kernel.starts_with("add_partials")) ++calls[call.kernel];
    }
    int all = 0;
    for (const auto& [kernel, count] : calls) all += count;
    EXPECT_LE(all, 24) << grads;
    EXPECT_GE(all, 6) << grads << ": partials keep bytes while they wait";
    EXPECT_LE(calls.size(), 6u) << grads;
  }
}

// Where states of sequence ops are kept in f32, every 32 positions.
TEST(Figures, MemoryOfALargeModel) {
  for (const auto& [grads, most] : {std::pair("f32", 53.6), {"bf16", 50.7}}) {
    CompileOptions options;
    options.grads = grads;
    const ir::Plan plan = large(options);
    EXPECT_LE(arena_gib(plan), most) << grads;
    EXPECT_LE(static_cast<double>(arena(plan, "work").bytes), 1.005 * bound(plan, "train")) << grads;
  }
}

// At 12 layers of width 768 products fill few rounds of tiles: 12 of a layer's 42 are made by the calls of others, for no byte,
// copy or launch more.
TEST(Figures, ProductsOfASmallModelAreMadeTogether) {
  const auto small = [](const std::vector<std::string>& disable) {
    models::LoadOptions load;
    load.overrides = {{"batch", "16"}, {"time", "512"}};
    const models::LoadedModel model = models::load_model(tests::source_file("models/rwkv7_0.1b.yaml"), load);
    CompileOptions options;
    options.precision = "bf16";
    options.programs = {"train"};
    options.pipeline.disable = disable;
    return compile(model.module, Uncompiled{}, options);
  };
  const auto count = [](const ir::Plan& plan, ir::CallKind kind) {
    const auto& calls = plan.find_program("train")->calls;
    return std::count_if(calls.begin(), calls.end(), [&](const ir::Call& call) { return call.kind == kind; });
  };
  const ir::Plan together = small({}), apart = small({"siblings"});
  EXPECT_LE(count(together, ir::CallKind::gemm), count(apart, ir::CallKind::gemm) - 12 * 12);
  EXPECT_EQ(count(together, ir::CallKind::launch), count(apart, ir::CallKind::launch));
  EXPECT_EQ(count(together, ir::CallKind::copy), count(apart, ir::CallKind::copy));
  EXPECT_LE(arena_gib(together), arena_gib(apart));
}

// A vector's gradient is not added to its accumulator by a call of its own: the call that adds its partials does it.
TEST(Figures, MicrobatchesAddVectorsWithTheirSums) {
  CompileOptions options;
  options.microbatches = 2;
  const ir::Plan plan = large(options, Uncompiled{});
  const auto launches = [&](const char* program) {
    const auto& calls = plan.find_program(program)->calls;
    return std::count_if(calls.begin(), calls.end(), [](const ir::Call& call) { return call.kind == ir::CallKind::launch; });
  };
  EXPECT_LE(launches("next"), launches("first") + 8) << "loss, embedding and head are added apart";
}

// Accumulators are added to where they are: only loss, count and the step counter are copied.
TEST(Figures, MicrobatchesCopyNoGradient) {
  CompileOptions options;
  options.microbatches = 2;
  const ir::Plan plan = large(options);
  for (const char* program : {"first", "last"}) {
    for (const ir::Call& call : plan.find_program(program)->calls) {
      if (call.kind != ir::CallKind::copy) continue;
      EXPECT_LE(plan.buffers[call.args[0].buffer].bytes, 4) << program << " " << call.label;
    }
  }
}

}  // namespace
}  // namespace ingot::codegen
