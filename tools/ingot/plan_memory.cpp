#include "tools/ingot/plan_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "ir/graph/text.h"
#include "passes/traffic.h"
#include "tools/ingot/plan_text.h"
#include "tools/shared/units.h"

namespace ingot::tools {
namespace {

using ir::Buffer;
using ir::Plan;

constexpr size_t kShown = 12;

bool is_view(const Buffer& buffer) { return buffer.view_of != ir::kNoBuffer; }
bool placed_per_program(const Buffer& b) { return b.role == ir::BufferRole::temp || b.role == ir::BufferRole::workspace; }

/// "file:line", without the column.
std::string line_text(const ir::Loc& loc) {
  if (!loc.known()) return "";
  const std::string text = loc.text();
  const size_t column = text.rfind(':');
  return column == std::string::npos ? text : text.substr(0, column);
}

template <class Key>
std::vector<std::pair<Key, int64_t>> largest_first(const std::map<Key, int64_t>& sums) {
  std::vector<std::pair<Key, int64_t>> list(sums.begin(), sums.end());
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return list;
}

ProgramMemory memory_of(const Plan& plan, int program, const std::vector<int64_t>& live) {
  ProgramMemory memory;
  memory.program = plan.programs[static_cast<size_t>(program)].name;
  const auto peak = std::max_element(live.begin(), live.end());
  memory.call = static_cast<int>(peak - live.begin());
  memory.bound = *peak;
  std::map<int, std::pair<int64_t, int64_t>> extents;  // per arena
  std::map<std::string, int64_t> lines;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.program != program || is_view(buffer)) continue;
    if (placed_per_program(buffer)) {
      auto& [begin, end] = extents.try_emplace(buffer.arena, buffer.offset, 0).first->second;
      begin = std::min(begin, buffer.offset);
      end = std::max(end, buffer.offset + buffer.bytes);
    }
    if (buffer.first >= 0 && (buffer.first > memory.call || buffer.last < memory.call)) continue;
    memory.alive.push_back(&buffer);
    memory.by_role[buffer.role] += buffer.bytes;
    lines[line_text(buffer.loc)] += buffer.bytes;
    if (placed_per_program(buffer)) memory.temps += buffer.bytes;
  }
  for (const auto& [arena, extent] : extents) memory.placed += extent.second - extent.first;
  std::stable_sort(memory.alive.begin(), memory.alive.end(),
                   [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
  memory.by_line = largest_first(lines);
  return memory;
}

std::map<ir::BufferRole, std::pair<int64_t, int64_t>> bytes_by_role(const Plan& plan) {
  std::map<ir::BufferRole, std::pair<int64_t, int64_t>> roles;
  for (const Buffer& buffer : plan.buffers) {
    if (is_view(buffer)) continue;
    roles[buffer.role].first += buffer.bytes;
    ++roles[buffer.role].second;
  }
  return roles;
}

std::string program_text(const Plan& plan, const ProgramMemory& memory) {
  const auto index = static_cast<size_t>(memory.call);
  const ir::Program& program = *plan.find_program(memory.program);
  std::string text = fmt::format("@{}: at most {} alive at once, at call {} ({}); temps {}, placed in {}\n", memory.program,
                                 bytes_text(memory.bound), memory.call, program.calls[index].label, bytes_text(memory.temps),
                                 bytes_text(memory.placed));
  std::vector<std::string> roles;
  for (const auto& [role, bytes] : memory.by_role)
    roles.push_back(fmt::format("{} {}", ir::buffer_role_name(role), bytes_text(bytes)));
  text += fmt::format("  then alive by role: {}\n  by line\n", fmt::join(roles, ", "));
  for (size_t i = 0; i < memory.by_line.size() && i < kShown; ++i) {
    const auto& [line, bytes] = memory.by_line[i];
    text += fmt::format("    {:>10}  {}\n", bytes_text(bytes), line.empty() ? "(no line)" : line);
  }
  if (memory.by_line.size() > kShown) text += fmt::format("    and {} more lines\n", memory.by_line.size() - kShown);
  text += "  largest\n";
  for (size_t i = 0; i < memory.alive.size() && i < kShown; ++i)
    text += "    " + buffer_line(plan, *memory.alive[i]) + "  " + line_text(memory.alive[i]->loc) + "\n";
  if (memory.alive.size() > kShown) text += fmt::format("    and {} smaller ones\n", memory.alive.size() - kShown);
  return text;
}

std::string config_value(const Plan& plan, const std::string& key) {
  for (const auto& [name, value] : plan.info) {
    if (name == key) return value;
  }
  return "";
}

/// Elements of the program's tokens times the config's width, at 16 bits.
double pass_bytes(const Plan& plan, const ir::Graph& graph) {
  const std::string width = config_value(plan, "width");
  const bool whole =
      !width.empty() && std::all_of(width.begin(), width.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!whole) return 0;
  for (const ir::Op& op : graph.ops()) {
    if (op.name() != "input" || graph.value(op.results[0]).name != "tokens") continue;
    return 2.0 * static_cast<double>(graph.type(op.results[0]).elements()) * std::stod(width);
  }
  return 0;
}

/// "blocks.3.att.s" -> "blocks.3": up to the first part that is a number.
std::string layer_of(const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const size_t end = std::min(name.find('.', dot + 1), name.size());
    const std::string part = name.substr(dot + 1, end - dot - 1);
    if (!part.empty() && end < name.size() &&
        std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      return name.substr(0, end);
  }
  return "";
}

ir::Graph fused_training_graph(const Plan& plan) {
  for (const char* program : {"train", "last"}) {
    const auto file = plan.files.find(fmt::format("graphs/{}.fused.ir", program));
    if (file == plan.files.end()) continue;
    ir::Module module = ir::parse_module(file->second, file->first);
    return *module.find_graph(program);
  }
  throw ir::UserError({}, "--saved: the plan keeps no fused graph of a training step; compile the model with one");
}

}  // namespace

std::vector<int64_t> live_bytes(const Plan& plan, int program) {
  const size_t calls = plan.programs[static_cast<size_t>(program)].calls.size();
  std::vector<int64_t> live(calls, 0);
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.program != program || is_view(buffer)) continue;
    const size_t first = buffer.first < 0 ? 0 : static_cast<size_t>(buffer.first);
    const size_t last = buffer.first < 0 ? calls : std::min(calls, static_cast<size_t>(buffer.last) + 1);
    for (size_t i = first; i < last; ++i) live[i] += buffer.bytes;
  }
  return live;
}

std::vector<ProgramMemory> program_memory(const Plan& plan) {
  std::vector<ProgramMemory> list;
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    const std::vector<int64_t> live = live_bytes(plan, static_cast<int>(p));
    if (std::any_of(live.begin(), live.end(), [](int64_t bytes) { return bytes > 0; }))
      list.push_back(memory_of(plan, static_cast<int>(p), live));
  }
  return list;
}

std::string plan_memory(const Plan& plan) {
  std::string text = "arenas\n";
  for (const ir::Arena& arena : plan.arenas) text += fmt::format("  {:<10} {:>10}\n", arena.name, bytes_text(arena.bytes));
  text += "buffers by role (temps and workspaces share bytes)\n";
  for (const auto& [role, sum] : bytes_by_role(plan)) {
    text +=
        fmt::format("  {:<10} {:>10}  in {}\n", ir::buffer_role_name(role), bytes_text(sum.first), plural(sum.second, "buffer"));
  }
  for (const ProgramMemory& memory : program_memory(plan)) text += program_text(plan, memory);
  return text;
}

nlohmann::ordered_json plan_memory_json(const Plan& plan) {
  nlohmann::ordered_json json;
  for (const ir::Arena& arena : plan.arenas) json["arenas"][arena.name] = arena.bytes;
  for (const auto& [role, sum] : bytes_by_role(plan))
    json["roles"][std::string(ir::buffer_role_name(role))] = {{"bytes", sum.first}, {"buffers", sum.second}};
  for (const ProgramMemory& memory : program_memory(plan)) {
    nlohmann::ordered_json entry{{"call", memory.call},
                                 {"makes", plan.find_program(memory.program)->calls[static_cast<size_t>(memory.call)].label},
                                 {"bound", memory.bound},
                                 {"temps", memory.temps},
                                 {"placed", memory.placed}};
    for (const auto& [role, bytes] : memory.by_role) entry["by_role"][std::string(ir::buffer_role_name(role))] = bytes;
    for (const auto& [line, bytes] : memory.by_line) entry["by_line"].push_back({{"line", line}, {"bytes", bytes}});
    for (const Buffer* buffer : memory.alive)
      entry["alive"].push_back({{"name", buffer->name}, {"bytes", buffer->bytes}, {"line", line_text(buffer->loc)}});
    json["programs"][memory.program] = std::move(entry);
  }
  return json;
}

SavedReport saved_report(const Plan& plan) {
  const ir::Graph graph = fused_training_graph(plan);
  SavedReport report;
  report.pass_bytes = pass_bytes(plan, graph);
  for (ir::ValueId id : passes::saved_values(graph)) {
    const ir::Value& value = graph.value(id);
    SavedValue saved{value.name, layer_of(value.name), line_text(graph.maker(id).loc), value.type, 0};
    if (report.pass_bytes > 0) saved.passes = static_cast<double>(value.type.bytes()) / report.pass_bytes;
    const auto layer =
        std::find_if(report.per_layer.begin(), report.per_layer.end(), [&](const auto& l) { return l.first == saved.layer; });
    if (layer == report.per_layer.end())
      report.per_layer.emplace_back(saved.layer, saved.passes);
    else
      layer->second += saved.passes;
    report.values.push_back(std::move(saved));
  }
  return report;
}

std::string saved_text(const SavedReport& report) {
  std::string text;
  int64_t bytes = 0;
  for (const SavedValue& value : report.values) {
    bytes += value.type.bytes();
    text +=
        fmt::format("{:>10} {:>8}  {:<44} {}  {}\n", bytes_text(value.type.bytes()),
                    report.pass_bytes > 0 ? fmt::format("{:.2f}", value.passes) : "-", value.name, value.type.text(), value.line);
  }
  text += fmt::format("{} in {} that the forward makes and the backward reads\n", bytes_text(bytes),
                      plural(static_cast<int64_t>(report.values.size()), "value"));
  if (report.pass_bytes == 0) return text;
  text += fmt::format("in passes of [tokens, width] at 16 bits, {} each:\n", bytes_text(static_cast<int64_t>(report.pass_bytes)));
  for (const auto& [layer, passes] : report.per_layer)
    text += fmt::format("  {:<16} {:.2f}\n", layer.empty() ? "(no layer)" : layer, passes);
  return text;
}

nlohmann::ordered_json saved_json(const SavedReport& report) {
  nlohmann::ordered_json json{{"pass_bytes", report.pass_bytes}};
  for (const auto& [layer, passes] : report.per_layer) json["per_layer"][layer] = passes;
  json["values"] = nlohmann::ordered_json::array();
  for (const SavedValue& value : report.values) {
    json["values"].push_back({{"name", value.name},
                              {"line", value.line},
                              {"type", value.type.text()},
                              {"bytes", value.type.bytes()},
                              {"passes", value.passes},
                              {"layer", value.layer}});
  }
  return json;
}

}  // namespace ingot::tools
