// Runs single ops of graphs through a target, without plans: lowers, builds one image, loads it, calls the launches on guarded
// and poisoned buffers, and compares with the interpreter. On the CPU tasks run in a scrambled order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/target.h"
#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::testing {

/// A shared object loaded from bytes.
class Image {
 public:
  using Function = void (*)(void* const* args, const int64_t* sizes, int64_t task);
  explicit Image(const std::string& bytes);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  void* address(const std::string& symbol) const;
  Function function(const std::string& symbol) const { return reinterpret_cast<Function>(address(symbol)); }

 private:
  void* handle_ = nullptr;
};

/// Bytes with a canary on either side.
class Guarded {
 public:
  Guarded(int64_t bytes, unsigned char fill);
  void* data() { return storage_.data() + kGuard; }
  bool intact() const;
  /// Everything, canaries included; data() lies `offset()` bytes into it.
  std::vector<unsigned char>& storage() { return storage_; }
  static constexpr size_t offset() { return kGuard; }

 private:
  static constexpr size_t kGuard = 256;
  std::vector<unsigned char> storage_;
};

void store_doubles(const ir::Type& type, const std::vector<double>& values, void* to);
std::vector<double> load_doubles(const ir::Type& type, const void* from);

/// Where the compiled objects of these tests are kept between runs.
codegen::CpuTargetOptions test_options();

/// Does a target make code for ops of this kind?
bool lowered_by_target(const ir::OpDef& def);

/// A target whose kernels this machine can run, or act out.
class BenchMachine {
 public:
  virtual ~BenchMachine() = default;
  virtual const codegen::Target& target() const = 0;
  /// Compiles; called once, before any run().
  virtual void build(const std::vector<codegen::KernelText>& kernels) = 0;
  /// One launch; null for an absent argument.
  virtual void run(const std::string& symbol, const codegen::Launch& launch, const std::vector<Guarded*>& args) = 0;
};
/// The addresses of the arguments' contents, as host kernels take them.
std::vector<void*> addresses(const std::vector<Guarded*>& args);
std::unique_ptr<BenchMachine> cpu_machine(codegen::CpuTargetOptions options = test_options());
/// Kernels of any target that makes host code.
std::unique_ptr<BenchMachine> cpu_machine(std::unique_ptr<codegen::Target> target);

class KernelBench {
 public:
  explicit KernelBench(std::unique_ptr<BenchMachine> machine = cpu_machine()) : machine_(std::move(machine)) {}
  explicit KernelBench(codegen::CpuTargetOptions options) : KernelBench(cpu_machine(std::move(options))) {}

  /// Every op of the text that the target lowers becomes a case. Lines "range NAME LO..HI" bound integer inputs; floats
  /// are drawn from lo..hi. `dead` marks results of the last op that are not wanted. `seed` varies the inputs.
  void add(const std::string& text, double lo = -1, double hi = 1, std::vector<bool> dead = {}, uint64_t seed = 1);
  /// The same with inputs made by the caller.
  void add(const std::string& text, const std::map<std::string, ir::Tensor>& inputs, std::vector<bool> dead = {});
  /// Relative error allowed in f32 results (against the largest element of the result, and each element's size).
  void set_tolerance(double tolerance) { tolerance_ = tolerance; }
  /// Sums of any data may cancel: an error is judged against the largest element of the operands as well.
  void let_sums_cancel() { sums_cancel_ = true; }
  /// From now on numbers that regions read come as so many partials, which they may add themselves.
  void give_partials(int64_t rows) { partials_ = rows; }
  /// Operands that came so.
  int added() const { return added_; }
  /// Builds and runs everything; differences are test failures.
  void run();
  /// Every result of run(), in order, as doubles; an op with results that may stand on operands gives them again, standing there.
  const std::vector<std::vector<double>>& results() const { return results_; }
  int kernels() const { return static_cast<int>(kernels_.size()); }
  int in_place() const { return in_place_; }  ///< cases with results that stand on operands

 private:
  struct Case {
    std::shared_ptr<ir::Graph> graph;
    ir::OpId op = 0;
    std::vector<bool> dead;
    std::vector<ir::Alias> over;  ///< results that stand on operands
    std::map<std::string, ir::Tensor> values;
    int64_t partials = 0;  ///< rows of each operand that the launches add
    codegen::OpLaunches launches;
    std::vector<std::string> symbols;
    std::string text;
  };
  std::map<int, int64_t> partials_of(const Case& test) const;
  std::shared_ptr<Guarded> operand(const Case& test, size_t index) const;
  void add(Case test);
  void run(Case& test);
  void compare(const Case& test, size_t result, const std::vector<double>& got);
  std::string symbol(const codegen::Launch& launch);

  std::unique_ptr<BenchMachine> machine_;
  std::vector<Case> cases_;
  std::vector<codegen::KernelText> kernels_;
  std::map<std::string, std::string> symbol_of_;
  std::vector<std::vector<double>> results_;
  double tolerance_ = 4e-6;
  bool sums_cancel_ = false;
  int in_place_ = 0;
  int64_t partials_ = 0;
  int added_ = 0;
};

/// Deterministic numbers.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 0x1234567ull) {}
  uint64_t bits();
  double uniform(double lo, double hi) { return lo + (hi - lo) * static_cast<double>(bits() >> 11) * 0x1p-53; }
  int64_t integer(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(bits() % static_cast<uint64_t>(hi - lo + 1)); }

 private:
  uint64_t state_;
};

}  // namespace ingot::testing
