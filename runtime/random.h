// Random numbers that are functions of (key, index): any thread can draw any of them, in any order.
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace ingot::runtime {

class Random {
 public:
  explicit Random(uint64_t key) : key_(key) {}

  /// Four words; equal for equal key and counter.
  std::array<uint32_t, 4> words(uint64_t counter) const;
  /// In (0, 1), 2^32 possible values. `index` counts draws.
  double uniform(uint64_t index) const;
  /// to[i] = draw number first + i: in (0, 1), or standard normal. Both need first to be a multiple of 4.
  void uniforms(uint64_t first, int64_t count, double* to) const;
  void normals(uint64_t first, int64_t count, double* to) const;

 private:
  uint64_t key_;
};

/// The key of the `draw`-th random field in the initial value of variable `name`: depends on nothing else, so adding a
/// variable to a model changes the values of no other.
uint64_t random_key(uint64_t seed, std::string_view name, int draw);

}  // namespace ingot::runtime
