// What the printer and the parser of the text form agree on; nothing else includes this.
#pragma once
#include <optional>
#include <string_view>

#include "ir/graph/graph.h"

namespace ingot::ir {

/// Does the op print as `input %x: T` or `param %w: T`? (A variable read under a name that is not its own does not.)
bool is_declaration_form(const Graph& graph, const Op& op);
std::optional<VariableRole> role_from_name(std::string_view name);

}  // namespace ingot::ir
