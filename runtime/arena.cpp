#include "runtime/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <utility>

#include "ir/base/error.h"

namespace ingot::runtime {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

// The value of `key` in a file of "key: value kB" lines, in bytes.
int64_t meminfo(const std::string& key) {
  std::ifstream in("/proc/meminfo");
  std::string name, rest;
  int64_t value = 0;
  while (in >> name >> value && std::getline(in, rest)) {
    if (name == key + ":") return value * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

// What this process' control group may still take (cgroup v2; "max" and absent files mean no limit).
int64_t group_free() {
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  int64_t limit = 0, used = 0;
  if (limit_file >> limit && used_file >> used) return std::max<int64_t>(limit - used, 0);
  return std::numeric_limits<int64_t>::max();
}

}  // namespace

Arena::Arena(int64_t bytes) {
  if (bytes == 0) return;
  mapped_bytes_ = static_cast<size_t>(bytes) + kHuge;
  void* mapped = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    mapped_bytes_ = 0;
    throw ir::MachineError(fmt::format("no memory: the system refused {}", bytes_text(bytes)));
  }
  mapped_ = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(mapped_);
  data_ = mapped_ + ((address + kHuge - 1) / kHuge * kHuge - address);
  if (static_cast<size_t>(bytes) >= kHuge) madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a wish, not a need
}

Arena::~Arena() {
  if (mapped_) munmap(mapped_, mapped_bytes_);
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

void check_memory(int64_t bytes, const std::string& what) {
  const int64_t free = std::min(meminfo("MemAvailable"), group_free());
  if (bytes <= free) return;
  throw ir::MachineError(fmt::format("{} needs {} of memory, {} is free", what, bytes_text(bytes), bytes_text(free)));
}

std::string bytes_text(int64_t bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace ingot::runtime
