#include "tools/shared/units.h"

#include <fmt/format.h>

#include <cmath>

namespace ingot::tools {
namespace {

// Three digits that matter.
std::string three_digits(double value) {
  const double size = std::fabs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

std::string scaled(double count, const char* space) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  int unit = 0;
  for (; std::fabs(count) >= 999.5 && unit < 5; ++unit) count /= 1000;
  const bool whole = unit == 0 && count == std::floor(count);
  return (whole ? fmt::format("{:.0f}", count) : three_digits(count)) + space + kUnits[unit];
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; std::fabs(value) >= 1023.5 && unit < 4; ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{} {}", three_digits(value), kUnits[unit]);
}

std::string count_text(double count) { return scaled(count, ""); }

std::string flops_text(double flops) { return scaled(flops, " ") + "FLOP"; }

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string plural(int64_t count, const std::string& noun) { return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s"); }

}  // namespace ingot::tools
