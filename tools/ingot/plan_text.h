// A plan as a person reads it: summary, calls, buffers, kernels, where a name went.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ir/plan/plan.h"

namespace ingot::tools {

std::string plan_summary(const ir::Plan& plan);
nlohmann::ordered_json plan_json(const ir::Plan& plan);

/// `program`: "" = all. UserError for one that does not exist.
std::string plan_calls(const ir::Plan& plan, const std::string& program);
nlohmann::ordered_json plan_calls_json(const ir::Plan& plan, const std::string& program);
std::string plan_buffers(const ir::Plan& plan, const std::string& program);
nlohmann::ordered_json plan_buffers_json(const ir::Plan& plan, const std::string& program);
std::string plan_kernels(const ir::Plan& plan);
nlohmann::ordered_json plan_kernels_json(const ir::Plan& plan);
/// One buffer: role, bytes, place, live range, name, type.
std::string buffer_line(const ir::Plan& plan, const ir::Buffer& buffer);
/// Everything the plan says about a value, variable or buffer: places, the calls that touch it. "" when it knows nothing.
std::string plan_why(const ir::Plan& plan, const std::string& name);

}  // namespace ingot::tools
