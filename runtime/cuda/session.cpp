#include "runtime/cuda/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ir/base/error.h"
#include "ir/plan/lanes.h"
#include "runtime/arena.h"
#include "runtime/cuda/program.h"
#include "runtime/init.h"
#include "runtime/ports.h"
#include "runtime/step.h"
#include "runtime/threads.h"

namespace ingot::runtime::cuda {
namespace {

constexpr int64_t kMirrored = 64 << 10;  // outputs up to this size come back by themselves after every run

/// "cuda:sm_90" -> 90
int architecture_of(const std::string& target) {
  const size_t at = target.find("sm_");
  return at == std::string::npos ? 0 : std::atoi(target.c_str() + at + 3);
}

constexpr int64_t kApart = 4 << 10;      // bytes between two of them that one copy rather takes along

/// The host's copies of a program's small outputs, sent after each run: of the last run and of the one before.
struct Mirrors {
  /// Device memory with outputs in it, copied at once.
  struct Piece {
    PinnedMemory memory[2];
    DevicePointer from = 0;
    int64_t bytes = 0;
  };
  struct Place {
    size_t piece = 0;
    int64_t offset = 0;  ///< in it
  };
  std::vector<Piece> pieces;
  std::map<std::string, Place> outputs;
  OwnedEvent sent[2];
  int newest = 0;
};

/// When a run began and ended, by the card's clock.
struct RunMarks {
  OwnedEvent begin{true}, end{true};
};

/// Where the host leaves an input: two places in turn, so that writing the next one waits for no upload but the last but one.
struct Staging {
  PinnedMemory memory[2];
  OwnedEvent uploaded[2];
  int next = 0;
};

/// Waits, at its end, for all that was enqueued.
class Finish {
 public:
  explicit Finish(const Device& device) : device_(device) {}
  ~Finish() {
    device_.enter_quietly();
    give_back(Driver::get().synchronize);
  }
  Finish(const Finish&) = delete;

 private:
  const Device& device_;
};

constexpr const char* kToFindTheCall =
    "to learn which call it was run `ingot train` with --no-graph, or `ingot run X.plan --program NAME --check-nan`";

class CudaSession final : public Session {
 public:
  CudaSession(ir::Plan plan, const SessionOptions& options) : plan_(std::move(plan)), options_(options), resources_(plan_) {
    now_running("opening the plan");
    check_card();
    allocate();
    load_kernels();
    for (const ir::Program& program : plan_.programs) {
      if (program.name == "init") continue;
      programs_.emplace(program.name, std::make_unique<ReadyProgram>(resources_, program, gemms_, options_.poison));
      add_mirrors(program);
    }
    now_running("warming up the products of the plan");
    gemms_.warm_up();
  }

  const ir::Plan& plan() const override { return plan_; }

  void initialise(uint64_t seed) override {
    device_.make_current();
    seed_ = seed;
    run_init();
    if (plan_.find_program("prepare")) run("prepare");
  }

  void run(const std::string& name) override {
    device_.make_current();
    const ir::Program& program = ports_.program(name);
    if (program.name == "init") return run_init();
    ReadyProgram& ready = *programs_.at(program.name);
    const RunMarks& marks = marks_[static_cast<size_t>(runs_++) % std::size(marks_)];
    now_running(fmt::format("program {}, run {} of the session{},", name, runs_, runs_ > 1 ? " or the run before it" : ""),
                kToFindTheCall);
    check(Driver::get().record(marks.begin, main()), "timing a run");
    if (options_.check_nan || options_.wait) {
      for (size_t i = 0; i < ready.calls(); ++i) {
        ready.run_call(i);
        if (options_.check_nan) look_for_nan(ready, i);
      }
    } else if (options_.trace) {
      ready.run_traced(trace_);
    } else if (options_.graph) {
      ready.replay();
    } else {
      ready.enqueue();
    }
    check(Driver::get().record(marks.end, main()), "timing a run");
    send_outputs(mirrors_.at(program.name));
  }

  void set_input(const std::string& program, const std::string& name, const HostTensor& value) override {
    device_.make_current();
    ports_.check_input(program, name, value);
    const ir::Buffer& b = ports_.input(program, name);
    Staging& staging = staging_for(b);
    const int slot = staging.next;
    staging.next = 1 - slot;
    check(Driver::get().wait_event(staging.uploaded[slot]), "uploading " + name);
    convert_elements(value, b.type.dtype, staging.memory[slot].data());
    check(
        Driver::get().to_device(resources_.address(b), staging.memory[slot].data(), static_cast<size_t>(b.type.bytes()), main()),
        "uploading " + name);
    check(Driver::get().record(staging.uploaded[slot], main()), "uploading " + name);
  }

  HostTensor output(const std::string& program, const std::string& name) const override {
    device_.make_current();
    const ir::Buffer& b = ports_.output(program, name);
    const Mirrors& mirrors = mirrors_.at(program);
    return mirrors.outputs.contains(name) ? mirrored(mirrors, name, mirrors.newest, b) : read(b);
  }

  bool runs_ahead() const override { return true; }

  HostTensor previous_output(const std::string& program, const std::string& name) const override {
    device_.make_current();
    const ir::Buffer& b = ports_.output(program, name);
    const Mirrors& mirrors = mirrors_.at(program);
    ir::check(mirrors.outputs.contains(name), "output " + name + " is too large to be kept beside the next run");
    return mirrored(mirrors, name, 1 - mirrors.newest, b);
  }

  double previous_gap() const override {
    if (runs_ < 3) return -1;
    device_.make_current();
    const auto marks = [&](int64_t run) -> const RunMarks& { return marks_[static_cast<size_t>(run) % std::size(marks_)]; };
    // The run before the last may be of another program than the outputs that were waited for, and not have begun.
    check(Driver::get().wait_event(marks(runs_ - 2).begin), "timing a run");
    float milliseconds = 0;
    check(Driver::get().elapsed(&milliseconds, marks(runs_ - 3).end, marks(runs_ - 2).begin), "timing a run");
    return milliseconds / 1e3;
  }

  HostTensor read_variable(const std::string& name) const override {
    device_.make_current();
    return read(ports_.variable(name));
  }

  void write_variable(const std::string& name, const HostTensor& value) override {
    device_.make_current();
    ports_.check_variable(name, value);
    const ir::Buffer& b = ports_.variable(name);
    HostTensor stored(b.type);
    convert_elements(value, b.type.dtype, stored.bytes.data());
    upload(b, stored.bytes.data());
  }

  void record(bool on) override { options_.trace = on; }
  const Trace& trace() const override { return trace_; }

 private:
  Stream main() const { return resources_.streams[0]; }

  void check_card() const {
    const int wanted = architecture_of(plan_.target), present = device_.capability();
    // Machine code runs on cards of the same generation that are no older.
    if (wanted / 10 == present / 10 && wanted <= present) return;
    throw ir::MachineError(
        fmt::format("this plan was compiled for {}, the card here is {} (sm_{}); compile the model with --target cuda",
                    plan_.target, device_.name(), present));
  }

  void allocate() {
    int lanes = 1;
    for (const ir::Program& program : plan_.programs) lanes = std::max(lanes, ir::lane_count(program));
    int64_t total = 0;
    for (const ir::Arena& arena : plan_.arenas) total += arena.bytes;
    const int64_t free = device_.free_bytes();
    if (total > free) {
      throw ir::MachineError(
          fmt::format("the plan needs {} of GPU memory and {} is free on {}; a smaller batch or --recompute block "
                      "needs less",
                      bytes_text(total), bytes_text(free), device_.name()));
    }
    for (int lane = 0; lane < lanes; ++lane) resources_.streams.emplace_back();
    for (const ir::Arena& arena : plan_.arenas) {
      resources_.arenas.emplace_back(arena.bytes, "arena " + arena.name);
      if (arena.bytes == 0) continue;
      check(Driver::get().fill8(resources_.arenas.back().pointer(), 0, static_cast<size_t>(arena.bytes), main()),
            "clearing memory");
    }
    resources_.streams[0].wait();
  }

  void load_kernels() {
    const Driver& d = Driver::get();
    for (const ir::Kernel& kernel : plan_.kernels) {
      auto [image, fresh] = images_.try_emplace(kernel.image);
      if (fresh) {
        const Result result = image->second.load(plan_.files.at(kernel.image).data());
        if (result == kNoBinaryForGpu || result == kUnsupportedPtx) {
          throw ir::MachineError(fmt::format("the NVIDIA driver (CUDA {}.{}) is too old for the code in this plan; update it",
                                             device_.driver_version() / 1000, device_.driver_version() % 1000 / 10));
        }
        check(result, "loading kernel " + kernel.name);
      }
      Function function = nullptr;
      check(d.find_function(&function, image->second, kernel.symbol.c_str()), "finding kernel " + kernel.name);
      if (kernel.shared_bytes > 0) {  // what kernels declare themselves counts towards the 48 KiB they may have unasked
        check(d.set_function_attribute(function, kFunctionMaxDynamicShared, kernel.shared_bytes),
              "shared memory of " + kernel.name);
      }
      resources_.functions.emplace(kernel.name, function);
    }
  }

  void add_mirrors(const ir::Program& program) {
    Mirrors& mirrors = mirrors_[program.name];
    std::multimap<DevicePointer, const ir::Port*> in_order;
    for (const ir::Port& port : program.outputs) {
      const ir::Buffer& b = plan_.buffers[port.buffer];
      if (b.type.bytes() <= kMirrored) in_order.emplace(resources_.address(b), &port);
    }
    for (const auto& [from, port] : in_order) {
      const int64_t bytes = plan_.buffers[port->buffer].type.bytes();
      const auto end = [&] { return mirrors.pieces.back().from + static_cast<DevicePointer>(mirrors.pieces.back().bytes); };
      if (mirrors.pieces.empty() || from > end() + kApart) mirrors.pieces.emplace_back().from = from;
      Mirrors::Piece& piece = mirrors.pieces.back();
      const auto offset = static_cast<int64_t>(from - piece.from);
      piece.bytes = std::max(piece.bytes, offset + bytes);
      mirrors.outputs[port->name] = {mirrors.pieces.size() - 1, offset};
    }
    for (Mirrors::Piece& piece : mirrors.pieces) {
      for (PinnedMemory& memory : piece.memory) memory = PinnedMemory(piece.bytes);
    }
  }

  void send_outputs(Mirrors& mirrors) {
    mirrors.newest = 1 - mirrors.newest;
    for (const Mirrors::Piece& piece : mirrors.pieces) {
      check(Driver::get().to_host(piece.memory[mirrors.newest].data(), piece.from, static_cast<size_t>(piece.bytes), main()),
            "reading outputs");
    }
    check(Driver::get().record(mirrors.sent[mirrors.newest], main()), "reading outputs");
  }

  static HostTensor mirrored(const Mirrors& mirrors, const std::string& name, int slot, const ir::Buffer& b) {
    check(Driver::get().wait_event(mirrors.sent[slot]), "running a program on the GPU");
    HostTensor tensor(b.type);
    const Mirrors::Place& place = mirrors.outputs.at(name);
    std::memcpy(tensor.bytes.data(), mirrors.pieces[place.piece].memory[slot].data() + place.offset, tensor.bytes.size());
    return tensor;
  }

  Staging& staging_for(const ir::Buffer& b) {
    auto [at, fresh] = staging_.try_emplace(&b);
    if (fresh) {
      for (PinnedMemory& memory : at->second.memory) memory = PinnedMemory(b.type.bytes());
    }
    return at->second;
  }

  // Parameters are drawn on the host, whose arithmetic defines them, so that a seed means one model on every target.
  void run_init() {
    now_running("writing initial values");
    for (const ir::Call& call : ports_.program("init").calls) {
      const ir::Buffer& b = plan_.buffers[call.args.at(0).buffer];
      HostTensor value(b.type);
      if (call.kind == ir::CallKind::init) {
        fill_initial({call.label, call.init, b.type, seed_, call.loc, thread_count(options_.threads)}, value.bytes.data());
      } else {
        ir::check(call.kind == ir::CallKind::fill, "@init holds a call that is neither an initial value nor a fill");
        value = HostTensor::from_doubles(b.type, std::vector<double>(static_cast<size_t>(b.type.elements()), call.fill));
      }
      upload(b, value.bytes.data());
    }
  }

  void upload(const ir::Buffer& b, const std::byte* from) {
    check(Driver::get().to_device(resources_.address(b), from, static_cast<size_t>(b.type.bytes()), main()), "writing " + b.name);
    resources_.streams[0].wait();
  }

  HostTensor read(const ir::Buffer& b) const {
    HostTensor tensor(b.type);
    download(resources_.address(b), tensor);
    return tensor;
  }

  void download(DevicePointer from, HostTensor& to) const {
    check(Driver::get().to_host(to.bytes.data(), from, to.bytes.size(), main()), "reading from the GPU");
    resources_.streams[0].wait();
  }

  void look_for_nan(const ReadyProgram& ready, size_t index) const {
    const ir::Call& call = ready.program().calls[index];
    for (size_t i = 0; i < call.args.size(); ++i) {
      if (call.args[i].buffer == ir::kNoBuffer || call.args[i].mode == ir::AccessMode::read) continue;
      const ir::Buffer& b = plan_.buffers[call.args[i].buffer];
      if (!ir::is_float(b.type.dtype) || b.role == ir::BufferRole::workspace) continue;
      HostTensor value(b.type);
      download(ready.arguments(index)[i], value);
      check_finite(value.bytes.data(), b, call, ready.program());
    }
  }

  ir::Plan plan_;
  Ports ports_{plan_};
  SessionOptions options_;
  Device device_;
  Resources resources_;
  GemmPool gemms_{resources_};
  std::map<std::string, OwnedModule> images_;
  std::map<std::string, std::unique_ptr<ReadyProgram>> programs_;
  std::map<std::string, Mirrors> mirrors_;  ///< by program
  std::map<const ir::Buffer*, Staging> staging_;
  RunMarks marks_[3];  ///< of the last three runs, by their number
  int64_t runs_ = 0;
  uint64_t seed_ = 0;
  Trace trace_;
  const Finish finish_{device_};  ///< last: it waits before anything of the above goes, also when the constructor fails
};

}  // namespace

std::unique_ptr<Session> open_session(ir::Plan plan, const SessionOptions& options) {
  return std::make_unique<CudaSession>(std::move(plan), options);
}

void end_if_lost(int code) {
  if (!context_lost()) return;
  std::fflush(stdout);
  std::_Exit(code);
}

std::string present_architecture() { return fmt::format("sm_{}", Device().capability()); }

}  // namespace ingot::runtime::cuda
