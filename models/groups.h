// Optimizer groups, precision pins and the other sections that speak about variables and values by pattern.
#pragma once
#include "ir/graph/graph.h"
#include "models/build.h"
#include "models/description.h"
#include "models/report.h"

namespace ingot::models {

/// Patterns of groups and pins that no parameter or value could ever match are mistakes.
void check_patterns(const Description& model, size_t layers, Report& report);
/// Sets the factors of every parameter from the first group that matches it; one that none matches is a mistake.
void apply_groups(const Description& model, std::vector<ir::Variable>& variables, Report& report);
/// Patterns of the file, then the exact names they and `residual` mean in this graph.
ir::PrecisionSpec precision_spec(const Description& model, const Built& built);

}  // namespace ingot::models
