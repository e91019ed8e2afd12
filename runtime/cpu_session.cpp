#include "runtime/cpu_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "ir/base/error.h"
#include "runtime/arena.h"
#include "runtime/cpu_features.h"
#include "runtime/ports.h"
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
    ReadyProgram& ready = programs_.at(ports_.program(name).name);
    const StepContext context{plan_, Pool::of(threads_), seed_, scratch_.data()};
    for (const ir::Buffer* b : ready.undefined) poison(*b);
    for (size_t i = 0; i < ready.steps.size(); ++i) {
      run_one(ready.steps[i], context, *ready.program);
      for (const ir::Buffer* b : ready.dying[i]) poison(*b);
    }
  }

  void set_input(const std::string& program, const std::string& name, const HostTensor& value) override {
    ports_.check_input(program, name, value);
    const ir::Buffer& b = ports_.input(program, name);
    convert_elements(value, b.type.dtype, address(b));
  }

  HostTensor output(const std::string& program, const std::string& name) const override {
    return read(ports_.output(program, name));
  }

  HostTensor read_variable(const std::string& name) const override { return read(ports_.variable(name)); }

  void write_variable(const std::string& name, const HostTensor& value) override {
    ports_.check_variable(name, value);
    const ir::Buffer& b = ports_.variable(name);
    convert_elements(value, b.type.dtype, address(b));
  }

  void record(bool on) override { options_.trace = on; }
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
    const GemmTypes types{dtype(0), dtype(1), dtype(2), dtype(call.gemm.result())};
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

  struct KnownGemm {
    ir::Gemm gemm;
    GemmTypes types;
    GemmRunner runner;
  };

  ir::Plan plan_;
  Ports ports_{plan_};
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
