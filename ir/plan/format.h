// What plan.txt and the container agree on.
#pragma once
#include <string_view>

namespace ingot::ir {

inline constexpr std::string_view kPlanMagic = "ingot plan";
/// Goes up when a plan written before can no longer be read as it was meant.
inline constexpr int kPlanFormat = 3;
inline constexpr std::string_view kPlanText = "plan.txt";  ///< the first file of the container

}  // namespace ingot::ir
