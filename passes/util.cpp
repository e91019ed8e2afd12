#include "passes/util.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <unordered_set>

namespace ingot::passes {

using ir::Graph;
using ir::kNone;
using ir::Op;
using ir::Type;
using ir::ValueId;

Graph like(const Graph& graph) {
  Graph empty(graph.name(), graph.level());
  empty.reserve_like(graph);
  return empty;
}

Graph with_names(const Graph& graph, const std::unordered_map<ValueId, std::string>& names) {
  std::unordered_set<std::string> reserved;
  std::unordered_map<ValueId, std::string> granted;
  // Two values may ask for one name: the first gets it, the others stay as they are.
  for (ValueId id = 0; id < graph.values().size(); ++id) {
    const auto at = names.find(id);
    if (at != names.end() && reserved.insert(at->second).second) granted.insert(*at);
  }
  Graph out = like(graph);
  for (const Op& op : graph.ops()) {
    std::vector<std::string> result_names;
    std::vector<Type> types;
    for (ValueId result : op.results) {
      const auto at = granted.find(result);
      std::string name = at != granted.end() ? at->second : graph.value(result).name;
      if (at == granted.end() && reserved.contains(name)) {
        const std::string stem = name + ".";
        for (int n = 2; reserved.contains(name) || graph.find(name) != kNone || out.find(name) != kNone; ++n)
          name = stem + std::to_string(n);
      }
      result_names.push_back(std::move(name));
      types.push_back(graph.type(result));
    }
    out.append(op, std::move(result_names), std::move(types));
  }
  for (const ir::Output& output : graph.outputs()) out.add_output(output);
  for (const ir::Update& update : graph.updates()) out.add_update(update);
  return out;
}

Graph without_dead(const Graph& graph) {
  std::vector<bool> live(graph.values().size(), false);
  for (const ir::Output& output : graph.outputs()) live[output.value] = true;
  for (const ir::Update& update : graph.updates()) live[update.value] = true;
  std::vector<bool> keep(graph.ops().size(), false);
  for (size_t i = graph.ops().size(); i-- > 0;) {
    const Op& op = graph.ops()[i];
    const bool used = std::any_of(op.results.begin(), op.results.end(), [&](ValueId r) { return live[r]; });
    keep[i] = used || op.name() == "input";
    if (!used) continue;
    for (ValueId operand : op.operands) {
      if (operand != kNone) live[operand] = true;
    }
  }
  Graph out = like(graph);
  ir::Rewriter rw(graph, out);
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    if (keep[i]) rw.copy(graph.ops()[i]);
  }
  rw.finish();
  return out;
}

bool commutative(const Op& op) {
  static constexpr std::array<std::string_view, 6> kNames{"add", "mul", "eq", "ne", "logical_and", "logical_or"};
  return op.operands.size() == 2 && std::find(kNames.begin(), kNames.end(), op.name()) != kNames.end();
}

std::vector<bool> follow_inputs(const Graph& graph) {
  std::vector<bool> follows(graph.values().size(), false);
  for (const Op& op : graph.ops()) {
    const bool input = ir::lowering_as<ir::SourceLowering>(op) && read_variable(op).empty();
    const bool here =
        input || std::any_of(op.operands.begin(), op.operands.end(), [&](ValueId v) { return v != kNone && follows[v]; });
    for (const ValueId result : op.results) follows[result] = here;
  }
  return follows;
}

std::string read_variable(const Op& op) { return op.name() == "variable" ? op.attrs.text("name") : ""; }

std::string behind_casts(const Graph& graph, ValueId id) {
  const Op* op = &graph.maker(id);
  while (op->name() == "cast") op = &graph.maker(op->operands[0]);
  return read_variable(*op);
}

std::optional<std::vector<Type>> try_infer(const Graph& graph, const ir::OpDef& def, const std::vector<ValueId>& operands,
                                           const ir::Attrs& attrs) {
  try {
    ir::InferContext context(graph, def, operands, attrs, {});
    def.infer(context);
    return context.take_results();
  } catch (const ir::UserError&) {
    return std::nullopt;
  }
}

double number_option(const PassContext& context, std::string_view pass, const char* option, const char* fallback, double least) {
  const std::string text = context.option(option, fallback);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(value >= least)) {
    throw ir::UserError({}, fmt::format("{}: {} must be a number, {} or more, but is '{}'", pass, option, least, text));
  }
  return value;
}

std::optional<double> constant_value(const Graph& graph, ValueId id) {
  const Op& op = graph.maker(id);
  if (op.name() != "constant") return std::nullopt;
  return op.attrs.real("value");
}

}  // namespace ingot::passes
