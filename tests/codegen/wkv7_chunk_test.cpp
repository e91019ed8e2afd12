// WKV7 by chunks on tensor cores, run on the CPU: every result by itself against the interpreter in double, by relative L2 error;
// ragged tails, one position, both extremes of the decay, correlated and equal keys, states in and out, null arguments. What lies
// behind a sequence is NaN: nothing may read it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "codegen/target.h"
#include "ir/graph/interpret.h"
#include "ir/graph/op_def.h"
#include "ir/graph/text.h"
#include "tests/codegen/emulated_machine.h"
#include "tests/codegen/kernel_bench.h"

namespace ingot {
namespace {

enum class Data { random, slow, fast, alternating, correlated, equal };

struct Shape {
  int64_t batch, time, heads;
  std::vector<int64_t> starts = {};  ///< positions of every sequence at which a document starts
  int64_t head = 64;
  ir::DType dtype = ir::DType::bf16;
  int64_t segments = 1;  ///< into which time is cut
  std::string rows() const { return fmt::format("{}[{}, {}, {}, {}]", ir::dtype_name(dtype), batch, time, heads, head); }
  std::string states() const { return fmt::format("f32[{}, {}, {}, {}]", batch, heads, head, head); }
  std::string saved() const { return fmt::format("bf16[{}, {}, {}, {}, {}]", batch, heads, (time + 63) / 64, head, head); }
  std::string text(bool state, bool dy, bool dstate) const {
    std::string out;
    for (const char* name : {"r", "w", "k", "v", "a", "b", "dy"}) out += fmt::format("input %{}: {}\n", name, rows());
    out += fmt::format("input %s0: {0}\ninput %ds: {0}\n", states());
    if (!starts.empty()) out += fmt::format("input %starts: i32[{}, {}]\n", batch, time);
    const std::string packed = starts.empty() ? "" : ", %starts";
    const std::string attrs =
        fmt::format("{{chunk: 64, saved_dtype: bf16{}}}", segments > 1 ? fmt::format(", segments: {}", segments) : "");
    out += fmt::format("%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b{}{}) {}: {}, {}, {}\n",
                       state            ? ", %s0"
                       : packed.empty() ? ""
                                        : ", none",
                       packed, attrs, rows(), states(), saved());
    const std::string grads = fmt::format("{0}, {0}, {0}, {0}, {0}, {0}, {1}", rows(), states());
    out += fmt::format("%dr, %dw, %dk, %dv, %da, %db, %ds0 = wkv7_grad(%r, %w, %k, %v, %a, %b, %c, {}, {}{}) {}: {}\n",
                       dy ? "%dy" : "none", dstate ? "%ds" : "none", packed, attrs, grads);
    return out;
  }
};

double normal(testing::Random& random) {
  return std::sqrt(-2 * std::log(random.uniform(1e-12, 1))) * std::cos(6.283185307179586 * random.uniform(0, 1));
}

std::map<std::string, ir::Tensor> inputs(const Shape& shape, Data data, uint64_t seed) {
  testing::Random random(seed);
  const ir::Type rows{shape.dtype, {shape.batch, shape.time, shape.heads, shape.head}};
  const ir::Type states{ir::DType::f32, {shape.batch, shape.heads, shape.head, shape.head}};
  std::map<std::string, ir::Tensor> in;
  for (const char* name : {"r", "w", "k", "v", "a", "b", "dy"}) in.emplace(name, ir::Tensor(rows));
  for (const char* name : {"s0", "ds"}) {
    in.emplace(name, ir::Tensor(states));
    for (double& x : in.at(name).data) x = ir::round_to(ir::DType::f32, 0.5 * normal(random));
  }
  if (!shape.starts.empty()) {
    ir::Tensor& starts = in.emplace("starts", ir::Tensor({ir::DType::i32, {shape.batch, shape.time}})).first->second;
    for (int64_t sequence = 0; sequence < shape.batch; ++sequence)
      for (int64_t t : shape.starts) starts.data[static_cast<size_t>(sequence * shape.time + t)] = 1;
  }
  const size_t head = static_cast<size_t>(shape.head);
  std::vector<double> common(head);
  for (double& x : common) x = normal(random) / 8;
  const auto put = [&](const char* name, size_t i, double x) { in.at(name).data[i] = ir::round_to(shape.dtype, x); };
  for (size_t row = 0; row < in.at("r").data.size() / head; ++row) {
    std::vector<double> key(head);
    double size = 0;
    for (size_t j = 0; j < head; ++j) {
      key[j] = data == Data::equal
                   ? common[j]
                   : normal(random) / 8 * (data == Data::correlated ? 0.3 : 1) + (data == Data::correlated ? common[j] : 0);
      size += key[j] * key[j];
    }
    for (size_t j = 0; j < head; ++j) {
      const size_t i = row * head + j;
      const double kk = key[j] / std::sqrt(size);
      double w = 2 * normal(random) - 2, rate = 1 / (1 + std::exp(-normal(random)));
      if (data == Data::slow) w = -20;
      if (data == Data::fast) w = 20;
      if (data == Data::alternating) w = j % 2 == 0 ? -20 : 20;
      if (data == Data::correlated) w = -6 + normal(random), rate = 1 / (1 + std::exp(-2 - normal(random)));
      if (data == Data::equal) w = -20, rate = 1;
      put("w", i, w);
      put("r", i, 0.7 * normal(random));
      put("k", i, 0.5 * normal(random));
      put("v", i, normal(random));
      put("dy", i, normal(random));
      put("a", i, -kk);
      put("b", i, kk * rate);
    }
  }
  return in;
}

double error(const std::vector<double>& got, const std::vector<double>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

class Wkv7Chunks : public testing::OnEachMachine {
 protected:
  void judge(const Shape& shape, Data data, double bound = 8e-3, bool state = true, bool dy = true, bool dstate = true);
};
INSTANTIATE_TEST_SUITE_P(On, Wkv7Chunks, ::testing::Values("cuda", "gpu"), testing::machine_name);

/// Runs both ops; every result within its bound of the interpreter, which rounds nothing between the ops.
void Wkv7Chunks::judge(const Shape& shape, Data data, double bound, bool state, bool dy, bool dstate) {
  SCOPED_TRACE(fmt::format("batch {} time {} heads {} segments {} data {}", shape.batch, shape.time, shape.heads, shape.segments,
                           static_cast<int>(data)));
  const auto in = inputs(shape, data, 7 + static_cast<uint64_t>(data));
  const std::string text = shape.text(state, dy, dstate);
  const ir::Graph graph = ir::parse_graph("graph @wkv7 at core {\n" + text + "}\n");
  const auto want = ir::interpret(graph, in, {}, {}, true).values;
  testing::KernelBench bench(machine());
  bench.set_tolerance(1e9);  // judged here
  bench.add(text, in);
  bench.run();
  const std::vector<std::string> names = {"y", "s", "c", "dr", "dw", "dk", "dv", "da", "db", "ds0"};
  ASSERT_EQ(bench.results().size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const double limit = names[i] == "y" ? 5e-3 : names[i] == "c" || names[i] == "s" ? 4e-3 : bound;
    EXPECT_LE(error(bench.results()[i], want.at(names[i]).data), limit) << names[i];
  }
}

/// Cards with less shared memory hold one stage less.
class Wkv7ChunksInTwoStages : public Wkv7Chunks {};
INSTANTIATE_TEST_SUITE_P(On, Wkv7ChunksInTwoStages, ::testing::Values("cuda_80"), testing::machine_name);
TEST_P(Wkv7ChunksInTwoStages, Random) { judge({1, 330, 1}, Data::random); }

TEST_P(Wkv7Chunks, Random) { judge({1, 150, 2}, Data::random); }
TEST_P(Wkv7Chunks, OnePosition) { judge({2, 1, 1}, Data::random, 1.2e-2); }  // 128 numbers: db comes to 8.5e-3
TEST_P(Wkv7Chunks, AroundAChunk) {
  for (const int64_t time : {15, 16, 17, 63, 64, 65, 100}) judge({1, time, 1}, Data::random);
}
TEST_P(Wkv7Chunks, SeveralSequencesWithTails) { judge({2, 70, 3}, Data::random); }
TEST_P(Wkv7Chunks, NothingDecays) { judge({1, 257, 1}, Data::slow); }
TEST_P(Wkv7Chunks, EverythingDecays) { judge({1, 257, 1}, Data::fast); }
TEST_P(Wkv7Chunks, AlternatingExtremes) { judge({1, 257, 1}, Data::alternating); }
TEST_P(Wkv7Chunks, CorrelatedKeys) { judge({1, 257, 1}, Data::correlated); }
TEST_P(Wkv7Chunks, EqualKeys) { judge({1, 257, 1}, Data::equal, 2e-2); }
TEST_P(Wkv7Chunks, DocumentsStart) {
  judge({1, 200, 1, {70, 75, 131}}, Data::random);          // within chunks, two in one
  judge({2, 140, 1, {0, 63, 64, 128, 139}}, Data::random);  // at the edges of chunks and of the sequence
}
TEST_P(Wkv7Chunks, DocumentsOfOneAndOfTwoPositions) {
  Shape shape{1, 70, 1};
  for (int64_t t = 0; t < shape.time; ++t) {
    if (t % 3 != 2) shape.starts.push_back(t);
  }
  judge(shape, Data::random);
}
TEST_P(Wkv7Chunks, SmallHeads) {
  judge({1, 150, 3, {}, 32}, Data::random, 9e-3);
  judge({2, 70, 2, {33}, 16}, Data::random, 9e-3);
}
TEST_P(Wkv7Chunks, HalfPrecisionRows) {
  judge({1, 100, 1, {}, 64, ir::DType::f16}, Data::random);
  judge({1, 70, 2, {20}, 64, ir::DType::f16}, Data::correlated, 9e-3);
}
TEST_P(Wkv7Chunks, FromZeroWithoutStates) { judge({1, 130, 1}, Data::random, 8e-3, false, true, false); }
TEST_P(Wkv7Chunks, OnlyTheLastStateMatters) { judge({1, 130, 1}, Data::random, 8e-3, true, false, true); }

/// Time cut into segments side by side: the same results within the same bounds.
class Wkv7Segments : public Wkv7Chunks {
 protected:
  static Shape cut(Shape shape, int64_t segments) {
    shape.segments = segments;
    return shape;
  }
};
INSTANTIATE_TEST_SUITE_P(On, Wkv7Segments, ::testing::Values("cuda", "gpu"), testing::machine_name);

class Wkv7SegmentsInTwoStages : public Wkv7Segments {};
INSTANTIATE_TEST_SUITE_P(On, Wkv7SegmentsInTwoStages, ::testing::Values("cuda_80"), testing::machine_name);
TEST_P(Wkv7SegmentsInTwoStages, Random) { judge(cut({1, 273, 1, {200}}, 2), Data::random); }

TEST_P(Wkv7Segments, Random) {
  judge(cut({1, 273, 2}, 2), Data::random);
  judge(cut({1, 273, 1}, 3), Data::random);
}
TEST_P(Wkv7Segments, OfAChunkEach) {
  for (const int64_t time : {65, 128, 130}) judge(cut({1, time, 1}, 100), Data::random);
}
TEST_P(Wkv7Segments, SeveralSequencesWithTails) { judge(cut({2, 140, 3}, 2), Data::random); }
TEST_P(Wkv7Segments, EveryKindOfData) {
  for (const Data data : {Data::slow, Data::fast, Data::alternating, Data::correlated}) judge(cut({1, 273, 1}, 3), data);
  judge(cut({1, 273, 1}, 3), Data::equal, 2e-2);
}
TEST_P(Wkv7Segments, DocumentsStart) {
  for (const Data data : {Data::random, Data::slow}) {               // where nothing decays, what passes a start shows
    judge(cut({1, 401, 1, {70, 75, 131}}, 3), data);                 // in one segment, two in a chunk; none in the others
    judge(cut({2, 273, 1, {0, 127, 128, 255, 256, 272}}, 3), data);  // at the edges of segments and of the sequence
  }
}
TEST_P(Wkv7Segments, SmallHeads) {
  judge(cut({1, 273, 3, {}, 32}, 3), Data::random, 9e-3);
  judge(cut({2, 140, 2, {33}, 16}, 2), Data::random, 9e-3);
}
TEST_P(Wkv7Segments, HalfPrecisionRows) {
  judge(cut({1, 200, 1, {}, 64, ir::DType::f16}, 2), Data::random);
  judge(cut({1, 140, 2, {20}, 64, ir::DType::f16}, 3), Data::correlated, 9e-3);
}
TEST_P(Wkv7Segments, FromZeroWithoutStates) { judge(cut({1, 273, 1}, 2), Data::random, 8e-3, false, true, false); }
TEST_P(Wkv7Segments, OnlyTheLastStateMatters) { judge(cut({1, 273, 1}, 2), Data::random, 8e-3, true, false, true); }

/// The next sequence is not read, nor is what stands in results and between launches before them (bytes of 0xff, which are NaN).
TEST_P(Wkv7Segments, ReadsNoOtherSequence) {
  const Shape shape = cut({2, 273, 1, {100}}, 3);
  auto in = inputs(shape, Data::random, 3);
  for (auto& [name, tensor] : in) {
    if (name == "starts") continue;
    std::fill(tensor.data.begin() + static_cast<int64_t>(tensor.data.size() / 2), tensor.data.end(),
              std::numeric_limits<double>::quiet_NaN());
  }
  testing::KernelBench bench(machine());
  bench.set_tolerance(1e9);
  bench.add(shape.text(true, true, true), in);
  bench.run();
  for (const auto& result : bench.results()) {
    const auto half = result.begin() + static_cast<int64_t>(result.size() / 2);
    EXPECT_TRUE(std::all_of(result.begin(), half, [](double x) { return std::isfinite(x); }));
    EXPECT_FALSE(std::all_of(half, result.end(), [](double x) { return std::isfinite(x); }));
  }
}

/// The attribute `segments` that a target gives the op; 0: none. `written`: what the op says itself.
int64_t chosen_segments(const std::string& arch, const Shape& shape, const std::string& written = "") {
  std::string text;
  for (const char* name : {"r", "w", "k", "v", "a", "b"}) text += fmt::format("input %{}: {}\n", name, shape.rows());
  const std::string saved =
      fmt::format("f32[{0}, {1}, {2}, {3}, {3}]", shape.batch, shape.heads, (shape.time + 63) / 64, shape.head);
  text += fmt::format("%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b) {{chunk: 64{}}}: {}, {}, {}\n", written, shape.rows(),
                      shape.states(), saved);
  const ir::Graph graph = ir::parse_graph("graph @wkv7 at core {\n" + text + "}\n");
  codegen::CudaTargetOptions options;
  options.arch = arch;
  const ir::Attrs attrs = codegen::make_cuda_target(options)->configure(graph, graph.ops().back());
  return attrs.has("segments") ? attrs.integer("segments") : 0;
}

TEST(Wkv7SegmentChoice, FillsTheCardWhereSequencesDoNot) {
  EXPECT_EQ(chosen_segments("sm_90", {1, 65536, 12}), 11);  // 132 blocks for 132 multiprocessors
  EXPECT_EQ(chosen_segments("sm_80", {1, 65536, 12}), 9);   // of 108
  EXPECT_EQ(chosen_segments("sm_90", {1, 4096, 32}), 4);
}
TEST(Wkv7SegmentChoice, LeavesTimeInOnePieceWhereThereIsLittleToGain) {
  EXPECT_EQ(chosen_segments("sm_90", {4, 4096, 32}), 0);  // 128 blocks
  EXPECT_EQ(chosen_segments("sm_90", {8, 4096, 32}), 0);  // two rounds of them
  EXPECT_EQ(chosen_segments("sm_90", {16, 512, 12}), 0);
  EXPECT_EQ(chosen_segments("sm_90", {1, 512, 12}), 0);    // eight chunks: launches would cost what is saved
  EXPECT_EQ(chosen_segments("sm_86", {1, 65536, 12}), 0);  // not by chunks at all
}
TEST(Wkv7SegmentChoice, IsTheModelsWhereItSaysSo) {
  EXPECT_EQ(chosen_segments("sm_90", {1, 65536, 12}, ", segments: 1"), 1);
  EXPECT_EQ(chosen_segments("sm_90", {4, 4096, 32}, ", segments: 7"), 7);
}

/// What each op of the text is lowered to.
std::vector<std::string> stems(const Shape& shape) {
  const ir::Graph graph = ir::parse_graph("graph @wkv7 at core {\n" + shape.text(true, true, true) + "}\n");
  std::vector<std::string> out;
  for (const ir::Op& op : graph.ops()) {
    if (!ir::lowering_as<ir::KernelLowering>(op)) continue;
    for (const codegen::Launch& launch : codegen::make_cuda_target()->lower({graph, op, {}}).launches)
      out.push_back(fmt::format("{} {}", launch.stem, launch.tasks));
  }
  return out;
}

TEST(Wkv7SegmentChoice, SaysHowManyBlocksThereAre) {
  const std::vector<std::string> whole = {"wkv7_chunks 6", "wkv7_chunks_back 6", "wkv7_chunk_gradients 60"};
  EXPECT_EQ(stems({2, 640, 3}), whole);
  const std::vector<std::string> cut = {"wkv7_segment_ends 18",      "wkv7_segment_join 96",      "wkv7_segments 24",
                                        "wkv7_segment_ends_back 18", "wkv7_segment_join_back 96", "wkv7_segments_back 24",
                                        "wkv7_chunk_gradients 60"};
  EXPECT_EQ(stems({2, 640, 3, {}, 64, ir::DType::bf16, 4}), cut);  // of three chunks, the last one of one
}

}  // namespace
}  // namespace ingot
