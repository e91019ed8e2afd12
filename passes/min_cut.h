// Minimum cut of a directed graph with capacities (Dinic's algorithm); deterministic.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ingot::passes {

class MinCut {
 public:
  static constexpr int64_t kInfinite = int64_t{1} << 60;

  explicit MinCut(int nodes) : heads_(static_cast<size_t>(nodes), -1) {}
  void edge(int from, int to, int64_t capacity);
  /// Value of the cut between source and sink.
  int64_t run(int source, int sink);
  /// After run(): nodes from which the sink can still be reached, the sink's side of the minimum cut that lies nearest to it.
  std::vector<bool> sink_side(int sink) const;

 private:
  struct Edge {
    int to, next;
    int64_t left;
  };
  bool find_levels(int source, int sink);
  int64_t push(int node, int sink, int64_t limit);

  std::vector<Edge> edges_;  // 2k and 2k+1 are each other's reverse
  std::vector<int> heads_, levels_, current_;
};

}  // namespace ingot::passes
