#include "runtime/cuda/capture.h"

#include <algorithm>
#include <map>
#include <vector>

namespace ingot::runtime::cuda {
namespace {

/// A list that the driver gives out in two calls: first how many, then which.
template <class List>
std::vector<GraphNode> nodes(const List& list) {
  size_t count = 0;
  check(list(nullptr, &count), "reading a graph");
  std::vector<GraphNode> out(count);
  if (count > 0) check(list(out.data(), &count), "reading a graph");
  return out;
}

/// The slot that a node fills; 0: it does something else.
DevicePointer filled_slot(GraphNode node, const Counters& counters) {
  const Driver& d = Driver::get();
  int type = 0;
  check(d.node_type(node, &type), "reading a graph");
  if (type != kNodeFill) return 0;
  FillNode fill;
  check(d.fill_node(node, &fill), "reading a graph");
  const auto bytes = static_cast<int64_t>(fill.width * fill.height * fill.element_bytes);
  return counters.holds(fill.to) && bytes <= Counters::kSlot ? counters.slot_of(fill.to) : 0;
}

/// What waited for the node waits for what it waited for.
void take_out(Graph graph, GraphNode node) {
  const Driver& d = Driver::get();
  const auto before = nodes([&](GraphNode* to, size_t* count) { return d.nodes_before(node, to, count); });
  const auto after = nodes([&](GraphNode* to, size_t* count) { return d.nodes_after(node, to, count); });
  check(d.destroy_node(node), "shortening a graph");
  for (const GraphNode to : after) {
    const auto known = nodes([&](GraphNode* list, size_t* count) { return d.nodes_before(to, list, count); });
    for (const GraphNode from : before) {
      if (std::find(known.begin(), known.end(), from) == known.end()) check(d.add_edges(graph, &from, &to, 1), "shortening a graph");
    }
  }
}

/// A product of more than 2^31 elements may be several kernels that count in one slot: their fills stay.
void take_out_fills(Graph graph, const Counters& counters) {
  const auto all = nodes([&](GraphNode* to, size_t* count) { return Driver::get().graph_nodes(graph, to, count); });
  std::map<DevicePointer, std::vector<GraphNode>> fills;  // by slot
  for (const GraphNode node : all) {
    if (const DevicePointer slot = filled_slot(node, counters)) fills[slot].push_back(node);
  }
  for (const auto& [slot, of_slot] : fills) {
    if (of_slot.size() == 1) take_out(graph, of_slot[0]);
  }
}

/// A capture that has begun: whatever happens it is ended, and what it made given back.
class Capture {
 public:
  explicit Capture(Stream stream) : stream_(stream) {
    check(Driver::get().begin_capture(stream, kCaptureThreadLocal), "beginning a capture");
  }
  ~Capture() {
    if (!ended_) give_back(Driver::get().end_capture, stream_, &graph_);
    if (graph_ != nullptr) give_back(Driver::get().destroy_graph, graph_);
  }
  Capture(const Capture&) = delete;
  Graph end(const std::string& what) {
    ended_ = true;
    check(Driver::get().end_capture(stream_, &graph_), "capturing " + what);
    return graph_;
  }

 private:
  Stream stream_;
  Graph graph_ = nullptr;
  bool ended_ = false;
};

}  // namespace

Counters::Counters(int64_t slots) : slots_(slots) {
  if (slots > 0) memory_ = DeviceMemory(slots * kSlot, "counters of products");
}

void Counters::clear(Stream stream) const {
  if (slots_ > 0) check(Driver::get().fill8(slot(0), 0, static_cast<size_t>(slots_ * kSlot), stream), "clearing counters");
}

OwnedGraph::~OwnedGraph() {
  if (exec_ != nullptr) give_back(Driver::get().destroy_exec, exec_);
}

OwnedGraph capture(Stream stream, const Counters& counters, const std::function<void()>& enqueue, const std::string& what) {
  Capture capture(stream);
  counters.clear(stream);
  enqueue();
  const Graph graph = capture.end(what);
  take_out_fills(graph, counters);
  GraphExec exec = nullptr;
  check(Driver::get().instantiate(&exec, graph, 0), "instantiating " + what);
  return OwnedGraph(exec);
}

}  // namespace ingot::runtime::cuda
