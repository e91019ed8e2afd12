// Line by line difference of two texts.
#pragma once
#include <cstddef>
#include <string>

namespace ingot::tools {

/// "" when equal; else the differing lines with `-` and `+`, `context` equal ones around them, and "..." for what is skipped.
/// The shortest edit, unless the texts differ in more than a few thousand lines: then all old ones, all new ones.
std::string text_diff(const std::string& before, const std::string& after, size_t context = 2);

}  // namespace ingot::tools
