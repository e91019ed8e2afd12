// The memory a plan asks for: one block per arena, mapped at load, never grown.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan/plan.h"

namespace ingot::runtime {

/// Zeroed memory aligned to 2 MiB, on huge pages where the system has them to give.
class Arena {
 public:
  Arena() = default;
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::byte* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
};

/// MachineError naming the need and what is there when the arenas do not fit into the memory that is free now.
void check_memory(int64_t bytes, const std::string& what);
/// "1.5 GiB"
std::string bytes_text(int64_t bytes);

}  // namespace ingot::runtime
