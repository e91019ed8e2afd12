// YAML tree -> Description: sections, keys, one-line texts.
#pragma once
#include <string>

#include "models/description.h"
#include "models/report.h"
#include "models/yaml.h"

namespace ingot::models {

/// Reads every section; mistakes go to `report` and the rest is read on.
Description read_description(const Node& root, const std::string& file, Report& report);

}  // namespace ingot::models
