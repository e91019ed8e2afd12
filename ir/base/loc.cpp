#include "ir/base/loc.h"

#include <mutex>
#include <unordered_set>

namespace ingot::ir {

const std::string* intern(std::string_view text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> pool;  // node based: addresses stay put
  std::lock_guard lock(mutex);
  return &*pool.emplace(text).first;
}

Loc make_loc(std::string_view file, int line, int col) { return {intern(file), nullptr, line, col}; }

Loc derived(const Loc& loc, std::string_view origin) {
  Loc made = loc;
  if (!made.origin) made.origin = intern(origin);
  return made;
}

std::string Loc::text() const {
  if (!file) return "<unknown>";
  if (line <= 0) return *file;
  return *file + ":" + std::to_string(line) + ":" + std::to_string(col);
}

}  // namespace ingot::ir
