// One program of a plan on the GPU: its calls with everything resolved to addresses, enqueued one by one or captured once and
// replayed as a graph.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
#include "runtime/cuda/capture.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"
#include "runtime/trace.h"

namespace ingot::runtime::cuda {

/// What calls are resolved against.
struct Resources {
  const ir::Plan& plan;
  std::vector<DeviceMemory> arenas;
  std::map<std::string, Function> functions;  ///< by kernel name
  std::vector<OwnedStream> streams;           ///< one per lane; lane 0 is the main one

  explicit Resources(const ir::Plan& of) : plan(of) {}
  DevicePointer address(const ir::Buffer& b) const {
    return arenas[static_cast<size_t>(b.arena)].pointer() + static_cast<DevicePointer>(b.offset);
  }
};

/// Equal products (equal layers) share one prepared product.
class GemmPool {
 public:
  explicit GemmPool(const Resources& resources) : resources_(resources) {}
  Gemm& find(const ir::Call& call);
  /// Every product runs once, on whatever the arenas hold: the library loads its code now and not inside a capture.
  void warm_up() const;

 private:
  struct Known {
    ir::Gemm gemm;
    GemmTypes types;
    GemmPointers typical;
    DevicePointer workspace = 0;
    int64_t workspace_bytes = 0;
    std::unique_ptr<Gemm> prepared;
  };
  const Resources& resources_;
  std::vector<Known> known_;
};

class ReadyProgram {
 public:
  /// With `poison` every call runs on lane 0: what is dead then is known by the list.
  ReadyProgram(const Resources& resources, const ir::Program& program, GemmPool& gemms, bool poison);
  ReadyProgram(const ReadyProgram&) = delete;
  ReadyProgram& operator=(const ReadyProgram&) = delete;

  const ir::Program& program() const { return program_; }
  /// Enqueues every call on the streams of its lane; the main stream waits for all lanes at the end.
  void enqueue();
  /// Replays the captured graph, capturing it the first time.
  void replay();
  /// Runs call by call on the main stream, timed by events, and waits for the end.
  void run_traced(Trace& trace);
  /// Enqueues one call and waits for it (looking for NaN, or for the one that fails).
  void run_call(size_t index);
  size_t calls() const { return calls_.size(); }
  /// Device addresses of a call's arguments; 0 for an absent one.
  const std::vector<DevicePointer>& arguments(size_t index) const { return calls_[index].args; }

 private:
  struct ReadyCall {
    const ir::Call* call = nullptr;
    std::vector<DevicePointer> args;
    std::vector<int64_t> sizes;
    std::vector<void*> params;  ///< addresses of the elements of args and sizes
    Function function = nullptr;
    const ir::Kernel* kernel = nullptr;
    Gemm* gemm = nullptr;
    DevicePointer workspace = 0;  ///< of a product
    int lane = 0;
    int event = -1;  ///< recorded after it, for calls on other lanes
  };

  void resolve(const ir::Call& call, GemmPool& gemms);
  void hand_out_counters();
  void find_events();
  void find_lifetimes();
  void issue(const ReadyCall& call, Stream stream) const;
  void launch(const ReadyCall& call, Stream stream) const;
  void multiply(const ReadyCall& call, Stream stream) const;
  void fill(const ReadyCall& call, Stream stream) const;
  void poison(const ir::Buffer& buffer, Stream stream) const;
  Stream lane(int index) const { return resources_.streams[static_cast<size_t>(index)]; }

  const Resources& resources_;
  const ir::Program& program_;
  std::vector<ReadyCall> calls_;
  std::vector<OwnedEvent> events_;
  std::vector<bool> lanes_;  ///< used besides lane 0
  bool poison_ = false;
  std::vector<const ir::Buffer*> undefined_;           ///< owners whose contents nothing may rely on at the start
  std::vector<std::vector<const ir::Buffer*>> dying_;  ///< per call: owners it is the last to use
  Counters counters_{0};
  OwnedGraph graph_;
};

}  // namespace ingot::runtime::cuda
