#include "tools/ingot/graph_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ir/base/text.h"
#include "ir/graph/op_def.h"
#include "ir/graph/text.h"
#include "tools/shared/units.h"

namespace ingot::tools {
namespace {

using ir::Graph;
using ir::Module;
using ir::Op;
using ir::ValueId;

std::map<std::string, int64_t> ops_by_name(const Graph& graph) {
  std::map<std::string, int64_t> counts;
  for (const Op& op : graph.ops()) ++counts[op.def->name];
  return counts;
}

std::vector<std::pair<std::string, int64_t>> most_frequent(const Graph& graph) {
  const std::map<std::string, int64_t> counts = ops_by_name(graph);
  std::vector<std::pair<std::string, int64_t>> list(counts.begin(), counts.end());
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return list;
}

int64_t parameter_count(const Module& module) {
  int64_t count = 0;
  for (const ir::Variable& variable : module.variables) {
    if (variable.role == ir::VariableRole::param) count += variable.type.elements();
  }
  return count;
}

std::map<std::string, int64_t> variables_by_role(const Module& module) {
  std::map<std::string, int64_t> counts;
  for (const ir::Variable& variable : module.variables) ++counts[std::string(ir::variable_role_name(variable.role))];
  return counts;
}

std::string value_line(const Graph& graph, ValueId id) {
  return id == ir::kNone ? "none" : fmt::format("%{}: {}", graph.value(id).name, graph.type(id).text());
}

std::string op_line(const Graph& graph, const Op& op) {
  std::vector<std::string> results, operands, attrs;
  for (ValueId id : op.results) results.push_back(value_line(graph, id));
  for (ValueId id : op.operands) operands.push_back(id == ir::kNone ? "none" : "%" + graph.value(id).name);
  for (const auto& [name, value] : op.attrs) attrs.push_back(name + "=" + ir::attr_text(value));
  operands.insert(operands.end(), attrs.begin(), attrs.end());
  std::string text = fmt::format("{} = {}({})", fmt::join(results, ", "), op.def->name, fmt::join(operands, ", "));
  if (op.phase != ir::Phase::forward) text += fmt::format("  [{}]", ir::phase_name(op.phase));
  if (op.loc.known()) text += "  " + op.loc.text();
  if (op.loc.origin) text += " by " + *op.loc.origin;
  return text;
}

/// "h" is where "h.grad" and "h.2" come from.
bool derives_from(const std::string& derived, const std::string& name) { return derived.starts_with(name + "."); }

const char* phase_color(ir::Phase phase) {
  static constexpr const char* kColors[] = {"#dbe9f6", "#e2f0d9", "#fbe5d6", "#eadcf4"};
  return kColors[static_cast<size_t>(phase)];
}

}  // namespace

std::string module_summary(const Module& module) {
  std::string text = fmt::format("{}: a module\n", module.name);
  std::vector<std::string> roles;
  for (const auto& [role, count] : variables_by_role(module)) roles.push_back(fmt::format("{} {}", count, role));
  if (!roles.empty()) {
    text += fmt::format("  variables   {}; {} parameters\n", fmt::join(roles, ", "),
                        count_text(static_cast<double>(parameter_count(module))));
  }
  if (!module.info.empty()) {
    std::vector<std::string> entries;
    for (const auto& [key, value] : module.info) entries.push_back(key + "=" + value);
    text += fmt::format("  config      {}\n", fmt::join(entries, " "));
  }
  if (!module.optimizer.rule.empty()) {
    text += fmt::format("  optimizer   {}; {}; {}\n", module.optimizer.rule, module.optimizer.schedule, module.optimizer.clip);
  }
  for (const Graph& graph : module.graphs) {
    std::vector<std::string> ops, outputs;
    const auto frequent = most_frequent(graph);
    for (size_t i = 0; i < frequent.size() && i < 8; ++i)
      ops.push_back(fmt::format("{} {}", frequent[i].second, frequent[i].first));
    if (frequent.size() > 8) ops.push_back("...");
    text += fmt::format("  @{:<9}  at {}: {} ({})\n", graph.name(), ir::level_name(graph.level()),
                        plural(static_cast<int64_t>(graph.ops().size()), "op"), fmt::join(ops, ", "));
    for (const ir::Output& output : graph.outputs()) {
      if (outputs.size() == 6) {
        outputs.push_back(fmt::format("... ({} in all)", graph.outputs().size()));
        break;
      }
      outputs.push_back(fmt::format("{}: {}", output.name, graph.type(output.value).text()));
    }
    if (!outputs.empty()) text += fmt::format("              out  {}\n", fmt::join(outputs, ", "));
    if (!graph.updates().empty())
      text += fmt::format("              updates {}\n", plural(static_cast<int64_t>(graph.updates().size()), "variable"));
  }
  return text;
}

nlohmann::ordered_json module_json(const Module& module) {
  nlohmann::ordered_json json{{"name", module.name}, {"parameters", parameter_count(module)}};
  for (const auto& [role, count] : variables_by_role(module)) json["variables"][role] = count;
  for (const auto& [key, value] : module.info) json["config"][key] = value;
  for (const Graph& graph : module.graphs) {
    nlohmann::ordered_json entry{{"name", graph.name()}, {"level", ir::level_name(graph.level())}, {"ops", graph.ops().size()}};
    for (const auto& [name, count] : ops_by_name(graph)) entry["by_op"][name] = count;
    for (const ir::Output& output : graph.outputs())
      entry["outputs"].push_back({{"name", output.name}, {"type", graph.type(output.value).text()}});
    for (const ir::Update& update : graph.updates()) entry["updates"].push_back(update.variable);
    json["graphs"].push_back(entry);
  }
  return json;
}

std::string graph_why(const Graph& graph, const std::string& name) {
  std::string text;
  const ValueId id = graph.find(name);
  if (id != ir::kNone) {
    const Op& op = graph.maker(id);
    text += "  made by  " + op_line(graph, op) + "\n";
    for (ValueId operand : op.operands) {
      if (operand != ir::kNone) text += "  from     " + op_line(graph, graph.maker(operand)) + "\n";
    }
    for (const Op& reader : graph.ops()) {
      if (std::find(reader.operands.begin(), reader.operands.end(), id) != reader.operands.end())
        text += "  read by  " + op_line(graph, reader) + "\n";
    }
    for (const ir::Output& output : graph.outputs()) {
      if (output.value == id) text += fmt::format("  output   {}\n", output.name);
    }
  }
  for (const ir::Update& update : graph.updates()) {
    if (update.variable == name || update.value == id)
      text += fmt::format("  update   %{} = {}\n", update.variable, value_line(graph, update.value));
  }
  for (const ir::Value& value : graph.values()) {
    if (derives_from(value.name, name)) text += "  derived  " + op_line(graph, graph.op(value.op)) + "\n";
  }
  return text.empty() ? text : fmt::format("@{} at {}\n{}", graph.name(), ir::level_name(graph.level()), text);
}

std::string graph_dot(const Graph& graph) {
  std::string text =
      fmt::format("digraph {} {{\n  node [shape=box, style=filled, fontname=\"sans\"];\n", ir::quoted(graph.name()));
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    const std::string result = op.results.empty() ? "" : graph.value(op.results[0]).name;
    text +=
        fmt::format("  op{} [label={}, fillcolor=\"{}\"];\n", i, ir::quoted(op.def->name + "\n" + result), phase_color(op.phase));
  }
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    for (ValueId operand : graph.ops()[i].operands) {
      if (operand == ir::kNone) continue;
      text += fmt::format("  op{} -> op{} [label={}];\n", graph.value(operand).op, i, ir::quoted(graph.type(operand).text()));
    }
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ir::Output& output = graph.outputs()[i];
    text += fmt::format("  out{} [label={}, shape=ellipse, fillcolor=white];\n  op{} -> out{};\n", i, ir::quoted(output.name),
                        graph.value(output.value).op, i);
  }
  for (size_t i = 0; i < graph.updates().size(); ++i) {
    const ir::Update& update = graph.updates()[i];
    text += fmt::format("  update{} [label={}, shape=ellipse, fillcolor=\"#ffe699\"];\n  op{} -> update{};\n", i,
                        ir::quoted("update " + update.variable), graph.value(update.value).op, i);
  }
  return text + "}\n";
}

}  // namespace ingot::tools
