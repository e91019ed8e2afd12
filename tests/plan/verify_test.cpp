// Every rule of verify_plan is broken once, by a fault planted in a plan that verifies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "ir/plan/plan.h"
#include "tests/plan/sample.h"

namespace ingot::ir {
namespace {

using testing::HasSubstr;

std::string fault(const Plan& plan) {
  try {
    verify_plan(plan);
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostics().size(), 1u);
    EXPECT_EQ(error.diagnostics().front().message.find('\n'), std::string::npos) << "one sentence";
    return error.diagnostics().front().message;
  }
  return "verifies";
}

Buffer& buffer(Plan& plan, std::string_view name) {
  for (Buffer& b : plan.buffers) {
    if (b.name == name) return b;
  }
  throw std::logic_error("no such buffer");
}
BufferId id_of(Plan& plan, std::string_view name) { return static_cast<BufferId>(&buffer(plan, name) - plan.buffers.data()); }
Program& train(Plan& plan) { return plan.programs[2]; }
Call& call(Plan& plan, size_t index) { return train(plan).calls[index]; }

// Variable `first` and a new one like it, both parts of one buffer twice as long, the new one `offset` bytes after the first.
void side_by_side(Plan& p, const std::string& first, const std::string& second, int64_t offset) {
  Buffer owner = buffer(p, first), part = owner;
  owner.name = first + "+";
  owner.type.shape = {2 * owner.type.elements()};
  owner.bytes *= 2;
  const auto id = static_cast<BufferId>(p.buffers.size());
  part.name = second;
  part.offset += offset;
  buffer(p, first).view_of = part.view_of = id;
  p.buffers.push_back(owner);
  p.buffers.push_back(part);
  Binding binding = *p.find_binding(first);
  binding.variable.name = second;
  binding.buffer = id + 1;
  p.bindings.push_back(binding);
}

// The product, with a bias.
Call& with_bias(Plan& p, Access bias) {
  Call& product = call(p, 1);
  product.args.insert(product.args.begin() + 2, bias);
  product.gemm.beta = 1;
  product.gemm.ldc = 0;
  return product;
}

struct Fault {
  const char* name;
  std::function<void(Plan&)> plant;
  const char* message;
};
void PrintTo(const Fault& each, std::ostream* out) { *out << each.name; }

const std::vector<Fault>& faults() {
  using P = Plan&;
  static const std::vector<Fault> list = {
      // names
      {"two_buffers", [](P p) { buffer(p, "train/g").name = "train/h"; }, "two buffers named 'train/h'"},
      {"two_arenas", [](P p) { p.arenas[1].name = "params"; }, "two arenas named 'params'"},
      {"two_programs", [](P p) { p.programs[0].name = "train"; }, "two programs named 'train'"},
      {"two_kernels", [](P p) { p.kernels[1].name = "mul_1"; }, "two kernels named 'mul_1'"},
      {"two_variables", [](P p) { p.bindings[2].variable.name = "w"; }, "two variables named 'w'"},
      {"two_ranges", [](P p) { p.ranges.push_back(p.ranges[0]); }, "two input ranges named 'tokens'"},
      {"two_ports", [](P p) { train(p).outputs[1].name = "y"; }, "output 'y' has no name of its own"},
      {"no_name", [](P p) { buffer(p, "w").name = ""; }, "a buffer without a name"},
      // files
      {"file_changed",
       [](P p) {
         p.listed["image.so"] = {12, hash64("machine code")};
         p.files = {{"image.so", "machine cody"}};
       },
       "file \"image.so\" is not the one the plan was made with"},
      {"file_missing",
       [](P p) {
         p.listed["gone"] = {1, 2};
       },
       "file \"gone\" is missing"},
      {"file_extra",
       [](P p) {
         p.listed["image.so"] = {12, hash64("machine code")};
       },
       "file \"kernels/all.cpp\" is not listed"},
      {"no_image", [](P p) { p.files.erase("image.so"); }, "kernel mul_1: image \"image.so\" is missing"},
      {"no_source", [](P p) { p.files.erase("kernels/all.cpp"); }, "kernel mul_1: source \"kernels/all.cpp\" is missing"},
      {"no_symbol", [](P p) { p.kernels[0].symbol = ""; }, "kernel mul_1 has no symbol"},
      {"kernel_counts", [](P p) { p.kernels[0].args = -1; }, "takes -1 arguments"},
      // places
      {"past_end", [](P p) { p.arenas[3].bytes = 600; }, "%\"train/norm#0\" reaches past the end of arena work"},
      {"before_start", [](P p) { buffer(p, "w").offset = -256; }, "%w reaches past the end of arena params"},
      {"no_arena", [](P p) { buffer(p, "w").arena = 4; }, "%w is in no arena"},
      {"arena_size", [](P p) { p.arenas[0].bytes = -1; }, "arena params has -1 bytes"},
      {"misaligned", [](P p) { buffer(p, "train/g").offset = 128; }, "%\"train/g\" at 128 is not aligned to 256 bytes"},
      {"misaligned_view", [](P p) { buffer(p, "train/h.row").offset = 18; }, "at 18 is not aligned to 4 bytes"},
      {"too_small", [](P p) { buffer(p, "w").bytes = 60; }, "%w has 60 bytes for f32[4, 4]"},
      {"no_elements",
       [](P p) {
         buffer(p, "w").type.shape = {0, 4};
       },
       "%w has the shape [0, 4]"},
      {"overflow",
       [](P p) {
         buffer(p, "w").type.shape = {int64_t{1} << 40, int64_t{1} << 40};
       },
       "%w is too large"},
      // lives
      {"overlap", [](P p) { buffer(p, "train/g").offset = 0; },
       "%\"train/h\" and %\"train/g\" overlap in arena work while both are live (program train, call 1 (gemm \"g\"))"},
      {"overlap_partly", [](P p) { buffer(p, "train/h").bytes = 300; }, "overlap in arena work"},
      {"overlap_last_call", [](P p) { buffer(p, "train/norm#0").offset = 0; }, "%\"train/h\" and %\"train/norm#0\" overlap"},
      {"overlap_variables", [](P p) { buffer(p, "w.bf16").offset = 0; },
       "%w and %w.bf16 overlap in arena params while both are live"},
      {"overlap_output", [](P p) { buffer(p, "train/loss").offset = 256; }, "%\"train/y\" and %\"train/loss\" overlap"},
      {"temp_on_variable",
       [](P p) {
         buffer(p, "train/norm#0").arena = 0;
         buffer(p, "train/norm#0").offset = 0;
       },
       "%w and %\"train/norm#0\" overlap"},
      {"range_too_long", [](P p) { buffer(p, "train/g").last = 9; }, "%\"train/g\" is live 1..9 in a program of 5 calls"},
      {"range_backwards", [](P p) { buffer(p, "train/g").first = 4; }, "%\"train/g\" is live 4..3"},
      {"range_absent", [](P p) { buffer(p, "train/g").first = buffer(p, "train/g").last = -1; }, "%\"train/g\" is live -1..-1"},
      {"range_on_variable", [](P p) { buffer(p, "w").first = buffer(p, "w").last = 0; }, "%w (param) has a live range"},
      {"range_on_output", [](P p) { buffer(p, "train/y").first = buffer(p, "train/y").last = 3; }, "(output) has a live range"},
      {"range_too_short", [](P p) { buffer(p, "train/g").last = 2; },
       "call 3 (copy \"y\"): %\"train/g\" is used outside its live range 1..2"},
      {"temp_of_nothing", [](P p) { buffer(p, "train/g").program = -1; }, "%\"train/g\" (temp) belongs to the wrong program"},
      {"param_of_program", [](P p) { buffer(p, "w").program = 0; }, "%w (param) belongs to the wrong program"},
      {"program_unknown", [](P p) { buffer(p, "train/g").program = 3; }, "belongs to the wrong program"},
      // views
      {"view_outside", [](P p) { buffer(p, "train/h.row").offset = 52; }, "%\"train/h.row\" reaches outside %\"train/h\""},
      {"view_elsewhere", [](P p) { buffer(p, "train/h.flat").arena = 2; }, "reaches outside %\"train/h\""},
      {"view_of_view", [](P p) { buffer(p, "train/h.row").view_of = id_of(p, "train/h.flat"); },
       "%\"train/h.row\" is a view of no owner"},
      {"view_of_none", [](P p) { buffer(p, "train/h.row").view_of = 99; }, "is a view of no owner"},
      {"view_life", [](P p) { buffer(p, "train/h.row").last = 3; }, "%\"train/h.row\" lives otherwise than %\"train/h\""},
      {"view_role", [](P p) { buffer(p, "train/h.row").role = BufferRole::workspace; }, "lives otherwise"},
      // bindings
      {"unbound", [](P p) { p.bindings[0].buffer = kNoBuffer; }, "variable %w has no buffer"},
      {"bound_twice",
       [](P p) {
         p.bindings[1] = p.bindings[0];
         p.bindings[1].variable.name = "v";
       },
       "two variables are bound to %w"},
      {"bound_parts_overlap", [](P p) { side_by_side(p, "w", "v", 48); }, "the variables in %w and %v share bytes"},
      {"bound_same_part", [](P p) { side_by_side(p, "w", "v", 0); }, "the variables in %w and %v share bytes"},
      {"compute_part_unmade", [](P p) { side_by_side(p, "w.bf16", "v.bf16", 32); },
       "%v.bf16 is a compute copy that program prepare does not make"},
      {"bound_type", [](P p) { p.bindings[0].variable.type.shape = {16}; },
       "variable %w (param f32[16]) is bound to %w (param f32[4, 4])"},
      {"bound_role", [](P p) { p.bindings[0].variable.role = VariableRole::state; },
       "variable %w (state f32[4, 4]) is bound to %w (param"},
      // ports
      {"port_role", [](P p) { train(p).outputs[0].buffer = id_of(p, "train/g"); },
       "output 'y' is in %\"train/g\", which is no output"},
      {"port_program", [](P p) { p.programs[0].outputs = {train(p).outputs[0]}; }, "which is no output of this program"},
      {"port_unbound", [](P p) { train(p).inputs[0].buffer = kNoBuffer; }, "input 'x' has no buffer"},
      // order
      {"read_early",
       [](P p) {
         std::swap(train(p).calls[0], train(p).calls[1]);
         buffer(p, "train/g").first = 0;
         for (auto& b : p.buffers)
           if (b.name.starts_with("train/h")) b.first = 0;
       },
       "call 0 (gemm \"g\"): %\"train/h.flat\" is read before it was written"},
      {"read_part", [](P p) { call(p, 0).args[2].buffer = id_of(p, "train/h.row"); },
       "%\"train/h.flat\" is read before it was written"},
      {"inout_early", [](P p) { call(p, 0).args[2].mode = AccessMode::inout; },
       "call 0 (launch \"h\"): %\"train/h\" is read before"},
      {"output_unwritten", [](P p) { call(p, 3).args[1] = write(id_of(p, "w")); }, "output 'y' is never written"},
      {"output_read_early", [](P p) { call(p, 0).args[1] = read(id_of(p, "train/y")); },
       "%\"train/y\" is read before it was written"},
      {"workspace_read", [](P p) { call(p, 2).args[2].mode = AccessMode::read; },
       "%\"train/norm#0\" is read before it was written"},
      {"input_written", [](P p) { call(p, 3).args[1] = write(id_of(p, "train/x")); }, "%\"train/x\" is an input and written"},
      {"not_prepared", [](P p) { p.programs[1].calls.clear(); }, "%w.bf16 is a compute copy that program prepare does not make"},
      {"other_program", [](P p) { p.programs[1].calls[0].args[0].buffer = id_of(p, "train/x"); },
       "%\"train/x\" belongs to another program"},
      // calls
      {"no_kernel", [](P p) { call(p, 0).kernel = "mul_9"; }, "no kernel named 'mul_9'"},
      {"block_on_cpu", [](P p) { p.kernels[0].threads = 32; }, "blocks of 32 threads on the target \"cpu\""},
      {"no_block", [](P p) { p.target = "cuda:sm_90"; }, "blocks of 0 threads on the target"},
      {"shared_on_cpu", [](P p) { p.kernels[0].shared_bytes = 64; }, "asks for 64 bytes of shared memory on the target"},
      {"grid_size",
       [](P p) {
         p.target = "cuda:sm_90";
         for (Kernel& kernel : p.kernels) kernel.threads = 32;
         call(p, 0).tasks = int64_t{1} << 31;
       },
       "2147483648 tasks; a grid holds 2147483647 blocks"},
      {"args_count", [](P p) { call(p, 0).args.pop_back(); }, "2 arguments; the kernel takes 3"},
      {"sizes_count", [](P p) { call(p, 0).sizes.push_back(1); }, "2 sizes; the kernel takes 1"},
      {"no_tasks", [](P p) { call(p, 0).tasks = 0; }, "0 tasks"},
      {"no_buffer", [](P p) { call(p, 0).args[0].buffer = 1000; }, "an argument is no buffer"},
      {"copy_size", [](P p) { call(p, 3).args[0].buffer = id_of(p, "train/loss"); },
       "%\"train/loss\" (f32[]) does not fit %\"train/y\" (f32[4, 4])"},
      {"copy_dtype", [](P p) { call(p, 3).args[0].buffer = id_of(p, "w.bf16"); }, "%w.bf16 (bf16[4, 4]) does not fit"},
      {"copy_args", [](P p) { call(p, 3).args.pop_back(); }, "1 arguments; 2 needed"},
      {"copy_absent", [](P p) { call(p, 3).args[0].buffer = kNoBuffer; }, "an argument is absent"},
      {"copy_modes", [](P p) { std::swap(call(p, 3).args[0], call(p, 3).args[1]); }, "argument 0 is 'write'; 'read' needed"},
      {"fill_args", [](P p) { call(p, 4).args.clear(); }, "0 arguments; 1 needed"},
      {"init_local",
       [](P p) {
         call(p, 4).kind = CallKind::init;
         call(p, 4).init = "0";
         call(p, 4).args[0].buffer = id_of(p, "train/y");
       },
       "%\"train/y\" is no variable's"},
      {"init_empty", [](P p) { p.programs[0].calls[0].init = ""; }, "no initial value"},
      {"collective", [](P p) { call(p, 4).kind = CallKind::collective; }, "no collectives"},
      // gemm
      {"gemm_size", [](P p) { call(p, 1).gemm.m = 5; },
       "5 rows of 4 every 4, 1 batches every 0, do not fit %\"train/h.flat\" (f32[16])"},
      {"gemm_zero", [](P p) { call(p, 1).gemm.k = 0; }, "m 4 n 4 k 0 batch 1"},
      {"gemm_ld", [](P p) { call(p, 1).gemm.lda = 3; }, "do not fit"},
      {"gemm_overflow", [](P p) { call(p, 1).gemm.lda = INT64_MAX; }, "do not fit"},
      {"gemm_stride",
       [](P p) {
         call(p, 1).gemm.batch = 2;
         call(p, 1).gemm.stride_a = 4;
       },
       "do not fit"},
      {"gemm_result", [](P p) { call(p, 1).gemm.batch = 2; }, "batches of %\"train/g\" overlap"},
      {"gemm_beta", [](P p) { call(p, 1).gemm.beta = 1; }, "3 arguments; 4 needed"},
      {"gemm_dtypes", [](P p) { call(p, 1).args[1].buffer = id_of(p, "step"); }, "no gemm of i32: %step"},
      {"gemm_two_workspaces",
       [](P p) {
         buffer(p, "train/norm#0").first = 1;
         call(p, 1).args.push_back(inout(id_of(p, "train/norm#0")));
         call(p, 1).args.push_back(inout(id_of(p, "train/norm#0")));
       },
       "4 arguments; 3 needed"},
      {"gemm_workspace_read",
       [](P p) {
         buffer(p, "train/norm#0").first = 1;
         call(p, 1).args.push_back(read(id_of(p, "train/norm#0")));
       },
       "its workspace is only read"},
      {"gemm_bias_written", [](P p) { with_bias(p, inout(id_of(p, "train/h.row"))); }, "the bias %\"train/h.row\" is written"},
      {"gemm_bias_short", [](P p) { with_bias(p, read(id_of(p, "train/loss"))); }, "do not fit %\"train/loss\" (f32[])"},
      {"gemm_bias_stride",
       [](P p) {
         with_bias(p, read(id_of(p, "train/h.row"))).gemm.batch = 2;
         call(p, 1).gemm.stride_c = 1;
       },
       "1 rows of 4 every 4, 2 batches every 1, do not fit %\"train/h.row\" (f32[4])"},
      {"gemm_bias_dtype", [](P p) { with_bias(p, read(id_of(p, "w.bf16"))); },
       "the bias %w.bf16 is bf16; f32 or the result's f32 needed"},
      {"gemm_bias_scaled", [](P p) { with_bias(p, read(id_of(p, "train/h.row"))).gemm.beta = 2; },
       "a bias is added with alpha 1 and beta 2; 1 needed"},
      // aliases within a call
      {"alias", [](P p) { call(p, 0).args[2] = write(id_of(p, "w")); },
       "arguments 1 (%w) and 2 (%w) share bytes without being a declared alias"},
      {"alias_half", [](P p) { call(p, 0).args[2] = inout(id_of(p, "w")); }, "without being a declared alias"},
      {"alias_part",
       [](P p) {
         call(p, 2).args = {inout(id_of(p, "train/h.row")), inout(id_of(p, "train/h")), inout(id_of(p, "train/norm#0"))};
       },
       "without being a declared alias"},
      // lanes
      {"lane_range", [](P p) { call(p, 1).lane = 64; }, "lane 64 is not within 0..63"},
      {"after_later", [](P p) { call(p, 1).after = {1}; }, "waits for call 1, which is not before it"},
      {"lane_race", [](P p) { call(p, 1).lane = 1; },
       "call 1 (gemm \"g\") does not wait for call 0 on lane 0, which touches the same bytes of %\"train/h.flat\""},
      {"lane_race_back",
       [](P p) {
         call(p, 1).lane = 1;
         call(p, 1).after = {0};
       },
       "call 3 (copy \"y\") does not wait for call 1 on lane 1"},
  };
  return list;
}

class PlanFaults : public testing::TestWithParam<Fault> {};
TEST_P(PlanFaults, IsRefused) {
  Plan plan = sample_plan();
  GetParam().plant(plan);
  EXPECT_THAT(fault(plan), HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(All, PlanFaults, testing::ValuesIn(faults()),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(PlanVerify, TheSampleVerifies) { EXPECT_EQ(fault(sample_plan()), "verifies"); }

TEST(PlanVerify, VariablesSideBySideAreFine) {
  Plan plan = sample_plan();
  side_by_side(plan, "w", "v", 64);
  EXPECT_EQ(fault(plan), "verifies");
}

TEST(PlanVerify, AnAbsentArgumentIsFine) {
  Plan plan = sample_plan();
  call(plan, 0).args[0].buffer = kNoBuffer;
  EXPECT_EQ(fault(plan), "verifies");
}

TEST(PlanVerify, AProductMayHaveAWorkspace) {
  Plan plan = sample_plan();
  buffer(plan, "train/norm#0").first = 1;
  call(plan, 1).args.push_back(inout(id_of(plan, "train/norm#0")));
  EXPECT_EQ(fault(plan), "verifies");
  EXPECT_EQ(call(plan, 1).workspace(), id_of(plan, "train/norm#0"));
  call(plan, 1).args.back().buffer = id_of(plan, "train/g");  // a fourth matrix
  EXPECT_THAT(fault(plan), HasSubstr("4 arguments; 3 needed"));
}

TEST(PlanVerify, AProductMayHaveABias) {
  Plan plan = sample_plan();
  with_bias(plan, read(id_of(plan, "train/h.row")));
  EXPECT_EQ(fault(plan), "verifies");
  Plan again = parse_plan(print_plan(plan));
  EXPECT_TRUE(call(again, 1).gemm.has_bias());
  EXPECT_EQ(call(again, 1), call(plan, 1));
}

TEST(PlanVerify, ADeclaredAliasIsFine) {
  Plan plan = sample_plan();
  call(plan, 2).args = {inout(id_of(plan, "w")), inout(id_of(plan, "w")), write(id_of(plan, "train/loss"))};
  EXPECT_EQ(fault(plan), "verifies");
}

TEST(PlanVerify, LanesThatWaitAreFine) {
  Plan plan = sample_plan();
  call(plan, 1).lane = 1;
  call(plan, 1).after = {0};
  call(plan, 3).after = {1};
  EXPECT_EQ(fault(plan), "verifies");
  // The wait may be inherited: call 2 waits, call 3 follows it on its lane.
  call(plan, 3).after = {};
  call(plan, 2).after = {1};
  EXPECT_EQ(fault(plan), "verifies");
}

// Runs of bytes that several calls touched in parts: each part is held to who touched it last.
TEST(PlanVerify, LanesMayTouchBytesBesideEachOther) {
  PlanMaker m;
  const int work = m.arena("work", 1024), program = m.program("p");
  const BufferId all = m.local(program, "all", {DType::f32, {128}}, BufferRole::temp, work, 0, 0, 3);
  const auto part = [&](const char* name, int64_t offset, int64_t elements) {
    const BufferId id = m.local(program, name, {DType::f32, {elements}}, BufferRole::temp, work, offset, 0, 3);
    m.plan.buffers[id].view_of = all;
    return id;
  };
  const BufferId left = part("left", 0, 64), right = part("right", 256, 64), middle = part("middle", 128, 64);
  m.call(program, CallKind::fill, "left", {write(left)});
  m.call(program, CallKind::fill, "right", {write(right)});
  m.call(program, CallKind::fill, "middle", {write(middle)});
  m.call(program, CallKind::fill, "left", {write(left)});
  std::vector<Call>& calls = m.plan.programs[0].calls;
  calls[1].lane = 1;
  calls[2].lane = 2;
  calls[2].after = {0};
  EXPECT_THAT(fault(m.plan), HasSubstr("call 2 (fill \"middle\") does not wait for call 1 on lane 1"));
  calls[2].after = {1};
  EXPECT_THAT(fault(m.plan), HasSubstr("call 2 (fill \"middle\") does not wait for call 0 on lane 0"));
  calls[2].after = {0, 1};
  EXPECT_THAT(fault(m.plan), HasSubstr("call 3 (fill \"left\") does not wait for call 2 on lane 2"));
  calls[3].after = {2};
  EXPECT_EQ(fault(m.plan), "verifies");
  calls[3].after = {1};  // of what it writes, call 2 wrote a part
  EXPECT_THAT(fault(m.plan), HasSubstr("call 3 (fill \"left\") does not wait for call 2 on lane 2"));
}

TEST(PlanVerify, TempsOfDifferentProgramsShareBytes) {
  PlanMaker m;
  const int work = m.arena("work", 256);
  for (const char* name : {"a", "b"}) {
    const int program = m.program(name);
    const BufferId t = m.local(program, "t", {DType::f32, {4}}, BufferRole::temp, work, 0, 0, 0);
    m.call(program, CallKind::fill, "t", {write(t)});
  }
  EXPECT_EQ(fault(m.plan), "verifies");
}

// A buffer dies after its last call, and another may take its bytes from the next call on.
TEST(PlanVerify, BytesAreFreeAfterTheLastCall) {
  Plan plan = sample_plan();
  buffer(plan, "train/norm#0").offset = 768;
  buffer(plan, "train/h").last = buffer(plan, "train/h.flat").last = buffer(plan, "train/h.row").last = 2;
  PlanMaker m;
  m.plan = plan;
  const BufferId late = m.local(2, "late", {DType::f32, {4, 4}}, BufferRole::temp, 3, 0, 4, 4);
  m.plan.programs[2].calls[4].args[0].buffer = late;
  EXPECT_EQ(fault(m.plan), "verifies");
  m.plan.buffers[late].first = 2;
  EXPECT_THAT(fault(m.plan), HasSubstr("overlap"));
}

// The sweep against the obvious check of all pairs, on random lives and places.
TEST(PlanVerify, OverlapAgreesWithAllPairs) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int clean = 0, faulty = 0;
  for (int round = 0; round < 3000; ++round) {
    PlanMaker m;
    const int work = m.arena("work", 256 * 40);
    const int calls = 12, count = 2 + below(8);
    const int program = m.program("p");
    for (int i = 0; i < count; ++i) {
      const int first = below(calls), last = first + below(calls - first);
      const int units = 1 + below(3);
      m.local(program, std::to_string(i), {DType::boolean, {256 * units - below(255)}}, BufferRole::temp, work, 256 * below(37),
              first, last);
    }
    bool expected = false;
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < i; ++j) {
        const Buffer &a = m.plan.buffers[i], &b = m.plan.buffers[j];
        expected |= a.first <= b.last && b.first <= a.last && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      }
    }
    m.plan.programs[0].calls.assign(calls, Call{});
    m.kernel("nop", 0, 0);
    m.plan.files = {{"image.so", ""}, {"kernels/all.cpp", ""}};
    for (Call& c : m.plan.programs[0].calls) c.kernel = "nop";
    const std::string found = fault(m.plan);
    ASSERT_EQ(found != "verifies", expected) << found;
    ++(expected ? faulty : clean);
  }
  EXPECT_GT(clean, 300);
  EXPECT_GT(faulty, 300);
}

}  // namespace
}  // namespace ingot::ir
