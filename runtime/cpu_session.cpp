#include "runtime/cpu_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/arena.h"
#include "runtime/convert.h"
#include "runtime/cpu_features.h"
#include "runtime/step.h"
#include "runtime/threads.h"

namespace ingot::runtime {
namespace {

struct ReadyProgram {
  const ir::Program* program = nullptr;
  std::vector<Step> steps;
  std::vector<const ir::Buffer*> undefined;           ///< owners whose contents nothing may rely on at the start
  std::vector<std::vector<const ir::Buffer*>> dying;  ///< per call: owners it is the last to use
};

void convert(const HostTensor& from, ir::DType dtype, std::byte* to) {
  if (from.type.dtype == dtype) {
    std::memcpy(to, from.bytes.data(), from.bytes.size());
    return;
  }
  const int64_t in = ir::dtype_bytes(from.type.dtype), out = ir::dtype_bytes(dtype);
  for (int64_t i = 0; i < from.type.elements(); ++i) {
    store_double(dtype, load_double(from.type.dtype, from.bytes.data() + i * in), to + i * out);
  }
}

class CpuSession final : public Session {
 public:
  CpuSession(ir::Plan plan, const SessionOptions& options)
      : plan_(std::move(plan)), options_(options), threads_(thread_count(options.threads)) {
    const std::string missing = missing_features(plan_.target_features, machine_features());
    if (!missing.empty()) {
      throw ir::MachineError(
          fmt::format("this plan was compiled for a CPU with {}, which this one lacks; compile the model here", missing));
    }
    map_arenas();
    load_images();
    prepare_programs();
  }

  const ir::Plan& plan() const override { return plan_; }

  void initialise(uint64_t seed) override {
    seed_ = seed;
    run("init");
    if (plan_.find_program("prepare")) run("prepare");
  }

  void run(const std::string& name) override {
    ReadyProgram& ready = find(name);
    const StepContext context{plan_, Pool::of(threads_), seed_, scratch_.data()};
    for (const ir::Buffer* b : ready.undefined) poison(*b);
    for (size_t i = 0; i < ready.steps.size(); ++i) {
      run_one(ready.steps[i], context, *ready.program);
      for (const ir::Buffer* b : ready.dying[i]) poison(*b);
    }
  }

  void set_input(const std::string& program, const std::string& name, const HostTensor& value) override {
    const ir::Buffer& b = port(program, find(program).program->inputs, name, "input");
    const std::string what = fmt::format("input {} of program {}", name, program);
    check_shape(what, b.type, value.type);
    check_range(what, name, b.type.dtype, value);
    convert(value, b.type.dtype, address(b));
  }

  HostTensor output(const std::string& program, const std::string& name) const override {
    return read(port(program, find(program).program->outputs, name, "output"));
  }

  HostTensor read_variable(const std::string& name) const override { return read(variable(name)); }

  void write_variable(const std::string& name, const HostTensor& value) override {
    const ir::Buffer& b = variable(name);
    check_shape("variable " + name, b.type, value.type);
    convert(value, b.type.dtype, address(b));
  }

  const Trace& trace() const override { return trace_; }

 private:
  void map_arenas() {
    int64_t total = 0;
    for (const ir::Arena& arena : plan_.arenas) total += arena.bytes;
    check_memory(total, "this plan");
    for (const ir::Arena& arena : plan_.arenas) arenas_.emplace_back(arena.bytes);
  }

  void load_images() {
    for (const ir::Kernel& kernel : plan_.kernels) {
      auto image = images_.find(kernel.image);
      if (image == images_.end()) image = images_.emplace(kernel.image, Image(kernel.image, plan_.files.at(kernel.image))).first;
      functions_.emplace(kernel.name, image->second.find(kernel.symbol));
    }
  }

  void prepare_programs() {
    int64_t scratch = 0;
    for (const ir::Program& program : plan_.programs) {
      ReadyProgram ready{&program, {}, {}, std::vector<std::vector<const ir::Buffer*>>(program.calls.size())};
      for (const ir::Call& call : program.calls) {
        ready.steps.push_back(prepare(call));
        if (ready.steps.back().gemm) scratch = std::max(scratch, ready.steps.back().gemm->scratch_bytes());
      }
      programs_.emplace(program.name, std::move(ready));
    }
    scratch_ = Arena(scratch);
    if (options_.poison) find_lifetimes();
  }

  Step prepare(const ir::Call& call) {
    Step step;
    step.call = &call;
    for (const ir::Access& access : call.args) {
      step.args.push_back(access.buffer == ir::kNoBuffer ? nullptr : address(plan_.buffers[access.buffer]));
    }
    if (call.kind == ir::CallKind::launch) step.function = functions_.at(call.kernel);
    if (call.kind == ir::CallKind::gemm) step.gemm = &gemm(call);
    return step;
  }

  // Equal products (equal layers) share one runner.
  GemmRunner& gemm(const ir::Call& call) {
    const auto dtype = [&](size_t arg) { return plan_.buffers[call.args[arg].buffer].type.dtype; };
    const bool has_c = call.gemm.beta != 0;
    const GemmTypes types{dtype(0), dtype(1), dtype(2), dtype(has_c ? 3 : 2)};
    for (auto& known : gemms_) {
      if (known->gemm == call.gemm && known->types == types) return known->runner;
    }
    gemms_.push_back(std::make_unique<KnownGemm>(KnownGemm{call.gemm, types, GemmRunner(call.gemm, types, threads_)}));
    return gemms_.back()->runner;
  }

  void find_lifetimes() {
    for (const ir::Buffer& b : plan_.buffers) {
      if (b.view_of != ir::kNoBuffer || b.program < 0 || b.role == ir::BufferRole::input) continue;
      ReadyProgram& ready = programs_.at(plan_.programs[static_cast<size_t>(b.program)].name);
      ready.undefined.push_back(&b);
      if (b.last >= 0) ready.dying[static_cast<size_t>(b.last)].push_back(&b);
    }
  }

  void run_one(const Step& step, const StepContext& context, const ir::Program& program) {
    const auto begin = Trace::Clock::now();
    run_step(step, context);
    if (options_.trace) trace_.add(program, *step.call, begin, Trace::Clock::now());
    if (options_.check_nan) check_finite(step, context, program);
  }

  std::byte* address(const ir::Buffer& b) const { return arenas_[static_cast<size_t>(b.arena)].data() + b.offset; }
  void poison(const ir::Buffer& b) const { std::memset(address(b), 0xff, static_cast<size_t>(b.bytes)); }

  HostTensor read(const ir::Buffer& b) const {
    HostTensor tensor(b.type);
    std::memcpy(tensor.bytes.data(), address(b), tensor.bytes.size());
    return tensor;
  }

  template <typename Names>
  [[noreturn]] static void unknown(const std::string& what, const std::string& name, const Names& names) {
    const std::string near = ir::nearest_name(name, names);
    throw ir::UserError(ir::Loc{}, fmt::format("the plan has no {} '{}'{}", what, name,
                                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }

  ReadyProgram& find(const std::string& name) {
    return const_cast<ReadyProgram&>(static_cast<const CpuSession*>(this)->find(name));
  }
  const ReadyProgram& find(const std::string& name) const {
    const auto it = programs_.find(name);
    if (it != programs_.end()) return it->second;
    std::vector<std::string> names;
    for (const auto& [known, ready] : programs_) names.push_back(known);
    unknown("program", name, names);
  }

  const ir::Buffer& port(const std::string& program, const std::vector<ir::Port>& ports, const std::string& name,
                         const char* what) const {
    std::vector<std::string> names;
    for (const ir::Port& p : ports) {
      if (p.name == name) return plan_.buffers[p.buffer];
      names.push_back(p.name);
    }
    unknown(fmt::format("{} of program {} named", what, program), name, names);
  }

  const ir::Buffer& variable(const std::string& name) const {
    if (const ir::Binding* found = plan_.find_binding(name)) return plan_.buffers[found->buffer];
    std::vector<std::string> names;
    for (const ir::Binding& b : plan_.bindings) names.push_back(b.variable.name);
    unknown("variable", name, names);
  }

  static void check_shape(const std::string& what, const ir::Type& want, const ir::Type& got) {
    if (want.shape == got.shape) return;
    throw ir::UserError(ir::Loc{}, fmt::format("{} is {}, the value given is {}", what, want.text(), got.text()));
  }

  void check_range(const std::string& what, const std::string& name, ir::DType dtype, const HostTensor& value) const {
    if (ir::is_float(dtype)) return;
    double lo = dtype == ir::DType::i32 ? std::numeric_limits<int32_t>::min() : -0x1p63;
    double hi = dtype == ir::DType::i32 ? std::numeric_limits<int32_t>::max() : 0x1p63;
    std::vector<int64_t> also;
    for (const ir::InputRange& range : plan_.ranges) {
      if (range.input != name) continue;
      lo = static_cast<double>(range.lo);
      hi = static_cast<double>(range.hi);
      also = range.also;
    }
    const int64_t width = ir::dtype_bytes(value.type.dtype);
    for (int64_t i = 0; i < value.type.elements(); ++i) {
      const double x = load_double(value.type.dtype, value.bytes.data() + i * width);
      if (x >= lo && x <= hi && x == std::floor(x)) continue;
      if (std::find(also.begin(), also.end(), static_cast<int64_t>(x)) != also.end()) continue;
      throw ir::UserError(
          ir::Loc{}, fmt::format("{}: {} at position {} is outside {} .. {}", what, x, position(value.type.shape, i), lo, hi));
    }
  }

  static std::string position(const ir::Shape& shape, int64_t index) {
    ir::Shape at(shape.size());
    for (size_t axis = shape.size(); axis-- > 0; index /= shape[axis]) at[axis] = index % shape[axis];
    return ir::shape_text(at);
  }

  struct KnownGemm {
    ir::Gemm gemm;
    GemmTypes types;
    GemmRunner runner;
  };

  ir::Plan plan_;
  SessionOptions options_;
  int threads_;
  uint64_t seed_ = 0;
  std::vector<Arena> arenas_;
  Arena scratch_;
  std::map<std::string, Image> images_;
  std::map<std::string, KernelFunction> functions_;
  std::vector<std::unique_ptr<KnownGemm>> gemms_;
  std::map<std::string, ReadyProgram> programs_;
  Trace trace_;
};

}  // namespace

std::unique_ptr<Session> open_cpu_session(ir::Plan plan, const SessionOptions& options) {
  return std::make_unique<CpuSession>(std::move(plan), options);
}

}  // namespace ingot::runtime
