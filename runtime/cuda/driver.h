// The part of the CUDA driver's interface that the runtime calls, declared here so that building needs no toolkit. Names, types
// and numbers are those of cuda.h 11.0 and later; tests/cuda_api/api_test.cpp compares them with the header where there is
// one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace ingot::runtime::cuda {

using Result = int;
using DeviceId = int;
using DevicePointer = unsigned long long;
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;
using GraphNode = struct GraphNodeHandle*;

/// A graph's node that fills memory: `height` rows, `pitch` bytes apart, of `width` elements.
struct FillNode {
  DevicePointer to = 0;
  size_t pitch = 0;
  unsigned value = 0, element_bytes = 0;
  size_t width = 0, height = 0;
};

inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kDeviceUnavailable = 46, kNoDevice = 100, kNoBinaryForGpu = 209,
                        kUnsupportedPtx = 222, kStubLibrary = 34, kSystemDriverMismatch = 803;
// After one of these every call that needs the context fails with it, to the end of the process. A kernel did it:
inline constexpr Result kIllegalAddress = 700, kAssert = 710, kHardwareStackError = 714, kIllegalInstruction = 715,
                        kMisalignedAddress = 716, kInvalidAddressSpace = 717, kInvalidPc = 718, kLaunchFailed = 719;
// The card or its driver did:
inline constexpr Result kEccUncorrectable = 214, kNvlinkUncorrectable = 220, kLaunchTimeout = 702, kContextDestroyed = 709,
                        kUnknown = 999;
inline constexpr int kAttributeMajor = 75, kAttributeMinor = 76;
inline constexpr int kFunctionMaxDynamicShared = 8;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kNodeFill = 2;

/// The driver's functions; every one returns a Result.
struct Driver {
  Result (*init)(unsigned flags);
  Result (*version)(int* version);
  Result (*device_count)(int* count);
  Result (*device)(DeviceId* device, int ordinal);
  Result (*device_name)(char* name, int length, DeviceId device);
  Result (*device_attribute)(int* value, int attribute, DeviceId device);
  Result (*retain_context)(Context* context, DeviceId device);
  Result (*release_context)(DeviceId device);
  Result (*set_context)(Context context);
  Result (*synchronize)();
  Result (*error_name)(Result error, const char** text);
  Result (*error_text)(Result error, const char** text);

  Result (*load_module)(Module* module, const void* image);
  Result (*unload_module)(Module module);
  Result (*find_function)(Function* function, Module module, const char* name);
  Result (*set_function_attribute)(Function function, int attribute, int value);
  Result (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, Stream stream, void** params, void** extra);

  Result (*memory_info)(size_t* free, size_t* total);
  Result (*allocate)(DevicePointer* pointer, size_t bytes);
  Result (*free)(DevicePointer pointer);
  Result (*allocate_host)(void** pointer, size_t bytes, unsigned flags);
  Result (*free_host)(void* pointer);
  Result (*to_device)(DevicePointer to, const void* from, size_t bytes, Stream stream);
  Result (*to_host)(void* to, DevicePointer from, size_t bytes, Stream stream);
  Result (*on_device)(DevicePointer to, DevicePointer from, size_t bytes, Stream stream);
  Result (*fill8)(DevicePointer to, unsigned char value, size_t count, Stream stream);
  Result (*fill16)(DevicePointer to, unsigned short value, size_t count, Stream stream);
  Result (*fill32)(DevicePointer to, unsigned value, size_t count, Stream stream);
  Result (*fill32_2d)(DevicePointer to, size_t pitch, unsigned value, size_t width, size_t height, Stream stream);

  Result (*create_stream)(Stream* stream, unsigned flags);
  Result (*destroy_stream)(Stream stream);
  Result (*wait_stream)(Stream stream);
  Result (*stream_waits)(Stream stream, Event event, unsigned flags);
  Result (*create_event)(Event* event, unsigned flags);
  Result (*destroy_event)(Event event);
  Result (*record)(Event event, Stream stream);
  Result (*wait_event)(Event event);
  Result (*elapsed)(float* milliseconds, Event from, Event to);

  Result (*begin_capture)(Stream stream, int mode);
  Result (*end_capture)(Stream stream, Graph* graph);
  Result (*instantiate)(GraphExec* exec, Graph graph, unsigned long long flags);
  Result (*destroy_graph)(Graph graph);
  Result (*destroy_exec)(GraphExec exec);
  Result (*replay)(GraphExec exec, Stream stream);
  Result (*graph_nodes)(Graph graph, GraphNode* nodes, size_t* count);
  Result (*node_type)(GraphNode node, int* type);
  Result (*fill_node)(GraphNode node, FillNode* fill);
  Result (*destroy_node)(GraphNode node);
  // As they were before edges carried data, which no edge of a fill has: every driver still has them.
  Result (*nodes_before)(GraphNode node, GraphNode* nodes, size_t* count);
  Result (*nodes_after)(GraphNode node, GraphNode* nodes, size_t* count);
  Result (*add_edges)(Graph graph, const GraphNode* from, const GraphNode* to, size_t count);

  /// Loaded on first use. MachineError, one sentence, when there is no driver.
  static const Driver& get();
};

/// MachineError "doing `what` failed: TEXT (NAME)" unless it went well; out of memory, a taken card and a driver that is too old
/// get their own sentences. So does a context that is lost: InternalError when a kernel did it, MachineError when the card did;
/// both name what was given to the card last.
void check(Result result, const std::string& what);

/// What the card is given from now on. It works on while the host goes on, and a failure shows at some later call: its sentence
/// names this, and ends with `advice`, if there is any.
void now_running(std::string work, std::string advice = "");

/// Has the context been lost? Nothing of the driver or of cuBLASLt is called any more then: they may crash giving back what a
/// context that is lost held, and the process is about to end anyway.
bool context_lost() noexcept;
/// Asks the driver, and throws as check() does when the context is lost. For failures of others that may come of it.
void check_context(const std::string& what);
/// Remembers a loss that nobody is there to be told of.
void note(Result result) noexcept;

/// For destructors: calls the function unless the context is lost; its failure is nobody's news.
template <class... Parameters, class... Arguments>
void give_back(Result (*function)(Parameters...), Arguments... arguments) noexcept {
  if (!context_lost()) note(function(arguments...));
}

}  // namespace ingot::runtime::cuda
