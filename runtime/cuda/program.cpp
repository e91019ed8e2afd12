#include "runtime/cuda/program.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "ir/base/error.h"
#include "runtime/convert.h"

namespace ingot::runtime::cuda {

// ---------------------------------------------------------------- products

Gemm& GemmPool::find(const ir::Call& call) {
  const ir::Plan& plan = resources_.plan;
  const auto dtype = [&](size_t arg) { return plan.buffers[call.args[arg].buffer].type.dtype; };
  const auto address = [&](size_t arg) { return resources_.address(plan.buffers[call.args[arg].buffer]); };
  const size_t d = call.gemm.result();
  const ir::Buffer* workspace = call.workspace() == ir::kNoBuffer ? nullptr : &plan.buffers[call.workspace()];
  const int64_t workspace_bytes = workspace ? workspace->bytes : 0;
  const GemmTypes types{dtype(0), dtype(1), dtype(2), dtype(d)};
  // Alignment is part of what the library chooses by: buffers start at multiples of 256 bytes, parts of them may not.
  const GemmPointers at{address(0), address(1), address(2), address(d)};
  const auto same_alignment = [](const GemmPointers& x, const GemmPointers& y) {
    return ((x.a ^ y.a) | (x.b ^ y.b) | (x.c ^ y.c) | (x.d ^ y.d)) % 256 == 0;
  };
  for (const Known& known : known_) {
    if (known.gemm == call.gemm && known.types == types && known.workspace_bytes == workspace_bytes &&
        same_alignment(known.typical, at))
      return *known.prepared;
  }
  known_.push_back({call.gemm, types, at, workspace ? resources_.address(*workspace) : 0, workspace_bytes,
                    std::make_unique<Gemm>(call.gemm, types, at, workspace_bytes)});
  return *known_.back().prepared;
}

void GemmPool::warm_up() const {
  for (const Known& known : known_) {
    known.prepared->run(known.typical, known.workspace, resources_.streams[0]);
  }
  resources_.streams[0].wait();
}

// ---------------------------------------------------------------- making ready

ReadyProgram::ReadyProgram(const Resources& resources, const ir::Program& program, GemmPool& gemms, bool poison)
    : resources_(resources), program_(program), lanes_(resources.streams.size(), false), poison_(poison) {
  calls_.reserve(program.calls.size());
  for (const ir::Call& call : program.calls) resolve(call, gemms);
  hand_out_counters();
  find_events();
  dying_.resize(calls_.size());
  if (poison_) find_lifetimes();
}

void ReadyProgram::resolve(const ir::Call& call, GemmPool& gemms) {
  ReadyCall ready;
  ready.call = &call;
  ready.lane = poison_ ? 0 : call.lane;
  for (const ir::Access& access : call.args) {
    ready.args.push_back(access.buffer == ir::kNoBuffer ? 0 : resources_.address(resources_.plan.buffers[access.buffer]));
  }
  if (call.kind == ir::CallKind::launch) {
    ready.function = resources_.functions.at(call.kernel);
    ready.kernel = resources_.plan.find_kernel(call.kernel);
    ready.sizes = call.sizes;
    for (DevicePointer& arg : ready.args) ready.params.push_back(&arg);
    for (int64_t& size : ready.sizes) ready.params.push_back(&size);
  }
  if (call.kind == ir::CallKind::gemm) {
    ready.gemm = &gemms.find(call);
    const size_t scratch = call.gemm.result() + 1;
    ready.workspace = ready.args.size() > scratch ? ready.args[scratch] : 0;
  }
  calls_.push_back(std::move(ready));  // moving a vector keeps its elements where they are
}

void ReadyProgram::hand_out_counters() {
  std::vector<ReadyCall*> counting;
  for (ReadyCall& ready : calls_) {
    if (ready.gemm != nullptr && ready.gemm->only_counts()) counting.push_back(&ready);
  }
  counters_ = Counters(static_cast<int64_t>(counting.size()));
  for (size_t i = 0; i < counting.size(); ++i) counting[i]->workspace = counters_.slot(static_cast<int64_t>(i));
}

void ReadyProgram::find_events() {
  for (const ReadyCall& ready : calls_) {
    lanes_[static_cast<size_t>(ready.lane)] = true;
    for (const int earlier : ready.call->after) {
      ReadyCall& awaited = calls_[static_cast<size_t>(earlier)];
      if (awaited.lane == ready.lane || awaited.event >= 0) continue;
      awaited.event = static_cast<int>(events_.size());
      events_.emplace_back();
    }
  }
  for (size_t i = 0; i < 2 * lanes_.size(); ++i) events_.emplace_back();  // fork and join of each lane, at the end of the list
}

void ReadyProgram::find_lifetimes() {
  const int index = static_cast<int>(&program_ - resources_.plan.programs.data());
  for (const ir::Buffer& b : resources_.plan.buffers) {
    if (b.view_of != ir::kNoBuffer || b.program != index || b.role == ir::BufferRole::input) continue;
    undefined_.push_back(&b);
    if (b.last >= 0) dying_[static_cast<size_t>(b.last)].push_back(&b);
  }
}

// ---------------------------------------------------------------- running

void ReadyProgram::enqueue() {
  const Driver& d = Driver::get();
  const auto fork = [&](size_t i) -> const OwnedEvent& { return events_[events_.size() - 2 * lanes_.size() + 2 * i]; };
  const auto join = [&](size_t i) -> const OwnedEvent& { return events_[events_.size() - 2 * lanes_.size() + 2 * i + 1]; };
  for (const ir::Buffer* b : undefined_) poison(*b, lane(0));
  for (size_t i = 1; i < lanes_.size(); ++i) {
    if (!lanes_[i]) continue;
    check(d.record(fork(i), lane(0)), "forking a lane");
    check(d.stream_waits(lane(static_cast<int>(i)), fork(i), 0), "forking a lane");
  }
  for (size_t i = 0; i < calls_.size(); ++i) {
    const ReadyCall& ready = calls_[i];
    const Stream stream = lane(ready.lane);
    for (const int earlier : ready.call->after) {
      const int event = calls_[static_cast<size_t>(earlier)].event;
      if (event >= 0) check(d.stream_waits(stream, events_[static_cast<size_t>(event)], 0), "waiting for a lane");
    }
    issue(ready, stream);
    if (ready.event >= 0) check(d.record(events_[static_cast<size_t>(ready.event)], stream), "recording a lane");
    for (const ir::Buffer* b : dying_[i]) poison(*b, stream);
  }
  for (size_t i = 1; i < lanes_.size(); ++i) {
    if (!lanes_[i]) continue;
    check(d.record(join(i), lane(static_cast<int>(i))), "joining a lane");
    check(d.stream_waits(lane(0), join(i), 0), "joining a lane");
  }
}

void ReadyProgram::replay() {
  const std::string what = "program " + program_.name;
  if (graph_ == nullptr) graph_ = capture(lane(0), counters_, [&] { enqueue(); }, what);
  check(Driver::get().replay(graph_, lane(0)), "replaying " + what);
}

void ReadyProgram::run_call(size_t index) {
  const ir::Call& call = *calls_[index].call;
  now_running(fmt::format("call {} of program {}, {} for {},", index, program_.name,
                          call.kernel.empty() ? std::string(ir::call_kind_name(call.kind)) : "kernel " + call.kernel,
                          call.label.empty() ? "no value" : call.label));
  issue(calls_[index], lane(0));
  resources_.streams[0].wait();
}

void ReadyProgram::run_traced(Trace& trace) {
  const Driver& d = Driver::get();
  std::vector<OwnedEvent> marks;
  for (size_t i = 0; i <= calls_.size(); ++i) marks.emplace_back(true);
  const auto start = Trace::Clock::now();
  for (size_t i = 0; i < calls_.size(); ++i) {
    check(d.record(marks[i], lane(0)), "timing a call");
    issue(calls_[i], lane(0));
  }
  check(d.record(marks[calls_.size()], lane(0)), "timing a call");
  resources_.streams[0].wait();
  const auto at = [&](size_t i) {
    float milliseconds = 0;
    check(d.elapsed(&milliseconds, marks[0], marks[i]), "timing a call");
    return start + std::chrono::duration_cast<Trace::Clock::duration>(std::chrono::duration<double, std::milli>(milliseconds));
  };
  for (size_t i = 0; i < calls_.size(); ++i) trace.add(program_, *calls_[i].call, at(i), at(i + 1));
}

void ReadyProgram::issue(const ReadyCall& ready, Stream stream) const {
  const ir::Call& call = *ready.call;
  switch (call.kind) {
    case ir::CallKind::launch:
      return launch(ready, stream);
    case ir::CallKind::gemm:
      return multiply(ready, stream);
    case ir::CallKind::copy: {
      const auto bytes = static_cast<size_t>(resources_.plan.buffers[call.args[0].buffer].type.bytes());
      return check(Driver::get().on_device(ready.args[1], ready.args[0], bytes, stream), "copying on the GPU");
    }
    case ir::CallKind::fill:
      return fill(ready, stream);
    case ir::CallKind::init:
      throw ir::InternalError("initial values are made on the host");
    case ir::CallKind::collective:
      throw ir::InternalError("a collective in a plan for one GPU");
  }
}

void ReadyProgram::launch(const ReadyCall& ready, Stream stream) const {
  const ir::Call& call = *ready.call;
  const Result result = Driver::get().launch(
      ready.function, static_cast<unsigned>(call.tasks), 1, 1, static_cast<unsigned>(ready.kernel->threads), 1, 1,
      static_cast<unsigned>(ready.kernel->shared_bytes), stream, const_cast<void**>(ready.params.data()), nullptr);
  if (result != kSuccess) check(result, fmt::format("launching {} ({})", call.kernel, call.label));
}

void ReadyProgram::multiply(const ReadyCall& ready, Stream stream) const {
  const size_t d = ready.call->gemm.result();
  const GemmPointers at{ready.args[0], ready.args[1], d == 3 ? ready.args[2] : 0, ready.args[d]};
  ready.gemm->run(at, ready.workspace, stream);
}

void ReadyProgram::fill(const ReadyCall& ready, Stream stream) const {
  const Driver& d = Driver::get();
  const ir::Type& type = resources_.plan.buffers[ready.call->args[0].buffer].type;
  const auto count = static_cast<size_t>(type.elements());
  std::byte pattern[8] = {};
  store_double(type.dtype, ready.call->fill, pattern);
  const auto word = [&](size_t at, size_t bytes) {
    uint32_t value = 0;
    std::memcpy(&value, pattern + at, bytes);
    return value;
  };
  switch (ir::dtype_bytes(type.dtype)) {
    case 1:
      return check(d.fill8(ready.args[0], static_cast<unsigned char>(word(0, 1)), count, stream), "filling");
    case 2:
      return check(d.fill16(ready.args[0], static_cast<unsigned short>(word(0, 2)), count, stream), "filling");
    case 4:
      return check(d.fill32(ready.args[0], word(0, 4), count, stream), "filling");
    default:  // two columns of words, 8 bytes from row to row
      check(d.fill32_2d(ready.args[0], 8, word(0, 4), 1, count, stream), "filling");
      check(d.fill32_2d(ready.args[0] + 4, 8, word(4, 4), 1, count, stream), "filling");
  }
}

void ReadyProgram::poison(const ir::Buffer& buffer, Stream stream) const {
  check(Driver::get().fill8(resources_.address(buffer), 0xff, static_cast<size_t>(buffer.bytes), stream), "poisoning");
}

}  // namespace ingot::runtime::cuda
