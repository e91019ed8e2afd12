// A stream's work as a graph, without the small fills that the library puts before products.
//
// cuBLASLt's kernels that share out their tiles as they go count in four bytes of their workspace, and a fill before each sets
// those to zero. In a graph that node costs more than what it does: 0.9 us, 1.4 before and 3 after it (H200, CUDA 13.0; 116 of
// them in a step of RWKV-7 with 12 layers). Where every product counts in bytes of its own, one fill of all of them at the
// beginning does the same, and the graph goes from kernel to kernel.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "runtime/cuda/device.h"

namespace ingot::runtime::cuda {

/// Bytes for products to count in, a slot each.
class Counters {
 public:
  static constexpr int64_t kSlot = 256;  ///< bytes; what asks for more than this has a workspace of the plan

  /// `slots` may be 0.
  explicit Counters(int64_t slots);
  DevicePointer slot(int64_t index) const { return memory_.pointer() + static_cast<DevicePointer>(index * kSlot); }
  /// The beginning of the slot that holds this byte.
  DevicePointer slot_of(DevicePointer pointer) const { return slot(static_cast<int64_t>((pointer - slot(0)) / kSlot)); }
  bool holds(DevicePointer pointer) const { return slots_ > 0 && pointer >= slot(0) && pointer < slot(slots_); }
  /// Enqueues a fill of all slots with zeros.
  void clear(Stream stream) const;

 private:
  int64_t slots_ = 0;
  DeviceMemory memory_;
};

/// A graph that can be launched.
class OwnedGraph {
 public:
  OwnedGraph() = default;
  explicit OwnedGraph(GraphExec exec) : exec_(exec) {}
  ~OwnedGraph();
  OwnedGraph(OwnedGraph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  OwnedGraph& operator=(OwnedGraph&& other) noexcept {
    std::swap(exec_, other.exec_);
    return *this;
  }
  operator GraphExec() const { return exec_; }

 private:
  GraphExec exec_ = nullptr;
};

/// What `enqueue` puts on `stream` (and on streams that wait for it and that it waits for): first the counters' fill, then the
/// rest, without the fill of a slot that is filled once. `what` names it in errors.
OwnedGraph capture(Stream stream, const Counters& counters, const std::function<void()>& enqueue, const std::string& what);

}  // namespace ingot::runtime::cuda
