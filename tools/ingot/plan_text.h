// A plan as a person reads it: summary, calls, buffers, kernels, memory, where a name went.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ir/plan/plan.h"

namespace ingot::tools {

std::string plan_summary(const ir::Plan& plan);
nlohmann::ordered_json plan_json(const ir::Plan& plan);

/// `program`: "" = all. UserError for one that does not exist.
std::string plan_calls(const ir::Plan& plan, const std::string& program);
std::string plan_buffers(const ir::Plan& plan, const std::string& program);
std::string plan_kernels(const ir::Plan& plan);
std::string plan_memory(const ir::Plan& plan);
/// Everything the plan says about a value, variable or buffer: places, the calls that touch it. "" when it knows nothing.
std::string plan_why(const ir::Plan& plan, const std::string& name);

/// Bytes alive at each call of a program, persistent ones left out.
std::vector<int64_t> live_bytes(const ir::Plan& plan, int program);

}  // namespace ingot::tools
