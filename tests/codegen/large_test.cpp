// Tensors of more than 2^31 elements. On the host they are address space, of which only what is touched costs memory: the tasks
// that hold the first and the last elements are run, and everything around the tensors is closed to reading and writing, so an
// index that does not fit its type ends the test. On a card all of it is run, canaries stand at both ends, and the elements
// around number 2^31 are looked at too.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "codegen/cpu/process.h"
#include "codegen/cuda/build.h"
#include "codegen/sums.h"
#include "ir/base/error.h"
#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "runtime/cuda/device.h"
#include "tests/codegen/card_kernels.h"
#include "tests/codegen/emulated_machine.h"
#include "tests/codegen/kernel_bench.h"
#include "tests/common/places.h"

namespace ingot {
namespace {

namespace cuda = runtime::cuda;
using codegen::Launch;

constexpr int64_t kTwo31 = int64_t{1} << 31;

/// The machine is too small for the tensors: the one thing that lets a test be left out. Every other failure is the test's.
class NoRoom : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bytes of one argument, zero at first.
class Bytes {
 public:
  virtual ~Bytes() = default;
  virtual void* address() = 0;
  virtual void write(int64_t at, const void* from, int64_t bytes) = 0;
  virtual void read(int64_t at, void* to, int64_t bytes) = 0;
  virtual bool intact() = 0;
};

/// Which tasks of a launch are run, and of how many.
struct Tasks {
  int64_t of = 0;
  std::vector<int64_t> run;
};

class LargeMachine {
 public:
  virtual ~LargeMachine() = default;
  virtual const codegen::Target& target() const = 0;
  virtual void build(const std::vector<codegen::KernelText>& kernels) = 0;
  virtual std::unique_ptr<Bytes> bytes(int64_t bytes) = 0;
  virtual void run(const std::string& symbol, const Launch& launch, const std::vector<void*>& args, const Tasks& tasks) = 0;
  /// Is everything run, whatever the tasks say?
  virtual bool whole() const { return false; }
};

// ---------------------------------------------------------------- on the host

class SparseBytes final : public Bytes {
 public:
  explicit SparseBytes(int64_t bytes) : bytes_(static_cast<size_t>(bytes + kPage - 1) / kPage * kPage) {
    start_ = static_cast<char*>(mmap(nullptr, bytes_ + 2 * kClosed, PROT_NONE, kFlags, -1, 0));
    if (start_ == MAP_FAILED || mprotect(start_ + kClosed, bytes_, PROT_READ | PROT_WRITE) != 0)
      throw NoRoom("no address space for a tensor of this size");
  }
  ~SparseBytes() override { munmap(start_, bytes_ + 2 * kClosed); }
  void* address() override { return start_ + kClosed; }
  void write(int64_t at, const void* from, int64_t bytes) override {
    std::memcpy(start_ + kClosed + at, from, static_cast<size_t>(bytes));
  }
  void read(int64_t at, void* to, int64_t bytes) override { std::memcpy(to, start_ + kClosed + at, static_cast<size_t>(bytes)); }
  bool intact() override { return true; }  // the first access outside would have ended the test

 private:
  static constexpr size_t kPage = 4096, kClosed = size_t{20} << 30;  // what an index of 32 bits can be wrong by
  static constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  size_t bytes_;
  char* start_;
};

class HostMachine final : public LargeMachine {
 public:
  const codegen::Target& target() const override { return *target_; }
  void build(const std::vector<codegen::KernelText>& kernels) override {
    image_ = std::make_unique<testing::Image>(target_->build(kernels).files.at("image.so"));
  }
  std::unique_ptr<Bytes> bytes(int64_t bytes) override { return std::make_unique<SparseBytes>(bytes); }
  void run(const std::string& symbol, const Launch& launch, const std::vector<void*>& args, const Tasks& tasks) override {
    for (const int64_t task : tasks.run) image_->function(symbol)(args.data(), launch.sizes.data(), task);
  }

 private:
  std::unique_ptr<codegen::Target> target_ = codegen::make_cpu_target(testing::test_options());
  std::unique_ptr<testing::Image> image_;
};

/// The CUDA texts on the CPU, block by block.
class EmulatedMachine final : public LargeMachine {
 public:
  const codegen::Target& target() const override { return *target_; }

  void build(const std::vector<codegen::KernelText>& kernels) override {
    const codegen::cpu::PrivateDirectory work("");
    std::filesystem::copy_file(tests::source_file("tests/codegen/emulated_cuda.h"), work.path() / "emulated_cuda.h");
    for (const auto& file : codegen::cuda::text_files()) std::ofstream(work.path() / file.name) << file.content;
    std::ofstream text(work.path() / "kernels.cpp");
    text << "#include \"emulated_cuda.h\"\n#define IG_RESIDENT(blocks) blocks\n#include \"vocabulary.h\"\n" << kRunSome;
    for (const auto& kernel : kernels) {
      text
          << kernel.text
          << fmt::format(
                 "extern \"C\" void run_{0}(void* const* args, const int64_t* sizes, int64_t blocks, int threads, const int64_t* "
                 "chosen, int64_t count) {{\n  run_some({0}, args, sizes, blocks, threads, chosen, count);\n}}\n",
                 kernel.name);
    }
    text.close();
    const auto made =
        codegen::cpu::run_process({"c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-fwrapv", "-fno-strict-aliasing",
                                   "-fno-math-errno", "-w", "-U_FORTIFY_SOURCE", "kernels.cpp", "-o", "image.so"},
                                  work.path());
    if (made.status != 0) throw std::runtime_error("emulated kernels do not compile:\n" + made.output);
    std::ifstream file(work.path() / "image.so", std::ios::binary);
    image_ =
        std::make_unique<testing::Image>(std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
  }

  std::unique_ptr<Bytes> bytes(int64_t bytes) override { return std::make_unique<SparseBytes>(bytes); }

  void run(const std::string& symbol, const Launch& launch, const std::vector<void*>& args, const Tasks& tasks) override {
    using Run = void (*)(void* const*, const int64_t*, int64_t, int, const int64_t*, int64_t);
    reinterpret_cast<Run>(image_->address("run_" + symbol))(args.data(), launch.sizes.data(), tasks.of, launch.threads,
                                                            tasks.run.data(), static_cast<int64_t>(tasks.run.size()));
  }

 private:
  static constexpr const char* kRunSome = R"(
template <class... A>
void run_some(void (*kernel)(A...), void* const* args, const int64_t* sizes, int64_t blocks, int threads, const int64_t* chosen,
              int64_t count) {
  ig_emulation::with_body(kernel, args, sizes, [&](auto& body) {
    ig_emulation::run_blocks(body, 0, threads);
    gridDim.x = static_cast<int>(blocks);
    for (int64_t k = 0; k < count; ++k) {
      blockIdx.x = static_cast<int>(chosen[k]);
      ig_emulation::run_block(blockIdx.x);
    }
  });
}
)";
  std::unique_ptr<codegen::Target> target_ = codegen::make_cuda_target();
  std::unique_ptr<testing::Image> image_;
};

// ---------------------------------------------------------------- on a card

class CardBytes final : public Bytes {
 public:
  CardBytes(int64_t bytes, cuda::Stream stream) : bytes_(bytes), stream_(stream), memory_(allocate(bytes + 2 * kGuard)) {
    fill(0, kCanary, kGuard);
    fill(kGuard, 0, bytes);
    fill(kGuard + bytes, kCanary, kGuard);
  }
  void* address() override { return reinterpret_cast<void*>(memory_.pointer() + kGuard); }
  void write(int64_t at, const void* from, int64_t bytes) override {
    cuda::check(cuda::Driver::get().to_device(place(kGuard + at), from, static_cast<size_t>(bytes), stream_), "writing");
    cuda::check(cuda::Driver::get().wait_stream(stream_), "writing");
  }
  void read(int64_t at, void* to, int64_t bytes) override { read_raw(kGuard + at, to, bytes); }
  bool intact() override {
    std::vector<unsigned char> guard(kGuard);
    const auto untouched = [](unsigned char byte) { return byte == kCanary; };
    read_raw(0, guard.data(), kGuard);
    if (!std::all_of(guard.begin(), guard.end(), untouched)) return false;
    read_raw(kGuard + bytes_, guard.data(), kGuard);
    return std::all_of(guard.begin(), guard.end(), untouched);
  }

 private:
  static constexpr int64_t kGuard = 1 << 20;
  static constexpr unsigned char kCanary = 0xa5;
  static cuda::DeviceMemory allocate(int64_t bytes) {
    try {
      return cuda::DeviceMemory(bytes, "a test");
    } catch (const ir::MachineError& error) {
      throw NoRoom(error.what());
    }
  }
  cuda::DevicePointer place(int64_t at) const { return memory_.pointer() + static_cast<cuda::DevicePointer>(at); }
  void fill(int64_t at, unsigned char value, int64_t bytes) {
    cuda::check(cuda::Driver::get().fill8(place(at), value, static_cast<size_t>(bytes), stream_), "filling");
  }
  void read_raw(int64_t at, void* to, int64_t bytes) {
    cuda::check(cuda::Driver::get().to_host(to, place(at), static_cast<size_t>(bytes), stream_), "reading");
    cuda::check(cuda::Driver::get().wait_stream(stream_), "reading");
  }

  int64_t bytes_;
  cuda::Stream stream_;
  cuda::DeviceMemory memory_;
};

class CardMachine final : public LargeMachine {
 public:
  const codegen::Target& target() const override { return card_.target(); }
  bool whole() const override { return true; }
  void build(const std::vector<codegen::KernelText>& kernels) override { card_.build(kernels); }
  std::unique_ptr<Bytes> bytes(int64_t bytes) override { return std::make_unique<CardBytes>(bytes, card_.stream()); }
  void run(const std::string& symbol, const Launch& launch, const std::vector<void*>& args, const Tasks&) override {
    std::vector<cuda::DevicePointer> pointers;
    for (void* arg : args) pointers.push_back(reinterpret_cast<cuda::DevicePointer>(arg));
    card_.run(symbol, launch, std::move(pointers));
  }

 private:
  testing::CardKernels card_;
};

// ---------------------------------------------------------------- a case

/// How the CUDA target's launches share the work, so that few blocks hold both ends of it.
enum class Sharing {
  threads,  ///< threads step through pieces of `each` elements
  teams,    ///< a block's teams have a range of rows each; the launch's second size says how many
  rounds,   ///< rows go round the teams of all blocks; the launch's second size says how many teams there are
  runs      ///< a block's teams take runs of `each` elements
};

struct LargeCase {
  /// The graph of `rows` rows; its last op is run.
  std::function<std::string(int64_t rows)> text;
  int64_t rows = 0;
  int64_t window = 8;  ///< rows at either end that hold anything but zeros
  Sharing sharing = Sharing::teams;
  int64_t each = 8;
  bool sums = false;  ///< the result is a sum over all rows
};

class Large : public ::testing::TestWithParam<const char*> {
 public:
  void SetUp() override {
    if (name() == "gpu" && testing::gpu_machine() == nullptr) GTEST_SKIP() << "no GPU on this machine";
  }
  std::string name() const { return GetParam(); }
  std::unique_ptr<LargeMachine> machine() const {
    if (name() == "cpu") return std::make_unique<HostMachine>();
    if (name() == "cuda") return std::make_unique<EmulatedMachine>();
    return std::make_unique<CardMachine>();
  }

  void check(const LargeCase& large) const {
    try {
      check_all(large);
    } catch (const NoRoom& error) {
      GTEST_SKIP() << error.what();
    }
  }

 private:
  using Values = std::map<std::string, ir::Tensor>;

  static ir::Graph graph_of(const std::string& text) { return ir::parse_graph(text); }
  static bool by_rows(const ir::Type& type, int64_t rows) { return !type.shape.empty() && type.shape[0] == rows; }

  /// What every machine computes of a graph of `rows` rows, `small` giving what is no row.
  static Values draw(const ir::Graph& graph, int64_t rows, const Values& small, uint64_t seed) {
    testing::Random random(seed);
    Values values;
    for (const ir::Op& op : graph.ops()) {
      if (op.name() != "input") continue;
      const ir::Value& value = graph.value(op.results[0]);
      if (const auto known = small.find(value.name); known != small.end()) {
        values[value.name] = known->second;
        continue;
      }
      ir::Tensor tensor(value.type);
      // Multiples of a quarter: sums of them are exact.
      for (double& x : tensor.data)
        x = value.type.dtype == ir::DType::boolean ? 1 : 0.25 * static_cast<double>(random.integer(1, 8));
      if (seed == 0 && by_rows(value.type, rows)) std::fill(tensor.data.begin(), tensor.data.end(), 0);
      values[value.name] = std::move(tensor);
    }
    return values;
  }

  Tasks tasks_of(Launch& launch, const LargeCase& large, bool first) const {
    Tasks tasks{launch.tasks, {}};
    if (!first || name() == "gpu") {
      for (int64_t task = 0; name() != "gpu" && task < launch.tasks; ++task) tasks.run.push_back(task);
      return tasks;
    }
    tasks.run = {0};
    if (name() == "cpu") {
      if (launch.tasks > 1) tasks.run.push_back(launch.tasks - 1);
      return tasks;
    }
    if (large.sharing == Sharing::rounds) {  // the first teams come round to the last rows
      launch.sizes.at(1) = large.rows - large.window;
      for (int64_t task = 1; task < large.window; ++task) tasks.run.push_back(task);
      return tasks;
    }
    // However many teams a block has, one of these is the last with anything to do.
    const int64_t most_teams = large.sharing == Sharing::threads ? 1 : 8;
    const int64_t work = large.sharing == Sharing::threads ? large.each * launch.threads : large.each;
    if (large.sharing == Sharing::teams) launch.sizes.at(1) = large.each;
    const int64_t rows = large.rows;
    tasks.of = (rows + work - 1) / work;
    for (int64_t teams = 1; teams <= most_teams; ++teams) tasks.run.push_back((rows + work * teams - 1) / (work * teams) - 1);
    return tasks;
  }

  void check_all(const LargeCase& large) const {
    const ir::Graph graph = graph_of(large.text(large.rows)), part = graph_of(large.text(large.window));
    const ir::Op& op = graph.ops().back();
    ASSERT_GT(graph.type(op.operands[0]).elements(), kTwo31);
    const auto machine = this->machine();
    ASSERT_EQ(machine->target().refuses(graph, op), "");
    codegen::OpLaunches lowered =
        codegen::with_sums(machine->target().lower({graph, op, std::vector<bool>(op.results.size(), false)}), machine->target());
    std::vector<codegen::KernelText> kernels;
    for (size_t k = 0; k < lowered.launches.size(); ++k) {
      std::string text = lowered.launches[k].text;
      for (size_t hit; (hit = text.find("KERNEL")) != std::string::npos;) text.replace(hit, 6, fmt::format("kernel{}", k));
      kernels.push_back({fmt::format("kernel{}", k), text});
    }
    machine->build(kernels);

    // The first rows, those around element 2^31, the last rows.
    const int64_t row = graph.type(op.operands[0]).elements() / large.rows;
    const int64_t places[] = {0, kTwo31 / row - large.window / 2, large.rows - large.window};
    const Values small = draw(part, 0, {}, 1);
    Values fixed;  // no rows
    for (const auto& [name, tensor] : small) {
      if (!by_rows(tensor.type, large.window)) fixed.emplace(name, tensor);
    }
    Values inputs[3];
    for (int i = 0; i < 3; ++i) inputs[i] = draw(part, large.window, fixed, i == 1 ? 0 : static_cast<uint64_t>(i) + 2);

    std::vector<std::unique_ptr<Bytes>> operands, results, workspaces;
    for (const ir::ValueId id : op.operands) {
      const ir::Type& type = graph.type(id);
      operands.push_back(machine->bytes(type.bytes()));
      const std::string& name = graph.value(id).name;
      if (!by_rows(type, large.rows)) {
        put(*operands.back(), type, 0, fixed.at(name));
        continue;
      }
      for (const int i : {0, 2}) put(*operands.back(), type, places[i] * (type.elements() / large.rows), inputs[i].at(name));
    }
    for (const ir::ValueId id : op.results) results.push_back(machine->bytes(graph.type(id).bytes()));
    for (size_t w = 0; w < lowered.workspace_bytes.size(); ++w) {
      // Where fewer rows than a range are run there are more ranges.
      workspaces.push_back(machine->bytes(lowered.workspace_bytes[w]));
    }
    for (size_t k = 0; k < lowered.launches.size(); ++k) {
      Launch& launch = lowered.launches[k];
      std::vector<void*> args;
      for (const codegen::LaunchArg& arg : launch.args) {
        auto& from = arg.kind == codegen::LaunchArg::Kind::operand  ? operands
                     : arg.kind == codegen::LaunchArg::Kind::result ? results
                                                                    : workspaces;
        args.push_back(from.at(static_cast<size_t>(arg.index))->address());
      }
      machine->run(kernels[k].name, launch, args, tasks_of(launch, large, k == 0));
    }
    for (auto* list : {&operands, &results, &workspaces}) {
      for (auto& bytes : *list) EXPECT_TRUE(bytes->intact()) << "written past an end";
    }
    compare(large, graph, part, op, results, places, inputs, machine->whole());
  }

  static void put(Bytes& to, const ir::Type& type, int64_t element, const ir::Tensor& tensor) {
    std::vector<unsigned char> stored(static_cast<size_t>(tensor.type.bytes()));
    testing::store_doubles(tensor.type, tensor.data, stored.data());
    to.write(element * ir::dtype_bytes(type.dtype), stored.data(), tensor.type.bytes());
  }
  static std::vector<double> get(Bytes& from, const ir::Type& window, int64_t element) {
    std::vector<unsigned char> stored(static_cast<size_t>(window.bytes()));
    from.read(element * ir::dtype_bytes(window.dtype), stored.data(), window.bytes());
    return testing::load_doubles(window, stored.data());
  }

  static void compare(const LargeCase& large, const ir::Graph& graph, const ir::Graph& part, const ir::Op& op,
                      std::vector<std::unique_ptr<Bytes>>& results, const int64_t (&places)[3], const Values (&inputs)[3],
                      bool whole) {
    for (size_t r = 0; r < op.results.size(); ++r) {
      const ir::Value& value = part.value(part.ops().back().results[r]);
      std::vector<double> sum;
      for (int i = 0; i < 3; ++i) {
        if (i == 1 && !whole) continue;
        const std::vector<double> want = ir::interpret(part, inputs[i], {}, {true, true}, true).values.at(value.name).data;
        if (large.sums) {
          sum.resize(want.size(), 0);
          for (size_t k = 0; k < want.size(); ++k) sum[k] += want[k];
          continue;
        }
        const int64_t row = graph.type(op.results[r]).elements() / large.rows;
        agree(want, get(*results[r], value.type, places[i] * row), value.type.dtype, fmt::format("%{}, place {}", value.name, i));
      }
      if (large.sums) agree(sum, get(*results[r], value.type, 0), value.type.dtype, "the sum");
    }
  }

  static void agree(const std::vector<double>& want, const std::vector<double>& got, ir::DType dtype, const std::string& what) {
    const double unit = dtype == ir::DType::bf16 ? 0x1p-7 : 3e-5;  // sums of many terms
    ASSERT_EQ(want.size(), got.size());
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_NEAR(got[k], want[k], unit * std::fabs(want[k]) + 1e-30) << what << "[" << k << "]";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(On, Large, ::testing::Values("cpu", "cuda", "gpu"), testing::machine_name);

// The optimizer: one launch over all parameters of a dtype.
TEST_P(Large, OptimizerOverOneSegment) {
  LargeCase large;
  large.rows = kTwo31 + (1 << 20);
  large.window = 512;
  large.sharing = Sharing::threads;
  large.each = 4;
  large.text = [](int64_t n) {
    std::string text = "graph @main at train {\n", list;
    for (const char* name : {"p", "g", "m", "v"}) text += fmt::format("input %{}: f32[{}]\n", name, n);
    for (const char* name : {"lr", "decay", "beta1", "beta2", "eps", "scale", "c1", "c2"}) {
      text += fmt::format("input %{}: f32[]\n", name);
      list += fmt::format(", %{}", name);
    }
    return text + fmt::format("input %ok: bool[]\n%p1, %m1, %v1 = adamw(%p, %g, %m, %v{}, %ok): f32[{}], f32[{}], f32[{}]\n}}\n",
                              list, n, n, n);
  };
  check(large);
}

// A reduction in steps, the first over runs of the whole.
TEST_P(Large, SumOfAll) {
  LargeCase large;
  large.rows = kTwo31 + (1 << 20);
  large.window = 1024;
  large.sharing = Sharing::runs;
  large.each = 8192;
  large.sums = true;
  large.text = [](int64_t n) {
    return fmt::format("graph @main at train {{\ninput %x: f32[{}]\n%s = sum(%x) {{axes: [0]}}: f32[]\n}}\n", n);
  };
  check(large);
}

/// A fused region over bf16 rows and f32 columns; in its body FULL, ROW and STORED stand for f32 rows, one f32 a row and bf16
/// rows.
std::string region_text(int64_t rows, int64_t columns, std::string body) {
  const std::string full = fmt::format("f32[{}, {}]", rows, columns), row = fmt::format("f32[{}, 1]", rows),
                    stored = fmt::format("bf16[{}, {}]", rows, columns);
  for (const auto& [word, type] : {std::pair{"FULL", full}, {"ROW", row}, {"STORED", stored}}) {
    for (size_t hit; (hit = body.find(word)) != std::string::npos;) body.replace(hit, std::strlen(word), type);
  }
  return fmt::format(
      "graph @main at fused {{\ninput %x: {0}\ninput %w: f32[{1}]\n%r, %u = fuse(%x, %w) {{kind: \"row\", rows: {2}}} (%a: {0}, "
      "%b: "
      "f32[{1}]) {{{3}}}: {0}, {4}\n}}\n",
      stored, columns, rows, body, row);
}

// Rows in registers: a norm and its scale.
TEST_P(Large, RegionOfManyRows) {
  LargeCase large;
  large.rows = kTwo31 / 512 + 64;
  large.sharing = Sharing::rounds;
  large.text = [](int64_t rows) {
    return region_text(rows, 512, R"(
      %f = cast(%a) {dtype: f32}: FULL
      %q = square(%f): FULL
      %m = sum(%q) {axes: [1], keep: true}: ROW
      %n = mul(%f, %m): FULL
      %s = mul(%n, %b): FULL
      %y = cast(%s) {dtype: bf16}: STORED
      yield %y, %m
    )");
  };
  check(large);
}

// Rows of a vocabulary, swept over again: the logits' softmax.
TEST_P(Large, RegionOfLongRows) {
  LargeCase large;
  large.rows = kTwo31 / 65536 + 64;
  large.window = large.each = 2;
  large.text = [](int64_t rows) {
    return region_text(rows, 65536, R"(
      %f = cast(%a) {dtype: f32}: FULL
      %m = max(%f) {axes: [1], keep: true}: ROW
      %d = sub(%f, %m): FULL
      %e = exp(%d): FULL
      %t = sum(%e) {axes: [1], keep: true}: ROW
      %p = div(%e, %t): FULL
      %s = mul(%p, %b): FULL
      %y = cast(%s) {dtype: bf16}: STORED
      yield %y, %t
    )");
  };
  check(large);
}

// ---------------------------------------------------------------- what is refused

std::string refusal(const codegen::Target& target, const std::string& text) {
  const ir::Graph graph = ir::parse_graph(text);
  return target.refuses(graph, graph.ops().back());
}

TEST(LargeRefusals, PositionsAndRowsThatArentCountedIn32Bits) {
  const auto text = [](int64_t positions, int64_t rows) {
    return fmt::format(
        "graph @main at train {{\ninput %ids: i32[{0}]\ninput %dy: bf16[{0}, 8]\n%d = embedding_grad(%ids, %dy) {{rows: "
        "{1}}}: f32[{1}, 8]\n}}\n",
        positions, rows);
  };
  for (const auto& target : {codegen::make_cpu_target(), codegen::make_cuda_target()}) {
    EXPECT_EQ(refusal(*target, text(1 << 20, 1 << 20)), "");
    EXPECT_EQ(
        refusal(*target, text(int64_t{1} << 30, 8)),
        "positions and rows are counted in 32 bits: 1073741824 positions of 8 rows are too many (at most 1073741823 of either)");
    EXPECT_NE(refusal(*target, text(8, int64_t{1} << 30)), "");
  }
}

// Longer sequences take the kernel that counts in 64 bits.
TEST(LargeRefusals, ChunksOfWkv7AreCountedIn32Bits) {
  const auto chunked = [](int64_t batch, int64_t time, int64_t heads) {
    const std::string x = fmt::format("bf16[{}, {}, {}, 64]", batch, time, heads),
                      s = fmt::format("f32[{}, {}, 64, 64]", batch, heads);
    std::string text = "graph @main at train {\n";
    for (const char* name : {"r", "w", "k", "v", "a", "b"}) text += fmt::format("input %{}: {}\n", name, x);
    const int64_t chunks = (time + 31) / 32;
    text += fmt::format("%y, %s, %c = wkv7(%r, %w, %k, %v, %a, %b) {{chunk: 32}}: {}, {}, f32[{}, {}, {}, 64, 64]\n}}\n", x, s,
                        batch, heads, chunks);
    const ir::Graph graph = ir::parse_graph(text);
    return codegen::make_cuda_target()->configure(graph, graph.ops().back()).integer("chunk") == 64;
  };
  EXPECT_TRUE(chunked(1, 1 << 25, 1));
  EXPECT_FALSE(chunked(1, (1 << 25) + 64, 1));
  EXPECT_TRUE(chunked(2, 1 << 20, 1024));
  EXPECT_FALSE(chunked(4, 1 << 20, 1024));
}

}  // namespace
}  // namespace ingot
