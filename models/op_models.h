// Model files of one op each, part of the program: what `ingot bench --op NAME` runs. Their texts are models/ops/NAME.yaml.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace ingot::models {

const std::map<std::string, std::string_view>& op_models();

}  // namespace ingot::models
