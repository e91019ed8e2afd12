// One GPU, its context, and what of it gives itself back: quietly, and not at all once the context is lost.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "runtime/cuda/driver.h"

namespace ingot::runtime::cuda {

/// The card a session runs on: the first one the driver shows (CUDA_VISIBLE_DEVICES, which the driver reads, chooses another).
class Device {
 public:
  /// Makes the card's primary context current. MachineError without a driver or a card, or when another process holds it.
  Device();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  int capability() const { return capability_; }          ///< 90 for compute capability 9.0
  int driver_version() const { return driver_version_; }  ///< 13000 for CUDA 13.0
  /// The context belongs to threads one by one; every entry point of a session calls this.
  void make_current() const;
  void enter_quietly() const noexcept;  ///< for destructors
  int64_t free_bytes() const;

 private:
  DeviceId id_ = 0;
  Context context_ = nullptr;
  std::string name_;
  int capability_ = 0, driver_version_ = 0;
};

/// Device memory, not initialised.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// MachineError naming `what` when it does not fit.
  DeviceMemory(int64_t bytes, const std::string& what);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept : pointer_(std::exchange(other.pointer_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }

  DevicePointer pointer() const { return pointer_; }

 private:
  DevicePointer pointer_ = 0;
};

/// Host memory the card can read and write while the host goes on.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(int64_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

/// A stream or an event of the current context.
class OwnedStream {
 public:
  OwnedStream();
  ~OwnedStream();
  OwnedStream(OwnedStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  OwnedStream(const OwnedStream&) = delete;
  operator Stream() const { return stream_; }
  void wait() const;

 private:
  Stream stream_ = nullptr;
};

class OwnedEvent {
 public:
  explicit OwnedEvent(bool timed = false);
  ~OwnedEvent();
  OwnedEvent(OwnedEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  OwnedEvent(const OwnedEvent&) = delete;
  operator Event() const { return event_; }

 private:
  Event event_ = nullptr;
};

/// Machine code on the card.
class OwnedModule {
 public:
  OwnedModule() = default;
  ~OwnedModule();
  OwnedModule(OwnedModule&& other) noexcept : module_(std::exchange(other.module_, nullptr)) {}
  OwnedModule(const OwnedModule&) = delete;
  operator Module() const { return module_; }
  Result load(const char* image) { return Driver::get().load_module(&module_, image); }

 private:
  Module module_ = nullptr;
};

}  // namespace ingot::runtime::cuda
