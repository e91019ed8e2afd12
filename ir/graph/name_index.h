// Names of a graph's values to their ids. A compilation of a large model looks up and enters a million names, most of them
// in graphs that live for one pass, so the table holds no strings of its own: only hashes and ids, in one array.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot::ir {

/// Open addressing with linear probing, at most half full. `Named` is what an id indexes: it has a member `name`.
class NameIndex {
 public:
  static constexpr uint32_t kAbsent = 0xffffffffu;

  /// Makes room for `count` names.
  void reserve(size_t count) {
    size_t size = 16;
    while (size < 2 * count) size *= 2;
    if (size > slots_.size()) rehash(size);
  }

  /// The id whose name this is, or kAbsent.
  template <class Named>
  uint32_t find(std::string_view name, const std::vector<Named>& named) const {
    if (slots_.empty()) return kAbsent;
    const uint32_t hash = hash_of(name);
    for (size_t at = hash & mask();; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (slot.id == kAbsent) return kAbsent;
      if (slot.hash == hash && named[slot.id].name == name) return slot.id;
    }
  }

  /// Enters a name that find() does not know yet.
  void insert(std::string_view name, uint32_t id) {
    reserve(count_ + 1);
    place({hash_of(name), id});
    ++count_;
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t id = kAbsent;
  };

  static uint32_t hash_of(std::string_view name) { return static_cast<uint32_t>(std::hash<std::string_view>{}(name)); }
  size_t mask() const { return slots_.size() - 1; }

  void place(Slot slot) {
    size_t at = slot.hash & mask();
    while (slots_[at].id != kAbsent) at = (at + 1) & mask();
    slots_[at] = slot;
  }

  void rehash(size_t size) {
    const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(size));
    for (const Slot& slot : before) {
      if (slot.id != kAbsent) place(slot);
    }
  }

  std::vector<Slot> slots_;  ///< a power of two of them, or none
  size_t count_ = 0;
};

}  // namespace ingot::ir
