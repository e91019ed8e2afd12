#include "runtime/cuda/device.h"

#include <fmt/format.h>

#include "ir/base/error.h"
#include "runtime/arena.h"

namespace ingot::runtime::cuda {
namespace {

int attribute(DeviceId device, int which) {
  int value = 0;
  check(Driver::get().device_attribute(&value, which, device), "reading a property of the GPU");
  return value;
}

}  // namespace

Device::Device() {
  const Driver& d = Driver::get();
  check(d.init(0), "starting the NVIDIA driver");
  check(d.version(&driver_version_), "reading the driver's version");
  int count = 0;
  check(d.device_count(&count), "counting GPUs");
  if (count == 0) check(kNoDevice, "counting GPUs");
  check(d.device(&id_, 0), "opening the GPU");
  char name[256] = {};
  check(d.device_name(name, sizeof name - 1, id_), "reading the GPU's name");
  name_ = name;
  capability_ = 10 * attribute(id_, kAttributeMajor) + attribute(id_, kAttributeMinor);
  check(d.retain_context(&context_, id_), fmt::format("opening {}", name_));
  const Result entered = d.set_context(context_);
  note(entered);
  if (entered != kSuccess) give_back(d.release_context, id_);  // no destructor runs for what a constructor left unfinished
  check(entered, "entering the GPU's context");
}

Device::~Device() { give_back(Driver::get().release_context, id_); }

void Device::enter_quietly() const noexcept { give_back(Driver::get().set_context, context_); }

void Device::make_current() const { check(Driver::get().set_context(context_), "entering the GPU's context"); }

int64_t Device::free_bytes() const {
  size_t free = 0, total = 0;
  check(Driver::get().memory_info(&free, &total), "asking for free GPU memory");
  return static_cast<int64_t>(free);
}

DeviceMemory::DeviceMemory(int64_t bytes, const std::string& what) {
  if (bytes == 0) return;
  const Result result = Driver::get().allocate(&pointer_, static_cast<size_t>(bytes));
  check(result, fmt::format("{} needs {}", what, bytes_text(bytes)));
}

DeviceMemory::~DeviceMemory() {
  if (pointer_ != 0) give_back(Driver::get().free, pointer_);
}

PinnedMemory::PinnedMemory(int64_t bytes) {
  if (bytes > 0) check(Driver::get().allocate_host(&data_, static_cast<size_t>(bytes), 0), "pinning host memory");
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) give_back(Driver::get().free_host, data_);
}

OwnedStream::OwnedStream() { check(Driver::get().create_stream(&stream_, kStreamNonBlocking), "making a stream"); }

OwnedStream::~OwnedStream() {
  if (stream_ != nullptr) give_back(Driver::get().destroy_stream, stream_);
}

void OwnedStream::wait() const { check(Driver::get().wait_stream(stream_), "waiting for the GPU"); }

OwnedEvent::OwnedEvent(bool timed) {
  check(Driver::get().create_event(&event_, timed ? 0 : kEventDisableTiming), "making an event");
}

OwnedEvent::~OwnedEvent() {
  if (event_ != nullptr) give_back(Driver::get().destroy_event, event_);
}

OwnedModule::~OwnedModule() {
  if (module_ != nullptr) give_back(Driver::get().unload_module, module_);
}

}  // namespace ingot::runtime::cuda
