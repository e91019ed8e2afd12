// wkv7 and wkv7_grad on the CPU against the interpreter: every head size, odd times, both extremes of the decay, starts, null
// arguments.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/codegen/emulated_machine.h"
#include "tests/codegen/kernel_bench.h"

namespace ingot {
namespace {

class Wkv7 : public ingot::testing::OnEachMachine {};
INSTANTIATE_TEST_SUITE_P(On, Wkv7, ingot::testing::kMachines, ingot::testing::machine_name);

enum class Decay { mixed, slow, fast, alternating };

struct Sequence {
  int64_t batch = 1, time = 1, heads = 1, head = 16, chunk = 16;
  std::string dtype = "f32";
  Decay decay = Decay::mixed;
  bool state = true, starts = false, dy = true, dstate = true;
  std::string starts_dtype = "i32";

  std::string rows() const { return fmt::format("{}[{}, {}, {}, {}]", dtype, batch, time, heads, head); }
  std::string states() const { return fmt::format("f32[{}, {}, {}, {}]", batch, heads, head, head); }
  std::string saved() const {
    return fmt::format("f32[{}, {}, {}, {}, {}]", batch, heads, (time + chunk - 1) / chunk, head, head);
  }

  std::string inputs() const {
    std::string text;
    for (const char* name : {"r", "w", "k", "v", "a", "b"}) text += fmt::format("input %{}: {}\n", name, rows());
    if (state) text += fmt::format("input %s0: {}\n", states());
    if (starts) text += fmt::format("input %starts: {}[{}, {}]\n", starts_dtype, batch, time);
    if (dy) text += fmt::format("input %dy: {}\n", rows());
    if (dstate) text += fmt::format("input %ds: {}\n", states());
    return text;
  }
  std::string forward() const {
    std::string ports = state ? ", %s0" : ", none";
    if (starts) ports += ", %starts";
    return fmt::format("%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b{}) {{chunk: {}}}: {}, {}, {}\n", ports, chunk, rows(), states(),
                       saved());
  }
  std::string backward() const {
    const std::string gradients = fmt::format("{0}, {0}, {0}, {0}, {0}, {0}, {1}", rows(), states());
    return fmt::format(
        "%dr, %dw, %dk, %dv, %da, %db, %ds0 = wkv7_grad(%r, %w, %k, %v, %a, %b, %c, {}, {}, {}) {{chunk: {}}}: {}\n",
        dy ? "%dy" : "none", dstate ? "%ds" : "none", starts ? "%starts" : "none", chunk, gradients);
  }
  std::string text() const { return inputs() + forward() + backward(); }
};

double decay_logit(Decay decay, int64_t i, testing::Random& random) {
  switch (decay) {
    case Decay::mixed:
      return random.uniform(-6, 4);
    case Decay::slow:
      return -20;
    case Decay::fast:
      return 20;
    case Decay::alternating:
      return i % 2 == 0 ? 20 : -20;
  }
  return 0;
}

/// As the model makes them: a is minus a unit vector, b that vector times a gate, so the state stays bounded.
std::map<std::string, ir::Tensor> make_inputs(const Sequence& s, uint64_t seed) {
  testing::Random random(seed);
  const ir::Type rows{*ir::dtype_from_name(s.dtype), {s.batch, s.time, s.heads, s.head}};
  const ir::Type states{ir::DType::f32, {s.batch, s.heads, s.head, s.head}};
  std::map<std::string, ir::Tensor> in;
  const auto random_tensor = [&](const ir::Type& type, double scale) {
    ir::Tensor tensor(type);
    for (double& x : tensor.data) x = random.uniform(-scale, scale);
    return tensor;
  };
  in["r"] = random_tensor(rows, 1);
  in["k"] = random_tensor(rows, 1);
  in["v"] = random_tensor(rows, 1);
  in["a"] = random_tensor(rows, 1);
  in["w"] = in["b"] = ir::Tensor(rows);
  for (size_t at = 0; at < in["a"].data.size(); at += static_cast<size_t>(s.head)) {
    double norm = 0;
    for (size_t n = at; n < at + static_cast<size_t>(s.head); ++n) norm += in["a"].data[n] * in["a"].data[n];
    for (size_t n = at; n < at + static_cast<size_t>(s.head); ++n) {
      in["a"].data[n] /= std::sqrt(norm);
      in["b"].data[n] = -in["a"].data[n] * random.uniform(0, 1);
      in["w"].data[n] = decay_logit(s.decay, static_cast<int64_t>(n), random);
    }
  }
  if (s.state) in["s0"] = random_tensor(states, 1);
  if (s.dy) in["dy"] = random_tensor(rows, 1);
  if (s.dstate) in["ds"] = random_tensor(states, 1);
  if (s.starts) {
    in["starts"] = ir::Tensor({*ir::dtype_from_name(s.starts_dtype), {s.batch, s.time}});
    for (double& x : in["starts"].data) x = random.integer(0, 5) == 0 ? static_cast<double>(random.integer(1, 3)) : 0;
  }
  return in;
}

void add(testing::KernelBench& bench, const Sequence& sequence, uint64_t seed = 1) {
  bench.add(sequence.text(), make_inputs(sequence, seed));
}

TEST_P(Wkv7, EveryHeadSizeAndTime) {
  testing::KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (int64_t head : {16, 20, 32, 48, 64, 80, 128}) {
    for (int64_t time : {1, 15, 16, 17, 37, 64, 65}) {
      Sequence sequence;
      sequence.head = head, sequence.time = time;
      sequence.state = time != 17, sequence.dstate = time != 15;
      add(bench, sequence, static_cast<uint64_t>(head + time));
    }
  }
  bench.run();
}

TEST_P(Wkv7, BatchesHeadsStartsAndChunks) {
  testing::KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (int64_t chunk : {1, 3, 16, 20, 64}) {
    for (bool starts : {false, true}) {
      Sequence sequence;
      sequence.batch = 2, sequence.heads = 3, sequence.head = 32, sequence.time = 45;
      sequence.chunk = chunk, sequence.starts = starts;
      add(bench, sequence, static_cast<uint64_t>(chunk));
    }
  }
  Sequence wide;
  wide.head = 64, wide.time = 33, wide.starts = true, wide.starts_dtype = "i64";
  add(bench, wide);
  bench.run();
}

TEST_P(Wkv7, AStartAtEveryPosition) {
  testing::KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (int64_t start : {0, 1, 15, 16, 17, 31, 32}) {
    Sequence sequence;
    sequence.head = 32, sequence.time = 33, sequence.starts = true;
    auto inputs = make_inputs(sequence, 3);
    for (double& x : inputs["starts"].data) x = 0;
    inputs["starts"].data[static_cast<size_t>(start)] = 1;
    bench.add(sequence.text(), inputs);
    for (double& x : inputs["starts"].data) x = 1;
    bench.add(sequence.text(), inputs);
  }
  bench.run();
}

TEST_P(Wkv7, ExtremesOfTheDecay) {
  testing::KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (Decay decay : {Decay::slow, Decay::fast, Decay::alternating}) {
    Sequence sequence;
    sequence.head = 64, sequence.time = 65, sequence.decay = decay;
    add(bench, sequence);
  }
  bench.run();
}

TEST_P(Wkv7, SixteenBitRows) {
  testing::KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (const char* dtype : {"bf16", "f16"}) {
    Sequence sequence;
    sequence.dtype = dtype, sequence.batch = 2, sequence.heads = 2, sequence.head = 64, sequence.time = 37,
    sequence.starts = true;
    add(bench, sequence);
    sequence.head = 20;
    add(bench, sequence);
  }
  bench.run();
}

TEST_P(Wkv7, AbsentGradientsAndDeadResults) {
  testing::KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  Sequence sequence;
  sequence.head = 32, sequence.time = 21, sequence.heads = 2;
  for (int dead = 0; dead < 3; ++dead) {
    std::vector<bool> mask(3, false);
    mask[static_cast<size_t>(dead)] = true;
    bench.add(sequence.inputs() + sequence.forward(), make_inputs(sequence, 5), mask);
    mask.flip();
    bench.add(sequence.inputs() + sequence.forward(), make_inputs(sequence, 5), mask);
  }
  for (int dead = 0; dead < 7; ++dead) {
    std::vector<bool> mask(7, false);
    mask[static_cast<size_t>(dead)] = true;
    bench.add(sequence.text(), make_inputs(sequence, 6), mask);
  }
  sequence.dy = false;
  add(bench, sequence);
  sequence.dy = true, sequence.dstate = sequence.state = false;
  add(bench, sequence);
  bench.run();
}

TEST_P(Wkv7, ExamplesOfTheOps) {
  testing::KernelBench bench(machine());
  bench.set_tolerance(2e-5);
  for (const char* name : {"wkv7", "wkv7_grad"}) {
    for (const ir::Example& example : ir::op_def(name).examples) bench.add(example.text, example.lo, example.hi);
  }
  bench.run();
}

}  // namespace
}  // namespace ingot
