#include "runtime/cuda/driver.h"

#include <fmt/format.h>

#include <utility>

#include "ir/base/error.h"
#include "runtime/cuda/library.h"

namespace ingot::runtime::cuda {
namespace {

constexpr const char* kRemedy = "install the NVIDIA driver (Debian: nvidia-driver), or use --target cpu";

Driver load() {
  const Library library("the NVIDIA driver", {"libcuda.so.1", "libcuda.so"}, kRemedy);
  Driver d{};
  library.load(d.init, "cuInit");
  library.load(d.version, "cuDriverGetVersion");
  library.load(d.device_count, "cuDeviceGetCount");
  library.load(d.device, "cuDeviceGet");
  library.load(d.device_name, "cuDeviceGetName");
  library.load(d.device_attribute, "cuDeviceGetAttribute");
  library.load(d.retain_context, "cuDevicePrimaryCtxRetain");
  library.load(d.release_context, "cuDevicePrimaryCtxRelease_v2");
  library.load(d.set_context, "cuCtxSetCurrent");
  library.load(d.synchronize, "cuCtxSynchronize");
  library.load(d.error_name, "cuGetErrorName");
  library.load(d.error_text, "cuGetErrorString");
  library.load(d.load_module, "cuModuleLoadData");
  library.load(d.unload_module, "cuModuleUnload");
  library.load(d.find_function, "cuModuleGetFunction");
  library.load(d.set_function_attribute, "cuFuncSetAttribute");
  library.load(d.launch, "cuLaunchKernel");
  library.load(d.memory_info, "cuMemGetInfo_v2");
  library.load(d.allocate, "cuMemAlloc_v2");
  library.load(d.free, "cuMemFree_v2");
  library.load(d.allocate_host, "cuMemHostAlloc");
  library.load(d.free_host, "cuMemFreeHost");
  library.load(d.to_device, "cuMemcpyHtoDAsync_v2");
  library.load(d.to_host, "cuMemcpyDtoHAsync_v2");
  library.load(d.on_device, "cuMemcpyDtoDAsync_v2");
  library.load(d.fill8, "cuMemsetD8Async");
  library.load(d.fill16, "cuMemsetD16Async");
  library.load(d.fill32, "cuMemsetD32Async");
  library.load(d.fill32_2d, "cuMemsetD2D32Async");
  library.load(d.create_stream, "cuStreamCreate");
  library.load(d.destroy_stream, "cuStreamDestroy_v2");
  library.load(d.wait_stream, "cuStreamSynchronize");
  library.load(d.stream_waits, "cuStreamWaitEvent");
  library.load(d.create_event, "cuEventCreate");
  library.load(d.destroy_event, "cuEventDestroy_v2");
  library.load(d.record, "cuEventRecord");
  library.load(d.wait_event, "cuEventSynchronize");
  library.load(d.elapsed, "cuEventElapsedTime");
  library.load(d.begin_capture, "cuStreamBeginCapture_v2");
  library.load(d.end_capture, "cuStreamEndCapture");
  library.load(d.instantiate, "cuGraphInstantiateWithFlags");
  library.load(d.destroy_graph, "cuGraphDestroy");
  library.load(d.destroy_exec, "cuGraphExecDestroy");
  library.load(d.replay, "cuGraphLaunch");
  library.load(d.graph_nodes, "cuGraphGetNodes");
  library.load(d.node_type, "cuGraphNodeGetType");
  library.load(d.fill_node, "cuGraphMemsetNodeGetParams");
  library.load(d.destroy_node, "cuGraphDestroyNode");
  library.load(d.nodes_before, "cuGraphNodeGetDependencies");
  library.load(d.nodes_after, "cuGraphNodeGetDependentNodes");
  library.load(d.add_edges, "cuGraphAddDependencies");
  return d;
}

std::string describe(Result result) {
  const char *name = nullptr, *text = nullptr;
  Driver::get().error_name(result, &name);
  Driver::get().error_text(result, &text);
  return fmt::format("{} ({})", text ? text : "unknown error", name ? name : std::to_string(result));
}

bool by_kernel(Result result) {
  switch (result) {
    case kIllegalAddress:
    case kAssert:
    case kHardwareStackError:
    case kIllegalInstruction:
    case kMisalignedAddress:
    case kInvalidAddressSpace:
    case kInvalidPc:
    case kLaunchFailed:
      return true;
    default:
      return false;
  }
}

bool by_card(Result result) {
  switch (result) {
    case kEccUncorrectable:
    case kNvlinkUncorrectable:
    case kLaunchTimeout:
    case kContextDestroyed:
    case kUnknown:
      return true;
    default:
      return false;
  }
}

// Sessions share the card's primary context, and with it its loss.
struct State {
  bool lost = false;
  std::string work, advice;
};

State& state() {
  static State state;
  return state;
}

[[noreturn]] void throw_lost(Result result, const std::string& what) {
  const State& s = state();
  const std::string sentence = s.work.empty()
                                   ? fmt::format("the GPU failed: {}, seen at \"{}\"", describe(result), what)
                                   : fmt::format("{} failed on the GPU: {}, seen at \"{}\"", s.work, describe(result), what);
  if (by_card(result)) throw ir::MachineError(sentence + "; the kernel log (dmesg) says what the NVIDIA driver knows of it");
  throw ir::InternalError(s.advice.empty() ? sentence : sentence + "; " + s.advice);
}

}  // namespace

const Driver& Driver::get() {
  static const Driver driver = load();
  return driver;
}

void now_running(std::string work, std::string advice) {
  state().work = std::move(work);
  state().advice = std::move(advice);
}

bool context_lost() noexcept { return state().lost; }

void note(Result result) noexcept { state().lost = state().lost || by_kernel(result) || by_card(result); }

void check_context(const std::string& what) {
  const Result result = Driver::get().synchronize();
  note(result);
  if (context_lost()) throw_lost(result, what);
}

void check(Result result, const std::string& what) {
  note(result);
  if (context_lost()) throw_lost(result, what);
  switch (result) {
    case kSuccess:
      return;
    case kOutOfMemory:
      throw ir::MachineError(fmt::format("the GPU is out of memory: {}", what));
    case kDeviceUnavailable:
      throw ir::MachineError(fmt::format("another process holds the GPU for itself: {}", what));
    case kNoDevice:
    case kStubLibrary:
      throw ir::MachineError("there is an NVIDIA driver but no GPU it can use; use --target cpu");
    case kSystemDriverMismatch:
      throw ir::MachineError("the NVIDIA driver's library and its kernel module have different versions; reboot or reinstall it");
    default:
      check_context(what);  // a capture, for one, ends with an error of its own
      throw ir::MachineError(fmt::format("{} failed: {}", what, describe(result)));
  }
}

}  // namespace ingot::runtime::cuda
