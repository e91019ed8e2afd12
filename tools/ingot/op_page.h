// The reference page of an op, made from its definition alone.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ir/graph/op_def.h"

namespace ingot::tools {

/// "matmul(a, b, ta=false, tb=false) -> y"
std::string op_signature(const ir::OpDef& def);
/// The first sentence of the summary.
std::string op_sentence(const ir::OpDef& def);
std::string op_page(const ir::OpDef& def);
nlohmann::ordered_json op_json(const ir::OpDef& def);

}  // namespace ingot::tools
