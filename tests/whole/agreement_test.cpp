// Two ways to one answer, on the CPU: microbatches, decoding, debug outputs, recompute, threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "codegen/compile.h"
#include "models/loader.h"
#include "runtime/session.h"
#include "tests/common/places.h"
#include "tests/runtime/scratch_folder.h"

namespace ingot::runtime {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;
using Values = std::map<std::string, HostTensor>;

constexpr int kVocab = 101;

/// The CPU with products that are worth making together, as many at once as there are.
class Together final : public codegen::Target {
 public:
  explicit Together(const codegen::CpuTargetOptions& options) : cpu_(codegen::make_cpu_target(options)) {}
  std::string name() const override { return cpu_->name(); }
  codegen::OpLaunches lower(const codegen::OpSite& site) const override { return cpu_->lower(site); }
  codegen::Launch add_sums(const std::vector<codegen::RowSum>& sums) const override { return cpu_->add_sums(sums); }
  std::string refuses(const ir::Graph& graph, const ir::Op& op) const override { return cpu_->refuses(graph, op); }
  ir::Attrs configure(const ir::Graph& graph, const ir::Op& op) const override { return cpu_->configure(graph, op); }
  codegen::GemmCosts gemm_costs() const override {
    codegen::GemmCosts costs = cpu_->gemm_costs();
    costs.tiles_at_a_time = int64_t{1} << 40;
    return costs;
  }
  codegen::BuiltKernels build(const std::vector<codegen::KernelText>& kernels) const override { return cpu_->build(kernels); }

 private:
  std::unique_ptr<codegen::Target> cpu_;
};

struct Variant {
  Overrides overrides;
  codegen::CompileOptions compile = {};
  std::vector<std::string> outputs = {};
  int threads = 2;
  bool together = false;  ///< products of one shape
};

Overrides small(const Overrides& more) {
  Overrides all = {{"layers", "2"},  {"width", "32"},  {"head", "16"},   {"vocab", std::to_string(kVocab)},
                   {"batch", "2"},   {"time", "19"},   {"ffn", "64"},    {"rank_w", "16"},
                   {"rank_a", "16"}, {"rank_v", "16"}, {"rank_g", "16"}, {"warmup", "0"}};
  for (const auto& [key, value] : more) {
    std::erase_if(all, [&](const auto& pair) { return pair.first == key; });
    all.emplace_back(key, value);
  }
  return all;
}

/// Parameters of ordinary size: a fresh model has zeros that hide most gradients of the first steps.
void draw_parameters(Session& session) {
  session.initialise(3);
  std::mt19937 random(11);
  for (const ir::Binding& binding : session.plan().bindings) {
    if (binding.variable.role != ir::VariableRole::param) continue;
    HostTensor value = session.read_variable(binding.variable.name);
    std::vector<double> numbers = value.to_doubles();
    for (double& number : numbers) number += 0.2 * (static_cast<double>(random()) / 4294967295.0 - 0.5);
    session.write_variable(binding.variable.name, HostTensor::from_doubles(value.type, numbers));
  }
  session.run("prepare");
}

std::unique_ptr<Session> open(const Variant& variant) {
  models::LoadOptions load;
  load.overrides = variant.overrides;
  load.outputs = variant.outputs;
  codegen::CpuTargetOptions cpu;
  cpu.cache.directory = tests::build_file("test-cache");
  const models::LoadedModel model = models::load_model(tests::source_file("models/rwkv7.yaml"), load);
  SessionOptions options;
  options.threads = variant.threads;
  const auto target = variant.together ? std::make_unique<Together>(cpu) : codegen::make_cpu_target(cpu);
  auto session = Session::open(codegen::compile(model.module, *target, variant.compile), options);
  draw_parameters(*session);
  return session;
}

HostTensor ids(const std::vector<double>& values, int64_t batch, int64_t time) {
  return HostTensor::from_doubles({ir::DType::i32, {batch, time}}, values);
}

std::vector<double> draw_ids(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> values(count);
  for (double& value : values) value = static_cast<double>(random() % kVocab);
  return values;
}

void run(Session& session, const std::string& program, const std::vector<double>& tokens, const std::vector<double>& targets,
         int64_t batch) {
  const auto time = static_cast<int64_t>(tokens.size()) / batch;
  session.set_input(program, "tokens", ids(tokens, batch, time));
  if (!targets.empty()) session.set_input(program, "targets", ids(targets, batch, time));
  session.run(program);
}

double scalar(const Session& session, const std::string& program, const char* name) {
  return session.output(program, name).to_doubles().at(0);
}

Values variables(const Session& session) {
  Values all;
  for (const ir::Binding& b : session.plan().bindings) all[b.variable.name] = session.read_variable(b.variable.name);
  return all;
}

/// The number; a failure when it is none, which every comparison with a limit would pass over.
double finite(double number) {
  EXPECT_TRUE(std::isfinite(number));
  return number;
}

/// |a - b| over the tensor against |b| over the tensor.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return finite(size == 0 ? std::sqrt(difference) : std::sqrt(difference / size));
}

std::vector<double> part(const std::vector<double>& all, size_t index, size_t parts) {
  const size_t size = all.size() / parts;
  return {all.begin() + static_cast<std::ptrdiff_t>(index * size), all.begin() + static_cast<std::ptrdiff_t>((index + 1) * size)};
}

// One microbatch of 8 and four of 2 with unequal numbers of ignored targets: the same update.
TEST(Agreement, FourMicrobatchesMakeTheUpdateOfOne) {
  constexpr size_t kTime = 19;
  Variant whole{small({{"batch", "8"}})}, parts{small({{"batch", "2"}})};
  whole.compile.programs = parts.compile.programs = {"train"};
  parts.compile.microbatches = 4;
  const auto one = open(whole), four = open(parts);
  const Values before = variables(*one);
  const std::vector<double> tokens = draw_ids(8 * kTime, 1);
  std::vector<double> targets = draw_ids(8 * kTime, 2);
  for (size_t i = 0; i < targets.size(); ++i) {
    const size_t quarter = i / (2 * kTime);  // some ignored, all, none, most
    if ((quarter == 0 && i % 5 == 0) || quarter == 1 || (quarter == 3 && i % 6 != 0)) targets[i] = -100;
  }
  run(*one, "train", tokens, targets, 8);
  const char* const programs[] = {"first", "next", "next", "last"};
  for (size_t k = 0; k < 4; ++k) run(*four, programs[k], part(tokens, k, 4), part(targets, k, 4), 2);
  EXPECT_EQ(scalar(*one, "train", "count"), scalar(*four, "last", "count"));
  EXPECT_EQ(scalar(*one, "train", "lr"), scalar(*four, "last", "lr"));
  for (const char* name : {"loss", "grad_norm"}) {
    const double a = scalar(*one, "train", name), b = scalar(*four, "last", name);
    EXPECT_LE(std::abs(a - b) / a, 1e-6) << name;
  }
  double worst_param = 0, worst_moment = 0;
  size_t moved = 0, moments = 0;
  for (const auto& [name, value] : variables(*one)) {
    if (name.ends_with(".acc")) continue;
    const std::vector<double> a = value.to_doubles(), b = four->read_variable(name).to_doubles();
    if (name.ends_with(".m") || name.ends_with(".v")) {  // after one step: a share of the gradient, and of its square
      worst_moment = std::max(worst_moment, distance(b, a));
      moments += before.at(name).bytes != value.bytes;
      continue;
    }
    for (size_t i = 0; i < a.size(); ++i) worst_param = std::max(worst_param, finite(std::abs(a[i] - b[i])));
    moved += before.at(name).bytes != value.bytes;
  }
  EXPECT_EQ(moved, 69u + 1);  // every parameter, and the counter of steps
  EXPECT_EQ(moments, 2 * 69u);
  EXPECT_LE(worst_param, 1e-6);
  EXPECT_LE(worst_moment, 1e-6);
  RecordProperty("worst", fmt::format("parameters {:.3g}, moments {:.3g}", worst_param, worst_moment));
}

// Logits a part of the rows at a time: the same update but for the order of sums.
TEST(Agreement, AHeadInPartsMakesTheSameUpdate) {
  for (const char* precision : {"f32", "bf16", "f16"}) {
    Variant plain{small({})};
    plain.compile.programs = {"train"};
    plain.compile.precision = precision;
    Variant parts = plain;
    parts.compile.head_chunks = 2;
    const auto one = open(plain), two = open(parts);
    EXPECT_NE(one->plan().find_program("train")->calls.size(), two->plan().find_program("train")->calls.size());
    for (uint32_t step = 0; step < 3; ++step) {
      for (Session* session : {one.get(), two.get()}) run(*session, "train", draw_ids(38, step), draw_ids(38, step + 9), 2);
      const double a = scalar(*one, "train", "loss"), b = scalar(*two, "train", "loss");
      EXPECT_LE(std::abs(a - b) / a, 1e-6) << precision << " step " << step;
    }
    double worst = 0;
    for (const auto& [name, value] : variables(*one)) {
      worst = std::max(worst, distance(two->read_variable(name).to_doubles(), value.to_doubles()));
    }
    EXPECT_LE(worst, std::string(precision) == "f32" ? 1e-4 : 3e-2) << precision;
    RecordProperty(std::string("worst_") + precision, fmt::format("{:.3g}", worst));
  }
}

// Narrow products of mixed rows made from the rows themselves: the same losses and the same gradients but for the order of sums,
// in 16 bits but for other roundings.
TEST(Agreement, ProductsOfMixedRowsTakenApart) {
  for (const char* precision : {"f32", "bf16"}) {
    Variant apart{small({{"batch", "4"}, {"time", "512"}, {"rank_w", "2"}, {"rank_a", "3"}, {"rank_g", "2"}})};
    apart.compile.programs = {"train", "verify"};
    apart.compile.precision = precision;
    Variant plain = apart;
    plain.compile.pipeline.disable = {"lerp"};
    const auto one = open(plain), two = open(apart);
    const auto products = [](const Session& session) {
      const auto& calls = session.plan().find_program("verify")->calls;
      return std::count_if(calls.begin(), calls.end(), [](const ir::Call& call) { return call.kind == ir::CallKind::gemm; });
    };
    EXPECT_EQ(products(*one) - products(*two), 2 * (9 - 3)) << "three products of each layer, each way";
    const bool f32 = std::string(precision) == "f32";
    for (Session* session : {one.get(), two.get()}) run(*session, "verify", draw_ids(2048, 1), draw_ids(2048, 2), 4);
    double worst = 0;
    for (const ir::Port& port : one->plan().find_program("verify")->outputs) {
      const std::vector<double> a = one->output("verify", port.name).to_doubles(),
                                b = two->output("verify", port.name).to_doubles();
      worst = std::max(worst, distance(b, a));
      EXPECT_LE(distance(b, a), f32 ? 1e-5 : 6e-2) << precision << " " << port.name;
    }
    for (uint32_t step = 0; step < 3; ++step) {
      for (Session* session : {one.get(), two.get()}) run(*session, "train", draw_ids(2048, step), draw_ids(2048, step + 9), 4);
      const double a = scalar(*one, "train", "loss"), b = scalar(*two, "train", "loss");
      EXPECT_LE(std::abs(a - b) / a, f32 ? 1e-5 : 2e-3) << precision << " step " << step;
    }
    RecordProperty(std::string("worst_") + precision, fmt::format("{:.3g}", worst));
  }
}

int calls_of(const Session& session, const std::string& program, ir::CallKind kind) {
  const auto& calls = session.plan().find_program(program)->calls;
  return static_cast<int>(std::count_if(calls.begin(), calls.end(), [&](const ir::Call& call) { return call.kind == kind; }));
}

// Products of one shape made by one call, microbatches and their sums in place included: the same updates and logits, no copy
// more.
TEST(Agreement, ProductsMadeTogether) {
  for (const char* precision : {"f32", "bf16"}) {
    for (const int microbatches : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} {}", precision, microbatches));
      Variant apart{small({{"layers", "3"}})};
      apart.compile.precision = precision;
      apart.compile.microbatches = microbatches;
      Variant together = apart;
      together.together = true;
      const auto one = open(apart), two = open(together);
      const std::vector<std::string> step =
          microbatches == 1 ? std::vector<std::string>{"train"} : std::vector<std::string>{"first", "next", "last"};
      for (const std::string& program : step) {
        // Ten of a layer's products at least are made by the calls of others.
        EXPECT_LE(calls_of(*two, program, ir::CallKind::gemm), calls_of(*one, program, ir::CallKind::gemm) - 3 * 10) << program;
        EXPECT_EQ(calls_of(*two, program, ir::CallKind::copy), calls_of(*one, program, ir::CallKind::copy)) << program;
        EXPECT_EQ(calls_of(*two, program, ir::CallKind::launch), calls_of(*one, program, ir::CallKind::launch)) << program;
      }
      for (uint32_t k = 0; k < 3; ++k) {
        for (Session* session : {one.get(), two.get()}) {
          for (const std::string& program : step) run(*session, program, draw_ids(38, k), draw_ids(38, k + 9), 2);
          run(*session, "eval", draw_ids(38, k), draw_ids(38, k + 9), 2);
          run(*session, "decode", draw_ids(1, k), {}, 1);
        }
      }
      const bool f32 = std::string(precision) == "f32";
      for (const char* program : {"eval", "decode"}) {
        const auto logits = [&](const Session& session) { return session.output(program, "logits").to_doubles(); };
        EXPECT_LE(distance(logits(*two), logits(*one)), f32 ? 1e-4 : 3e-2) << program;
      }
      double worst = 0;
      for (const auto& [name, value] : variables(*one)) {
        worst = std::max(worst, distance(two->read_variable(name).to_doubles(), value.to_doubles()));
      }
      EXPECT_LE(worst, f32 ? 1e-4 : 3e-2);
      RecordProperty(fmt::format("worst_{}_{}", precision, microbatches), fmt::format("{:.3g}", worst));
    }
  }
}

// 200 tokens one at a time through the carried states: the logits of the whole row.
TEST(Agreement, DecodingEqualsTheParallelForm) {
  constexpr size_t kTime = 200;
  Variant variant{small({{"batch", "1"}, {"time", "200"}})};
  variant.compile.programs = {"eval", "decode"};
  const auto session = open(variant);
  const std::vector<double> tokens = draw_ids(kTime, 4);
  run(*session, "eval", tokens, draw_ids(kTime, 5), 1);
  const std::vector<double> want = session->output("eval", "logits").to_doubles();
  double size = 0, worst = 0;
  for (size_t t = 0; t < kTime; ++t) {
    run(*session, "decode", {tokens[t]}, {}, 1);
    const std::vector<double> have = session->output("decode", "logits").to_doubles();
    for (size_t i = 0; i < kVocab; ++i) {
      size = std::max(size, std::abs(want[t * kVocab + i]));
      worst = std::max(worst, finite(std::abs(have[i] - want[t * kVocab + i])));
    }
  }
  EXPECT_GT(size, 0.5);  // logits of ordinary size, not a model that says nothing
  EXPECT_LE(worst, 1e-5);
  RecordProperty("worst", fmt::format("{:.3g} of {:.3g}", worst, size));
}

/// Decays near 1: what a state holds stays.
void slow_decay(Session& session) {
  for (const ir::Binding& b : session.plan().bindings) {
    if (!b.variable.name.ends_with("att.w0")) continue;
    session.write_variable(
        b.variable.name,
        HostTensor::from_doubles(b.variable.type, std::vector<double>(static_cast<size_t>(b.variable.type.elements()), -9.0)));
  }
  session.run("prepare");
}

/// Tokens from .. from + count of each of two rows.
std::vector<double> window(const std::vector<double>& all, size_t from, size_t count) {
  std::vector<double> cut;
  for (size_t row = 0; row < 2; ++row) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * all.size() / 2 + from);
    cut.insert(cut.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  return cut;
}

// Weights that stay as they are: two windows one after the other, states carried, lose what one of twice the length does.
TEST(Agreement, CarriedWindowsAreOneLongWindow) {
  constexpr size_t kTime = 19;
  const std::vector<double> tokens = draw_ids(4 * kTime, 7), targets = draw_ids(4 * kTime, 8);
  for (const auto& [precision, limit] : {std::pair("f32", 1e-6), std::pair("bf16", 6e-5)}) {
    Variant longer{small({{"time", "38"}, {"lr", "0"}, {"lr_final", "0"}})};
    longer.compile.precision = precision;
    longer.compile.programs = {"train"};
    Variant carried = longer;
    carried.overrides = small({{"lr", "0"}, {"lr_final", "0"}});
    Variant apart = carried, parts = carried;
    carried.compile.carry_state = parts.compile.carry_state = true;
    parts.compile.microbatches = 2;
    const auto lost = [&](Session& session, const char* one, const char* two) {
      slow_decay(session);
      run(session, one, window(tokens, 0, kTime), window(targets, 0, kTime), 2);
      const double first = scalar(session, one, "loss");
      run(session, two, window(tokens, kTime, kTime), window(targets, kTime, kTime), 2);
      return std::string(two) == "last" ? scalar(session, two, "loss") : first + scalar(session, two, "loss");
    };
    const auto whole = open(longer);
    slow_decay(*whole);
    run(*whole, "train", tokens, targets, 2);
    const double want = scalar(*whole, "train", "loss");
    const auto off = [&](double loss) { return finite(std::abs(loss - want) / want); };
    const double error = off(lost(*open(carried), "train", "train"));
    EXPECT_LE(error, limit) << precision;
    EXPECT_LE(off(lost(*open(parts), "first", "last")), limit) << precision << " in microbatches";
    EXPECT_GT(off(lost(*open(apart), "train", "train")), 2 * limit) << precision << ": what was before matters";
    RecordProperty(std::string("error_") + precision, fmt::format("{:.3g}", error));
  }
}

// A window that went wrong leaves zeros where it left no numbers; the next one is as good as any.
TEST(Agreement, StatesThatAreNoNumbersAreNotCarried) {
  Variant variant{small({})};
  variant.compile.programs = {"train"};
  variant.compile.carry_state = true;
  const auto session = open(variant);
  size_t states = 0;
  for (const auto& [name, value] : variables(*session)) {
    if (!name.starts_with("train.carry.")) continue;
    EXPECT_TRUE(session->plan().find_binding(name)->variable.saved) << name;
    const std::vector<double> none(static_cast<size_t>(value.type.elements()), std::nan(""));
    session->write_variable(name, HostTensor::from_doubles(value.type, none));
    ++states;
  }
  EXPECT_EQ(states, 2 * 3u);  // of each layer: two shifts and one recurrence
  const Values before = variables(*session);
  run(*session, "train", draw_ids(38, 1), draw_ids(38, 2), 2);
  EXPECT_FALSE(std::isfinite(scalar(*session, "train", "loss")));
  for (const auto& [name, value] : variables(*session)) {
    if (!name.starts_with("train.carry.")) {
      EXPECT_EQ(value.bytes, before.at(name).bytes) << name;
    }
  }
  run(*session, "train", draw_ids(38, 3), draw_ids(38, 4), 2);
  EXPECT_TRUE(std::isfinite(scalar(*session, "train", "loss")));
}

// Two documents in a row, the second alone in the loss: whatever the last word of the first is, the second's logits and every
// gradient keep their bits.
TEST(Agreement, NothingLeaksIntoTheNextDocument) {
  constexpr size_t kTime = 41, kEnd = 17;  // position of the token that ends the first document, in both rows
  std::vector<double> tokens = draw_ids(2 * kTime, 5), targets = draw_ids(2 * kTime, 6);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t t = 0; t < kTime; ++t) {
      if (tokens[row * kTime + t] == 0) tokens[row * kTime + t] = 1;
      if (t <= kEnd) targets[row * kTime + t] = -100;
    }
    tokens[row * kTime + kEnd] = 0;
  }
  std::vector<double> other = tokens;
  for (size_t row = 0; row < 2; ++row) other[row * kTime + kEnd - 1] += tokens[row * kTime + kEnd - 1] < 50 ? 13 : -13;
  for (const char* precision : {"f32", "bf16"}) {
    const auto results = [&](bool packed, const std::vector<double>& ids) {
      Variant variant{small({{"time", "41"}})};
      if (packed) variant.overrides.emplace_back("eod", "0");
      variant.compile.precision = precision;
      variant.compile.programs = {"verify"};
      const auto session = open(variant);
      slow_decay(*session);
      run(*session, "verify", ids, targets, 2);
      Values all;
      for (const ir::Port& port : session->plan().find_program("verify")->outputs) {
        all[port.name] = session->output("verify", port.name);
      }
      HostTensor& logits = all.at("logits");
      const std::vector<double> numbers = logits.to_doubles();
      std::vector<double> second;
      for (size_t row = 0; row < 2; ++row) {
        second.insert(second.end(), numbers.begin() + static_cast<std::ptrdiff_t>((row * kTime + kEnd + 1) * kVocab),
                      numbers.begin() + static_cast<std::ptrdiff_t>((row + 1) * kTime * kVocab));
      }
      logits = HostTensor::from_doubles({ir::DType::f32, {static_cast<int64_t>(second.size())}}, second);
      return all;
    };
    const Values one = results(true, tokens), two = results(true, other), open_one = results(false, tokens),
                 open_two = results(false, other);
    EXPECT_EQ(one.size(), 69u + 3);
    for (const auto& [name, value] : one) {
      EXPECT_EQ(value.bytes, two.at(name).bytes) << precision << " " << name;
      if (name == "count") continue;
      EXPECT_NE(open_one.at(name).bytes, open_two.at(name).bytes) << "without document ends " << name;
    }
  }
}

// Documents cut the same wherever they lie: in one window, across two carried ones, token by token.
TEST(Agreement, DocumentsAreCutAlikeInWindowsAndDecoding) {
  constexpr size_t kTime = 19;
  std::vector<double> tokens = draw_ids(4 * kTime, 7);
  const std::vector<double> targets = draw_ids(4 * kTime, 8);
  for (const size_t end : {4u, 18u, 30u, 38u + 18, 38u + 37}) tokens[end] = 3;  // 18 and 38 + 18: where the first window ends
  Variant longer{small({{"time", "38"}, {"lr", "0"}, {"lr_final", "0"}, {"eod", "3"}})};
  longer.compile.programs = {"train", "eval", "decode"};
  Variant carried = longer, unaware = longer;
  carried.overrides = small({{"lr", "0"}, {"lr_final", "0"}, {"eod", "3"}});
  carried.compile.carry_state = true;
  unaware.overrides.pop_back();
  const auto whole = open(longer), windows = open(carried), uncut = open(unaware);
  for (Session* session : {whole.get(), windows.get(), uncut.get()}) slow_decay(*session);
  run(*whole, "train", tokens, targets, 2);
  run(*uncut, "train", tokens, targets, 2);
  const double want = scalar(*whole, "train", "loss");
  double got = 0;
  for (const size_t from : {size_t{0}, kTime}) {
    run(*windows, "train", window(tokens, from, kTime), window(targets, from, kTime), 2);
    got += scalar(*windows, "train", "loss");
  }
  EXPECT_LE(std::abs(got - want) / want, 1e-6);
  EXPECT_GT(std::abs(scalar(*uncut, "train", "loss") - want) / want, 1e-4);
  run(*whole, "eval", tokens, targets, 2);
  const std::vector<double> logits = whole->output("eval", "logits").to_doubles();
  double worst = 0;
  for (size_t t = 0; t < 2 * kTime; ++t) {
    run(*whole, "decode", {tokens[t]}, {}, 1);
    const std::vector<double> have = whole->output("decode", "logits").to_doubles();
    for (size_t i = 0; i < kVocab; ++i) worst = std::max(worst, finite(std::abs(have[i] - logits[t * kVocab + i])));
  }
  EXPECT_LE(worst, 1e-5);
}

// f16: gradients that overflow change nothing but the scale, which halves; enough good steps double it.
TEST(Agreement, AnOverflowInF16LeavesAllButTheScale) {
  for (const int microbatches : {1, 2}) {
    Variant variant{small({})};
    variant.compile.precision = "f16";
    variant.compile.programs = {"train"};
    variant.compile.microbatches = microbatches;
    const auto session = open(variant);
    const char* const last = microbatches == 1 ? "train" : "last";
    const auto step = [&](uint32_t seed) {
      if (microbatches == 2) run(*session, "first", draw_ids(38, seed + 50), draw_ids(38, seed + 60), 2);
      run(*session, last, draw_ids(38, seed), draw_ids(38, seed + 10), 2);
    };
    const auto set = [&](const char* name, ir::DType dtype, double value) {
      session->write_variable(name, HostTensor::from_doubles({dtype, {}}, {value}));
    };
    const auto state = [&](const char* name) { return session->read_variable(name).to_doubles().at(0); };
    step(1);
    EXPECT_TRUE(std::isfinite(scalar(*session, last, "grad_norm")));
    EXPECT_EQ(state("step"), 1);
    EXPECT_EQ(state("loss_scale"), 1024);
    EXPECT_EQ(state("loss_scale.good"), 1);
    set("loss_scale", ir::DType::f32, 8388608);
    const Values before = variables(*session);
    step(2);
    EXPECT_TRUE(std::isfinite(scalar(*session, last, "loss")));
    EXPECT_FALSE(std::isfinite(scalar(*session, last, "grad_norm")));
    EXPECT_EQ(scalar(*session, last, "loss_scale"), 4194304);
    for (const auto& [name, value] : variables(*session)) {
      if (name == "loss_scale" || name == "loss_scale.good" || name.ends_with(".acc")) continue;
      EXPECT_EQ(value.bytes, before.at(name).bytes) << name;
    }
    EXPECT_EQ(state("loss_scale"), 4194304);
    EXPECT_EQ(state("loss_scale.good"), 0);
    set("loss_scale", ir::DType::f32, 256);
    set("loss_scale.good", ir::DType::i32, 1999);
    step(3);
    EXPECT_EQ(state("step"), 2);
    EXPECT_EQ(state("loss_scale"), 512);
    EXPECT_EQ(state("loss_scale.good"), 0);
  }
}

// The scale is a power of two and divided out: where nothing overflows or vanishes it changes what is rounded little.
TEST(Agreement, F16MakesTheUpdateOfF32) {
  Variant wide{small({})}, narrow{small({})};
  wide.compile.programs = narrow.compile.programs = {"train"};
  narrow.compile.precision = "f16";
  const auto one = open(wide), two = open(narrow);
  for (Session* session : {one.get(), two.get()}) run(*session, "train", draw_ids(38, 1), draw_ids(38, 2), 2);
  for (const char* name : {"loss", "grad_norm"}) {
    const double a = scalar(*one, "train", name), b = scalar(*two, "train", name);
    EXPECT_LE(finite(std::abs(a - b) / a), 5e-3) << name;
  }
  double worst = 0;
  for (const auto& [name, value] : variables(*one)) {  // after one step: a share of the gradient
    if (name.ends_with(".m")) worst = std::max(worst, distance(two->read_variable(name).to_doubles(), value.to_doubles()));
  }
  EXPECT_LE(worst, 2e-2);
  RecordProperty("worst", fmt::format("{:.3g}", worst));
}

void expect_same_bits(Session& plain, Session& other, const std::string& program, const std::string& what) {
  for (const ir::Port& port : plain.plan().find_program(program)->outputs) {
    EXPECT_EQ(plain.output(program, port.name).bytes, other.output(program, port.name).bytes)
        << program << "." << port.name << " " << what;
  }
}

void expect_same_variables(Session& plain, Session& other, const std::string& what) {
  for (const auto& [name, value] : variables(plain)) {
    EXPECT_EQ(value.bytes, other.read_variable(name).bytes) << name << " " << what;
  }
}

/// Three updates; after each an evaluation and the gradients, where the plan has them.
void expect_same_run(Session& plain, Session& other, const std::string& what) {
  const ir::Port& port = plain.plan().find_program("train")->inputs[0];
  const ir::Type type = plain.plan().buffers[port.buffer].type;
  const auto count = static_cast<size_t>(type.elements());
  for (uint32_t step = 0; step < 3; ++step) {
    const std::vector<double> tokens = draw_ids(count, 20 + step), targets = draw_ids(count, 40 + step);
    for (const char* program : {"train", "eval", "verify"}) {
      if (plain.plan().find_program(program) == nullptr) continue;
      run(plain, program, tokens, targets, type.shape[0]);
      run(other, program, tokens, targets, type.shape[0]);
      expect_same_bits(plain, other, program, what);
    }
  }
  expect_same_variables(plain, other, what);
}

/// Every value of the model that has a name and may be an output.
std::vector<std::string> every_name(const Variant& variant) {
  models::LoadOptions load;
  load.overrides = variant.overrides;
  const models::LoadedModel model = models::load_model(tests::source_file("models/rwkv7.yaml"), load);
  const ir::Graph& graph = model.module.graph("loss");
  std::vector<std::string> names;
  for (const ir::Op& op : graph.ops()) {
    if (op.name() == "variable" || op.name() == "input" || op.name() == "constant") continue;
    for (const ir::ValueId id : op.results) {
      const std::string& name = graph.value(id).name;
      if (!name.empty() && name != "logits" && name != "loss" && name != "count") names.push_back(name);
    }
  }
  return names;
}

// An output added to look at something changes what kernels store (as does what the backward makes again); every other value
// keeps its bits. A product that is added to something is the sharp one: joined inside a kernel both would round once, stored
// twice.
TEST(Agreement, DebugOutputsAndRecomputeChangeNoBit) {
  for (const char* precision : {"f32", "bf16"}) {
    // Large enough that sums over rows are made of several tiles.
    Variant variant{small({{"batch", "4"}, {"time", "128"}, {"width", "64"}, {"head", "32"}, {"ffn", "256"}})};
    variant.compile.precision = precision;
    variant.compile.programs = {"train", "eval", "verify"};
    const std::vector<std::string> all = every_name(variant);
    EXPECT_GT(all.size(), 150u);
    const auto plain_with = [&](const std::string& what, const std::function<void(Variant&)>& change) {
      Variant other = variant;
      change(other);
      const auto plain = open(variant), changed = open(other);
      expect_same_run(*plain, *changed, precision + (" " + what));
    };
    plain_with("every output", [&](Variant& v) { v.outputs = all; });
    for (const char* name : {"blocks.0.att.xr.mul", "blocks.1.att.k.add", "blocks.1.h.layer_norm.mean", "blocks.0.ffn.out.relu"})
      plain_with(name, [&](Variant& v) { v.outputs = {name}; });
    // In 16 bits what is kept for the backward decides what is stored, and so rounded.
    if (variant.compile.precision == "f32") plain_with("nothing made again", [](Variant& v) { v.compile.recompute = "none"; });
  }
}

TEST(Agreement, OneThreadAndTwoAtFourThousandTokens) {
  for (const char* rank : {"32", "64"}) {
    Variant variant{small({{"batch", "8"},
                           {"time", "512"},
                           {"width", "64"},
                           {"head", "32"},
                           {"ffn", "256"},
                           {"rank_w", rank},
                           {"rank_a", rank},
                           {"rank_v", rank},
                           {"rank_g", rank}})};
    variant.compile.programs = {"train", "eval"};
    const auto two = open(variant);
    variant.threads = 1;
    const auto one = open(variant);
    expect_same_run(*one, *two, std::string("rank ") + rank);
  }
}

}  // namespace
}  // namespace ingot::runtime
