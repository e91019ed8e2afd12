#include "codegen/memory.h"

#include <algorithm>
#include <numeric>

#include "ir/plan/plan.h"

namespace ingot::codegen {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + ir::kBufferAlignment - 1) / ir::kBufferAlignment * ir::kBufferAlignment; }

struct Placed {
  int64_t offset, end;
  int first, last;
};

/// Places lives in the order given. O(n^2) in their number: a scan of what is placed, kept by offset, for each.
class Packer {
 public:
  int64_t add(const Life& life) {
    const int64_t size = round_up(life.bytes);
    int64_t cursor = 0, best = -1, best_gap = 0;
    for (const Placed& p : placed_) {
      if (p.last < life.first || life.last < p.first) continue;
      const int64_t gap = p.offset - cursor;
      if (gap >= size && (best < 0 || gap < best_gap)) best = cursor, best_gap = gap;
      cursor = std::max(cursor, p.end);
    }
    const int64_t offset = best >= 0 ? best : cursor;
    const Placed now{offset, offset + size, life.first, life.last};
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), now, [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
                   now);
    bytes_ = std::max(bytes_, now.end);
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<Placed> placed_;
  int64_t bytes_ = 0;
};

int64_t liveness_bound(const std::vector<Life>& lives) {
  std::vector<std::pair<int, int64_t>> changes;
  for (const Life& life : lives) {
    changes.emplace_back(life.first, round_up(life.bytes));
    changes.emplace_back(life.last + 1, -round_up(life.bytes));
  }
  std::sort(changes.begin(), changes.end());  // at one call, frees come before allocations
  int64_t now = 0, most = 0;
  for (const auto& [call, bytes] : changes) {
    now += bytes;
    most = std::max(most, now);
  }
  return most;
}

Placement pack(const std::vector<Life>& lives, const std::vector<size_t>& order) {
  Placement out;
  out.offsets.resize(lives.size());
  Packer packer;
  for (const size_t i : order) out.offsets[i] = packer.add(lives[i]);
  out.bytes = packer.bytes();
  return out;
}

template <class Key>
std::vector<size_t> sorted(const std::vector<Life>& lives, Key key) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(lives[a]) < key(lives[b]); });
  return order;
}

// Packs in this order; lives that end above the bound go first next time, so that what is left finds room around them.
void try_order(const std::vector<Life>& lives, int64_t bound, std::vector<size_t> order, size_t rounds, Placement& best) {
  for (size_t round = 0; round <= rounds && (best.offsets.empty() || best.bytes > bound); ++round) {
    Placement now = pack(lives, order);
    std::stable_partition(order.begin(), order.end(), [&](size_t i) { return now.offsets[i] + round_up(lives[i].bytes) > bound; });
    if (best.offsets.empty() || now.bytes < best.bytes) best = std::move(now);
  }
}

}  // namespace

Placement place(const std::vector<Life>& lives, bool reuse) {
  const int64_t bound = liveness_bound(lives);
  Placement best;
  if (reuse) {
    // Sizes alone mislead when many are equal: then long lives first, or bytes times length, may do better. Fewer rounds when there
    // are many lives: a round is quadratic.
    const size_t rounds = std::min<size_t>(10, 200'000'000 / std::max<size_t>(lives.size() * lives.size(), 1));
    const auto length = [](const Life& l) { return int64_t{l.last} - l.first + 1; };
    try_order(lives, bound, sorted(lives, [](const Life& l) { return std::pair(-round_up(l.bytes), int64_t{l.first}); }), rounds, best);
    try_order(lives, bound, sorted(lives, [&](const Life& l) { return std::pair(-round_up(l.bytes), -length(l)); }), rounds, best);
    try_order(lives, bound, sorted(lives, [&](const Life& l) { return std::pair(-length(l), -round_up(l.bytes)); }), rounds, best);
    try_order(lives, bound, sorted(lives, [&](const Life& l) { return std::pair(-round_up(l.bytes) / 256 * length(l), int64_t{0}); }), rounds, best);
  } else {
    for (const Life& life : lives) {
      best.offsets.push_back(best.bytes);
      best.bytes += round_up(life.bytes);
    }
  }
  best.bound = bound;
  return best;
}

}  // namespace ingot::codegen
