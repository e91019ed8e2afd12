#include "tools/ingot/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "ir/plan/lanes.h"
#include "tools/ingot/plan_memory.h"
#include "tools/shared/units.h"

namespace ingot::tools {
namespace {

using ir::Buffer;
using ir::Call;
using ir::Plan;
using ir::Program;

std::string buffer_name(const Plan& plan, ir::BufferId id) { return id == ir::kNoBuffer ? "none" : plan.buffers[id].name; }

/// The programs wanted, with their indexes.
std::vector<int> chosen(const Plan& plan, const std::string& name) {
  std::vector<int> list;
  std::vector<std::string> names;
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    names.push_back(plan.programs[i].name);
    if (name.empty() || names.back() == name) list.push_back(static_cast<int>(i));
  }
  if (!list.empty() || name.empty()) return list;
  const std::string nearest = ir::nearest_name(name, names);
  throw ir::UserError(ir::make_loc("<command line>", 0, 0),
                      fmt::format("the plan has no program '{}' (it has {}){}", name, fmt::join(names, ", "),
                                  nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

std::map<std::string, int64_t> calls_by_kind(const Program& program) {
  std::map<std::string, int64_t> counts;
  for (const Call& call : program.calls) ++counts[std::string(ir::call_kind_name(call.kind))];
  return counts;
}

struct Work {
  double flops = 0, bytes = 0;
};
Work work_of(const Program& program) {
  Work work;
  for (const Call& call : program.calls) work.flops += call.flops, work.bytes += call.bytes;
  return work;
}

struct Parameters {
  int64_t count = 0, tensors = 0, bytes = 0;
};
Parameters parameters_of(const Plan& plan) {
  Parameters p;
  for (const ir::Binding& binding : plan.bindings) {
    if (binding.variable.role != ir::VariableRole::param) continue;
    p.count += binding.variable.type.elements();
    p.bytes += binding.variable.type.bytes();
    ++p.tensors;
  }
  return p;
}

int64_t arena_bytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const ir::Arena& arena : plan.arenas) bytes += arena.bytes;
  return bytes;
}

std::string ports_text(const Plan& plan, const std::vector<ir::Port>& ports) {
  std::string text;
  for (size_t i = 0; i < ports.size() && i < 6; ++i) {
    text += fmt::format("{}{}: {}", i ? ", " : "", ports[i].name, plan.buffers[ports[i].buffer].type.text());
  }
  return ports.size() > 6 ? fmt::format("{}, ... ({} in all)", text, ports.size()) : text;
}

std::string call_text(const Plan& plan, const Call& call) {
  std::vector<std::string> args;
  for (const ir::Access& access : call.args) {
    const char* mark = access.mode == ir::AccessMode::read ? "" : access.mode == ir::AccessMode::write ? "-> " : "<-> ";
    args.push_back(mark + buffer_name(plan, access.buffer));
  }
  std::string text = fmt::format("{} {}", ir::call_kind_name(call.kind), call.kernel.empty() ? call.label : call.kernel);
  if (call.kind == ir::CallKind::gemm) {
    text += fmt::format(
        " {}x{}x{}{}{}{}", call.gemm.m, call.gemm.n, call.gemm.k, call.gemm.batch > 1 ? fmt::format(" x{}", call.gemm.batch) : "",
        call.gemm.ta || call.gemm.tb ? fmt::format(" {}{}", call.gemm.ta ? "T" : "N", call.gemm.tb ? "T" : "N") : "",
        call.gemm.has_bias() ? " + bias" : "");
  }
  return fmt::format("{} ({})", text, fmt::join(args, ", "));
}

std::string range_text(const Buffer& buffer) {
  return buffer.first < 0 ? std::string("always") : fmt::format("calls {}..{}", buffer.first, buffer.last);
}

}  // namespace

std::string buffer_line(const Plan& plan, const Buffer& buffer) {
  std::string text = fmt::format("{:<9} {:>10}  {}@{:<10} {:<16} {} {}", ir::buffer_role_name(buffer.role),
                                 bytes_text(buffer.bytes), plan.arenas[static_cast<size_t>(buffer.arena)].name, buffer.offset,
                                 range_text(buffer), buffer.name, buffer.type.text());
  if (buffer.view_of != ir::kNoBuffer) text += " view of " + buffer_name(plan, buffer.view_of);
  return text;
}

std::string plan_summary(const Plan& plan) {
  const Parameters parameters = parameters_of(plan);
  std::string text = fmt::format("{}: a plan for {}{}\n", plan.name, plan.target,
                                 plan.target_features.empty() ? "" : fmt::format(" ({})", plan.target_features));
  text += fmt::format("  parameters  {} in {}, {}\n", count_text(static_cast<double>(parameters.count)),
                      plural(parameters.tensors, "tensor"), bytes_text(parameters.bytes));
  std::vector<std::string> arenas;
  for (const ir::Arena& arena : plan.arenas) arenas.push_back(fmt::format("{} {}", arena.name, bytes_text(arena.bytes)));
  text += fmt::format("  memory      {} ({})\n", bytes_text(arena_bytes(plan)), fmt::join(arenas, ", "));
  text +=
      fmt::format("  kernels     {}, {} in all\n", plan.kernels.size(), plural(static_cast<int64_t>(plan.files.size()), "file"));
  std::vector<std::string> options;
  for (const auto& [key, value] : plan.info) {
    if (key.starts_with("options.")) options.push_back(key.substr(8) + "=" + value);
  }
  if (!options.empty()) text += fmt::format("  options     {}\n", fmt::join(options, " "));
  for (const Program& program : plan.programs) {
    std::vector<std::string> kinds;
    for (const auto& [kind, count] : calls_by_kind(program)) kinds.push_back(fmt::format("{} {}", count, kind));
    const Work work = work_of(program);
    text += fmt::format("  @{:<9}  {}", program.name, plural(static_cast<int64_t>(program.calls.size()), "call"));
    if (!kinds.empty()) text += fmt::format(" ({})", fmt::join(kinds, ", "));
    if (work.flops > 0)
      text += fmt::format(", {}, {} moved", flops_text(work.flops), bytes_text(static_cast<int64_t>(work.bytes)));
    text += "\n";
    if (!program.inputs.empty()) text += fmt::format("              in   {}\n", ports_text(plan, program.inputs));
    if (!program.outputs.empty()) text += fmt::format("              out  {}\n", ports_text(plan, program.outputs));
  }
  return text;
}

nlohmann::ordered_json plan_json(const Plan& plan) {
  const Parameters parameters = parameters_of(plan);
  nlohmann::ordered_json json{{"name", plan.name},
                              {"target", plan.target},
                              {"features", plan.target_features},
                              {"parameters", parameters.count},
                              {"parameter_tensors", parameters.tensors},
                              {"memory_bytes", arena_bytes(plan)}};
  for (const ir::Arena& arena : plan.arenas) json["arenas"].push_back({{"name", arena.name}, {"bytes", arena.bytes}});
  for (const auto& [key, value] : plan.info) json["info"][key] = value;
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const Program& program = plan.programs[i];
    const Work work = work_of(program);
    const std::vector<int64_t> live = live_bytes(plan, static_cast<int>(i));
    nlohmann::ordered_json entry{
        {"name", program.name}, {"calls", program.calls.size()}, {"flops", work.flops}, {"bytes", work.bytes}};
    entry["peak_live_bytes"] = live.empty() ? 0 : *std::max_element(live.begin(), live.end());
    for (const auto& [kind, count] : calls_by_kind(program)) entry["by_kind"][kind] = count;
    for (const ir::Port& port : program.inputs)
      entry["inputs"].push_back({{"name", port.name}, {"type", plan.buffers[port.buffer].type.text()}});
    for (const ir::Port& port : program.outputs)
      entry["outputs"].push_back({{"name", port.name}, {"type", plan.buffers[port.buffer].type.text()}});
    json["programs"].push_back(entry);
  }
  for (const ir::Kernel& kernel : plan.kernels) json["kernels"].push_back(kernel.name);
  for (const auto& [name, content] : plan.files) json["files"].push_back({{"name", name}, {"bytes", content.size()}});
  return json;
}

std::string plan_calls(const Plan& plan, const std::string& name) {
  std::string text;
  for (int index : chosen(plan, name)) {
    const Program& program = plan.programs[static_cast<size_t>(index)];
    const int lanes = ir::lane_count(program);
    text += fmt::format("@{}: {}{}\n", program.name, plural(static_cast<int64_t>(program.calls.size()), "call"),
                        lanes > 1 ? fmt::format(" on {} lanes", lanes) : "");
    for (size_t i = 0; i < program.calls.size(); ++i) {
      const Call& call = program.calls[i];
      text += fmt::format("{:>6}  {}{:>10} {:>10}  {}", i, lanes > 1 ? fmt::format("{:<3} ", call.lane) : "",
                          call.flops > 0 ? flops_text(call.flops) : "-",
                          call.bytes > 0 ? bytes_text(static_cast<int64_t>(call.bytes)) : "-", call_text(plan, call));
      if (!call.after.empty()) text += fmt::format("  after {}", fmt::join(call.after, ", "));
      if (!call.kernel.empty() && !call.label.empty()) text += "  makes " + call.label;
      if (call.loc.known()) text += "  " + call.loc.text();
      text += "\n";
    }
  }
  return text;
}

nlohmann::ordered_json plan_calls_json(const Plan& plan, const std::string& name) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (int index : chosen(plan, name)) {
    const Program& program = plan.programs[static_cast<size_t>(index)];
    nlohmann::ordered_json& list = json[program.name] = nlohmann::ordered_json::array();
    for (const Call& call : program.calls) {
      nlohmann::ordered_json entry{{"kind", ir::call_kind_name(call.kind)},
                                   {"makes", call.label},
                                   {"flops", call.flops},
                                   {"bytes", call.bytes},
                                   {"lane", call.lane},
                                   {"after", call.after},
                                   {"line", call.loc.text()}};
      if (!call.kernel.empty()) entry["kernel"] = call.kernel;
      if (call.kind == ir::CallKind::gemm) {
        entry["gemm"] = {{"m", call.gemm.m}, {"n", call.gemm.n}, {"k", call.gemm.k}, {"batch", call.gemm.batch}};
        if (call.gemm.has_bias()) entry["gemm"]["bias"] = true;
      }
      for (const ir::Access& access : call.args)
        entry["args"].push_back({{"buffer", buffer_name(plan, access.buffer)}, {"mode", ir::access_mode_name(access.mode)}});
      list.push_back(std::move(entry));
    }
  }
  return json;
}

std::string plan_buffers(const Plan& plan, const std::string& name) {
  const std::vector<int> wanted = chosen(plan, name);
  std::string text;
  for (const Buffer& buffer : plan.buffers) {
    const bool shown = name.empty() || std::find(wanted.begin(), wanted.end(), buffer.program) != wanted.end();
    if (shown) text += buffer_line(plan, buffer) + "\n";
  }
  return text;
}

nlohmann::ordered_json plan_buffers_json(const Plan& plan, const std::string& name) {
  const std::vector<int> wanted = chosen(plan, name);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Buffer& buffer : plan.buffers) {
    if (!name.empty() && std::find(wanted.begin(), wanted.end(), buffer.program) == wanted.end()) continue;
    const bool view = buffer.view_of != ir::kNoBuffer;
    json.push_back({{"name", buffer.name},
                    {"type", buffer.type.text()},
                    {"role", ir::buffer_role_name(buffer.role)},
                    {"arena", plan.arenas[static_cast<size_t>(buffer.arena)].name},
                    {"offset", buffer.offset},
                    {"bytes", buffer.bytes},
                    {"first", buffer.first},
                    {"last", buffer.last},
                    {"view_of", view ? nlohmann::ordered_json(buffer_name(plan, buffer.view_of)) : nullptr}});
  }
  return json;
}

namespace {

std::map<std::string, int64_t> kernel_uses(const Plan& plan) {
  std::map<std::string, int64_t> uses;
  for (const Program& program : plan.programs) {
    for (const Call& call : program.calls) ++uses[call.kernel];
  }
  return uses;
}

}  // namespace

std::string plan_kernels(const Plan& plan) {
  std::map<std::string, int64_t> uses = kernel_uses(plan);
  std::string text;
  for (const ir::Kernel& kernel : plan.kernels) {
    text += fmt::format("{:<40} {:>4} calls  {} args  {}  {}", kernel.name, uses[kernel.name], kernel.args, kernel.image,
                        kernel.source);
    if (kernel.registers > 0) {
      text += fmt::format("  {} threads, {} registers, {} shared, {} spilled", kernel.threads, kernel.registers,
                          bytes_text(kernel.shared_bytes), bytes_text(kernel.spill_bytes));
    }
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json plan_kernels_json(const Plan& plan) {
  std::map<std::string, int64_t> uses = kernel_uses(plan);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ir::Kernel& kernel : plan.kernels) {
    json.push_back({{"name", kernel.name},
                    {"calls", uses[kernel.name]},
                    {"registers", kernel.registers},
                    {"shared_bytes", kernel.shared_bytes},
                    {"spill_bytes", kernel.spill_bytes}});
  }
  return json;
}

std::string plan_why(const Plan& plan, const std::string& name) {
  std::string text;
  for (const ir::Binding& binding : plan.bindings) {
    const ir::Variable& v = binding.variable;
    if (v.name != name) continue;
    text += fmt::format("{} {}: {} = \"{}\", lr x {}, decay x {}  {}\n", ir::variable_role_name(v.role), v.name, v.type.text(),
                        v.init, v.lr_factor, v.decay_factor, v.loc.text());
  }
  std::set<ir::BufferId> ids;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& buffer = plan.buffers[i];
    if (buffer.name != name && !buffer.name.ends_with("/" + name)) continue;
    ids.insert(static_cast<ir::BufferId>(i));
    text += buffer_line(plan, buffer) + (buffer.loc.known() ? "  " + buffer.loc.text() : "") + "\n";
  }
  for (const Program& program : plan.programs) {
    for (size_t i = 0; i < program.calls.size(); ++i) {
      const Call& call = program.calls[i];
      const bool touches =
          std::any_of(call.args.begin(), call.args.end(), [&](const ir::Access& a) { return ids.contains(a.buffer); });
      if (touches || call.label == name) text += fmt::format("  @{} call {}: {}\n", program.name, i, call_text(plan, call));
    }
  }
  return text;
}

}  // namespace ingot::tools
