// Where tests find data and programs. The paths stand in places.cpp alone: other objects do not depend on where the sources lie.
#pragma once
#include <string>

namespace ingot::tests {

/// The path of a file named from the root of the sources ("" is the root, with a slash), and of one in the build folder.
std::string source_file(const std::string& name);
std::string build_file(const std::string& name);

}  // namespace ingot::tests
