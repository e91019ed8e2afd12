// Which instructions this machine has.
#pragma once
#include <set>
#include <string>

namespace ingot::runtime {

/// Names as the compiler's -m flags and the kernel's cpuinfo spell them, in one spelling: lower case, no `_`, `.` or `-`.
std::set<std::string> machine_features();
/// The features in `wanted` (separated by spaces) that are missing, as `wanted` spells them; "" when all are there.
std::string missing_features(const std::string& wanted, const std::set<std::string>& have);

}  // namespace ingot::runtime
