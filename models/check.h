// What can be said about a model before it is built: names, ops, keywords, and what nothing uses.
#pragma once
#include "models/description.h"
#include "models/report.h"

namespace ingot::models {

/// Reports names, ops and keywords that do not exist (in branches not taken too), wrong numbers of values, names given twice
/// or used before they have a value, and inputs, values, parameters, `let` names, keys and blocks that nothing mentions.
void check_model(const Description& model, Report& report);

}  // namespace ingot::models
