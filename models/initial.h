// Initial values: from an expression over config keys, `let` names, i and j to the text that ir::Variable::init holds.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/description.h"

namespace ingot::models {

/// uniform(a, b), normal(mean, std), orthogonal(gain): drawn from a seed keyed by the parameter's name.
bool is_draw(std::string_view function);
/// The draws and what may be computed from them.
std::vector<std::string> initial_functions();

/// Config and compile-time names become numbers, constant parts are folded, `let` names are put in their place; one that
/// draws is kept as a `let NAME = EXPRESSION;` before the value, so that it is drawn once. The value is tried at the corners
/// of the shape. Located UserError.
std::string initial_text(const ParamText& param, const BlockText& block, const ir::ConstantScope& scope, const ir::Shape& shape);

}  // namespace ingot::models
