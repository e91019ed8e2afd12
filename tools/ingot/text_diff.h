// Line by line difference of two texts.
#pragma once
#include <string>

namespace ingot::tools {

/// "" when equal; else the differing lines with `-` and `+`, a few equal ones around them, and "..." for what is skipped. Texts
/// that differ in more than a few thousand places are not aligned further: the rest is printed as all old, all new lines.
std::string text_diff(const std::string& before, const std::string& after);

}  // namespace ingot::tools
