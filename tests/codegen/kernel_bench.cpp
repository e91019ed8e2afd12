#include "tests/codegen/kernel_bench.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/homes.h"
#include "codegen/sums.h"
#include "codegen/text/vocabulary.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "tests/common/places.h"

namespace ingot::testing {

using ir::DType;

Image::Image(const std::string& bytes) {
  static int serial = 0;
  const std::string path =
      fmt::format("{}/ingot-test-{}-{}.so", std::filesystem::temp_directory_path().string(), getpid(), serial++);
  std::ofstream(path, std::ios::binary) << bytes;
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::filesystem::remove(path);
  if (handle_ == nullptr) throw std::runtime_error(dlerror());
}

Image::~Image() { dlclose(handle_); }

void* Image::address(const std::string& symbol) const {
  void* address = dlsym(handle_, symbol.c_str());
  if (address == nullptr) throw std::runtime_error(dlerror());
  return address;
}

Guarded::Guarded(int64_t bytes, unsigned char fill) : storage_(static_cast<size_t>(bytes) + 2 * kGuard, 0xa5) {
  std::fill(storage_.begin() + kGuard, storage_.end() - kGuard, fill);
}

bool Guarded::intact() const {
  const auto is_canary = [](unsigned char c) { return c == 0xa5; };
  return std::all_of(storage_.begin(), storage_.begin() + kGuard, is_canary) &&
         std::all_of(storage_.end() - kGuard, storage_.end(), is_canary);
}

void store_doubles(const ir::Type& type, const std::vector<double>& values, void* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    switch (type.dtype) {
      case DType::f32:
        static_cast<float*>(to)[i] = static_cast<float>(x);
        break;
      case DType::bf16:
        static_cast<uint16_t*>(to)[i] = ig_to_bf16(static_cast<float>(x));
        break;
      case DType::f16:
        static_cast<uint16_t*>(to)[i] = ig_to_f16(static_cast<float>(x));
        break;
      case DType::i32:
        static_cast<int32_t*>(to)[i] = static_cast<int32_t>(x);
        break;
      case DType::i64:
        static_cast<int64_t*>(to)[i] = static_cast<int64_t>(x);
        break;
      case DType::boolean:
        static_cast<uint8_t*>(to)[i] = x != 0;
        break;
    }
  }
}

std::vector<double> load_doubles(const ir::Type& type, const void* from) {
  std::vector<double> out(static_cast<size_t>(type.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    switch (type.dtype) {
      case DType::f32:
        out[i] = static_cast<double>(static_cast<const float*>(from)[i]);
        break;
      case DType::bf16:
        out[i] = static_cast<double>(ig_from_bf16(static_cast<const uint16_t*>(from)[i]));
        break;
      case DType::f16:
        out[i] = static_cast<double>(ig_from_f16(static_cast<const uint16_t*>(from)[i]));
        break;
      case DType::i32:
        out[i] = static_cast<const int32_t*>(from)[i];
        break;
      case DType::i64:
        out[i] = static_cast<double>(static_cast<const int64_t*>(from)[i]);
        break;
      case DType::boolean:
        out[i] = static_cast<const uint8_t*>(from)[i];
        break;
    }
  }
  return out;
}

codegen::CpuTargetOptions test_options() {
  codegen::CpuTargetOptions options;
  options.cache.directory = tests::build_file("kernel-cache");
  return options;
}

uint64_t Random::bits() {
  state_ += 0x9e3779b97f4a7c15ull;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

namespace {

/// Bare op lines stand in a graph at train level, where gradient ops are legal too.
std::string in_graph(const std::string& text) {
  return text.find("graph @") != std::string::npos ? text : "graph @main at train {\n" + text + "\n}\n";
}

/// Takes the "range" lines out of the text.
std::map<std::string, std::pair<int64_t, int64_t>> take_ranges(std::string& text) {
  std::map<std::string, std::pair<int64_t, int64_t>> ranges;
  std::istringstream lines(text);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    char name[64];
    long lo = 0, hi = 0;
    if (std::sscanf(line.c_str(), " range %63[^ ] %ld..%ld", name, &lo, &hi) == 3)
      ranges[name] = {lo, hi};
    else
      rest += line + "\n";
  }
  text = rest;
  return ranges;
}

/// Results on operands, as many as may stand so at once: declared aliases and those of regions. An operand named twice is left
/// out.
std::vector<ir::Alias> most_in_place(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& dead) {
  std::vector<ir::Alias> out;
  if (op.def->aliases.empty() && !op.region) return out;
  for (const ir::Alias& alias : codegen::allowed_aliases(graph, op)) {
    const auto named = std::count(op.operands.begin(), op.operands.end(), op.operands[static_cast<size_t>(alias.operand)]);
    const bool taken = std::any_of(out.begin(), out.end(), [&](const ir::Alias& other) {
      return other.result == alias.result || other.operand == alias.operand;
    });
    if (!taken && named == 1 && !dead[static_cast<size_t>(alias.result)]) out.push_back(alias);
  }
  return out;
}

}  // namespace

bool lowered_by_target(const ir::OpDef& def) {
  const auto is = [&]<class... L>(const L*...) { return (std::holds_alternative<L>(def.lowering) || ...); };
  return is(static_cast<const ir::ScalarLowering*>(nullptr), static_cast<const ir::ReduceLowering*>(nullptr),
            static_cast<const ir::ScanLowering*>(nullptr), static_cast<const ir::ViewLowering*>(nullptr),
            static_cast<const ir::PackLowering*>(nullptr), static_cast<const ir::GenerateLowering*>(nullptr),
            static_cast<const ir::GatherLowering*>(nullptr), static_cast<const ir::PutLowering*>(nullptr),
            static_cast<const ir::KernelLowering*>(nullptr), static_cast<const ir::RegionLowering*>(nullptr));
}

namespace {

class CpuMachine final : public BenchMachine {
 public:
  explicit CpuMachine(std::unique_ptr<codegen::Target> target) : target_(std::move(target)) {}

  const codegen::Target& target() const override { return *target_; }

  void build(const std::vector<codegen::KernelText>& kernels) override {
    image_ = std::make_unique<Image>(target_->build(kernels).files.at("image.so"));
  }

  void run(const std::string& symbol, const codegen::Launch& launch, const std::vector<Guarded*>& guarded) override {
    const std::vector<void*> args = addresses(guarded);
    std::vector<int64_t> order(static_cast<size_t>(launch.tasks));
    for (size_t t = 0; t < order.size(); ++t) order[t] = static_cast<int64_t>(t);
    Random random(static_cast<uint64_t>(launch.tasks));
    for (size_t t = order.size(); t > 1; --t) std::swap(order[t - 1], order[random.bits() % t]);
    const Image::Function function = image_->function(symbol);
    for (int64_t task : order) function(args.data(), launch.sizes.data(), task);
  }

 private:
  std::unique_ptr<codegen::Target> target_;
  std::unique_ptr<Image> image_;
};

}  // namespace

std::vector<void*> addresses(const std::vector<Guarded*>& args) {
  std::vector<void*> out;
  for (Guarded* arg : args) out.push_back(arg == nullptr ? nullptr : arg->data());
  return out;
}

std::unique_ptr<BenchMachine> cpu_machine(codegen::CpuTargetOptions options) {
  return cpu_machine(codegen::make_cpu_target(std::move(options)));
}

std::unique_ptr<BenchMachine> cpu_machine(std::unique_ptr<codegen::Target> target) {
  return std::make_unique<CpuMachine>(std::move(target));
}

void KernelBench::add(const std::string& text, double lo, double hi, std::vector<bool> dead, uint64_t seed) {
  std::string stripped = text;
  const auto ranges = take_ranges(stripped);
  const ir::Graph graph = ir::parse_graph(in_graph(stripped));
  std::map<std::string, ir::Tensor> inputs;
  Random random(seed);
  for (const ir::Op& op : graph.ops()) {
    if (op.name() != "input") continue;
    const ir::Value& value = graph.value(op.results[0]);
    ir::Tensor tensor(value.type);
    const auto range = ranges.find(value.name);
    for (double& x : tensor.data) {
      if (value.type.dtype == DType::boolean)
        x = static_cast<double>(random.integer(0, 1));
      else if (is_float(value.type.dtype))
        x = ir::round_to(value.type.dtype, random.uniform(lo, hi));
      else
        x = static_cast<double>(range == ranges.end() ? random.integer(0, 2)
                                                      : random.integer(range->second.first, range->second.second));
    }
    inputs.emplace(value.name, std::move(tensor));
  }
  add(stripped, inputs, std::move(dead));
}

void KernelBench::add(const std::string& text, const std::map<std::string, ir::Tensor>& inputs, std::vector<bool> dead) {
  auto graph = std::make_shared<ir::Graph>(ir::parse_graph(in_graph(text)));
  const ir::InterpretResult result = ir::interpret(*graph, inputs, {}, {true, true}, true);
  for (ir::OpId id = 0; id < graph->ops().size(); ++id) {
    const ir::Op& op = graph->op(id);
    if (!lowered_by_target(*op.def)) continue;
    Case test;
    test.graph = graph;
    test.op = id;
    test.dead = id + 1 == graph->ops().size() && !dead.empty() ? dead : std::vector<bool>(op.results.size(), false);
    test.values = result.values;
    test.text = text;
    EXPECT_EQ(machine_->target().refuses(*graph, op), "") << text;
    add(test);
    test.over = most_in_place(*graph, op, test.dead);
    if (!test.over.empty()) add(std::move(test));
  }
}

void KernelBench::add(Case test) {
  const ir::Op& op = test.graph->op(test.op);
  test.partials = partials_;
  const codegen::OpSite site{*test.graph, op, test.dead, op.region ? test.over : std::vector<ir::Alias>{}, partials_of(test)};
  test.launches = codegen::with_sums(machine_->target().lower(site), machine_->target());
  for (const codegen::Launch& launch : test.launches.launches) test.symbols.push_back(symbol(launch));
  in_place_ += !test.over.empty();
  added_ += static_cast<int>(test.launches.added.size());
  cases_.push_back(std::move(test));
}

std::string KernelBench::symbol(const codegen::Launch& launch) {
  const auto [at, fresh] = symbol_of_.try_emplace(launch.text, fmt::format("{}_{}", launch.stem, symbol_of_.size()));
  if (fresh) {
    std::string text = launch.text;
    for (size_t hit; (hit = text.find("KERNEL")) != std::string::npos;) text.replace(hit, 6, at->second);
    kernels_.push_back({at->second, text});
  }
  return at->second;
}

std::map<int, int64_t> KernelBench::partials_of(const Case& test) const {
  std::map<int, int64_t> out;
  const ir::Op& op = test.graph->op(test.op);
  for (size_t i = 0; test.partials > 0 && op.region && i < op.operands.size(); ++i) {
    if (op.operands[i] == ir::kNone) continue;
    const ir::Type& type = test.graph->type(op.operands[i]);
    const bool once = std::count(op.operands.begin(), op.operands.end(), op.operands[i]) == 1;
    const auto stands_there = [&](const ir::Alias& alias) { return alias.operand == static_cast<int>(i); };
    if (once && type.dtype == DType::f32 && type.elements() == 1 && std::none_of(test.over.begin(), test.over.end(), stands_there))
      out[static_cast<int>(i)] = test.partials;
  }
  return out;
}

std::shared_ptr<Guarded> KernelBench::operand(const Case& test, size_t index) const {
  const ir::ValueId id = test.graph->op(test.op).operands[index];
  if (id == ir::kNone) return nullptr;
  ir::Type type = test.graph->type(id);
  std::vector<double> data = test.values.at(test.graph->value(id).name).data;
  const std::vector<int>& added = test.launches.added;
  if (std::find(added.begin(), added.end(), static_cast<int>(index)) != added.end()) {
    type.shape = {test.partials};
    data.assign(static_cast<size_t>(test.partials), data[0] / static_cast<double>(test.partials));
  }
  auto out = std::make_shared<Guarded>(type.bytes(), 0xff);
  store_doubles(type, data, out->data());
  return out;
}

void KernelBench::run() {
  machine_->build(kernels_);
  for (Case& test : cases_) run(test);
}

void KernelBench::run(Case& test) {
  const ir::Op& op = test.graph->op(test.op);
  std::vector<std::shared_ptr<Guarded>> operands, results, workspaces;
  for (size_t i = 0; i < op.operands.size(); ++i) operands.push_back(operand(test, i));
  for (size_t r = 0; r < op.results.size(); ++r) {
    results.push_back(test.dead[r] ? nullptr : std::make_shared<Guarded>(test.graph->type(op.results[r]).bytes(), 0xff));
  }
  for (const ir::Alias& alias : test.over)
    results[static_cast<size_t>(alias.result)] = operands[static_cast<size_t>(alias.operand)];
  for (int64_t bytes : test.launches.workspace_bytes) workspaces.push_back(std::make_shared<Guarded>(bytes, 0xff));

  for (size_t k = 0; k < test.launches.launches.size(); ++k) {
    const codegen::Launch& launch = test.launches.launches[k];
    std::vector<Guarded*> args;
    for (const codegen::LaunchArg& arg : launch.args) {
      const auto& from = arg.kind == codegen::LaunchArg::Kind::operand  ? operands
                         : arg.kind == codegen::LaunchArg::Kind::result ? results
                                                                        : workspaces;
      const auto& buffer = from.at(static_cast<size_t>(arg.index));
      args.push_back(buffer.get());
    }
    ASSERT_GE(launch.tasks, 1);
    machine_->run(test.symbols[k], launch, args);
  }
  for (const auto* buffers : {&operands, &results, &workspaces}) {
    for (const auto& buffer : *buffers)
      EXPECT_TRUE(buffer == nullptr || buffer->intact()) << "written out of bounds by:\n" << test.text;
  }
  for (size_t r = 0; r < results.size(); ++r) {
    if (results[r] == nullptr) continue;
    results_.push_back(load_doubles(test.graph->type(op.results[r]), results[r]->data()));
    compare(test, r, results_.back());
  }
}

void KernelBench::compare(const Case& test, size_t result, const std::vector<double>& got) {
  const ir::Value& value = test.graph->value(test.graph->op(test.op).results[result]);
  const std::vector<double>& want = test.values.at(value.name).data;
  double largest = 0;
  const auto look_at = [&](const std::vector<double>& data) {
    for (double x : data) largest = std::isfinite(x) ? std::max(largest, std::fabs(x)) : largest;
  };
  look_at(want);
  for (ir::ValueId operand : test.graph->op(test.op).operands) {
    if (sums_cancel_ && operand != ir::kNone) look_at(test.values.at(test.graph->value(operand).name).data);
  }
  const bool exact = !is_float(value.type.dtype);
  const double unit = value.type.dtype == DType::bf16 ? 0x1p-8 : value.type.dtype == DType::f16 ? 0x1p-11 : 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double allowed = exact ? 0 : 2 * unit * std::fabs(want[i]) + tolerance_ * (std::fabs(want[i]) + 0.25 * largest) + 1e-38;
    const bool both_nan = std::isnan(want[i]) && (exact ? got[i] == 0 : std::isnan(got[i]));  // integers have no NaN
    const bool good = both_nan || got[i] == want[i] || std::fabs(got[i] - want[i]) <= allowed;
    if (good) continue;
    ADD_FAILURE() << fmt::format("%{}[{}] is {:.9g}, but the interpreter says {:.9g}, in:\n{}", value.name, i, got[i], want[i],
                                 test.text);
    return;
  }
}

}  // namespace ingot::testing
