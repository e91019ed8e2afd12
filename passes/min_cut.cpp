#include "passes/min_cut.h"

#include <algorithm>

namespace ingot::passes {

void MinCut::edge(int from, int to, int64_t capacity) {
  edges_.push_back({to, heads_[static_cast<size_t>(from)], capacity});
  heads_[static_cast<size_t>(from)] = static_cast<int>(edges_.size()) - 1;
  edges_.push_back({from, heads_[static_cast<size_t>(to)], 0});
  heads_[static_cast<size_t>(to)] = static_cast<int>(edges_.size()) - 1;
}

bool MinCut::find_levels(int source, int sink) {
  levels_.assign(heads_.size(), -1);
  std::vector<int> queue{source};
  levels_[static_cast<size_t>(source)] = 0;
  for (size_t at = 0; at < queue.size(); ++at) {
    for (int e = heads_[static_cast<size_t>(queue[at])]; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.left <= 0 || levels_[static_cast<size_t>(edge.to)] >= 0) continue;
      levels_[static_cast<size_t>(edge.to)] = levels_[static_cast<size_t>(queue[at])] + 1;
      queue.push_back(edge.to);
    }
  }
  return levels_[static_cast<size_t>(sink)] >= 0;
}

// One blocking path at a time. Paths are as long as a model is deep, which a thread's stack holds easily.
int64_t MinCut::push(int node, int sink, int64_t limit) {
  if (node == sink) return limit;
  for (int& e = current_[static_cast<size_t>(node)]; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
    Edge& edge = edges_[static_cast<size_t>(e)];
    if (edge.left <= 0 || levels_[static_cast<size_t>(edge.to)] != levels_[static_cast<size_t>(node)] + 1) continue;
    const int64_t pushed = push(edge.to, sink, std::min(limit, edge.left));
    if (pushed == 0) continue;
    edge.left -= pushed;
    edges_[static_cast<size_t>(e) ^ 1].left += pushed;
    return pushed;
  }
  return 0;
}

int64_t MinCut::run(int source, int sink) {
  int64_t total = 0;
  while (find_levels(source, sink)) {
    current_ = heads_;
    while (const int64_t pushed = push(source, sink, kInfinite)) total += pushed;
  }
  return total;
}

std::vector<bool> MinCut::sink_side(int sink) const {
  std::vector<bool> reaches(heads_.size(), false);
  std::vector<int> queue{sink};
  reaches[static_cast<size_t>(sink)] = true;
  for (size_t at = 0; at < queue.size(); ++at) {
    for (int e = heads_[static_cast<size_t>(queue[at])]; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
      // The edge towards queue[at] is this one's reverse.
      const int from = edges_[static_cast<size_t>(e)].to;
      if (edges_[static_cast<size_t>(e) ^ 1].left <= 0 || reaches[static_cast<size_t>(from)]) continue;
      reaches[static_cast<size_t>(from)] = true;
      queue.push_back(from);
    }
  }
  return reaches;
}

}  // namespace ingot::passes
