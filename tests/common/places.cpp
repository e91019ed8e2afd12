#include "tests/common/places.h"

namespace ingot::tests {

std::string source_file(const std::string& name) { return INGOT_SOURCE_DIR "/" + name; }

std::string build_file(const std::string& name) { return INGOT_BINARY_DIR "/" + name; }

}  // namespace ingot::tests
