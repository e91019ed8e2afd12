#include "tools/ingot/alone.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/lower.h"
#include "ir/base/error.h"
#include "ir/base/text.h"
#include "ir/graph/builder.h"
#include "ir/graph/op_def.h"
#include "ir/graph/text.h"
#include "tools/ingot/common.h"

namespace ingot::tools {
namespace {

ir::Module fused_module(const ir::Plan& plan, const std::string& program) {
  const std::string name = fmt::format("graphs/{}.fused.ir", program);
  const auto file = plan.files.find(name);
  if (file != plan.files.end()) return ir::parse_module(file->second, name);
  throw ir::UserError({}, fmt::format("the plan keeps no graph of a program '{}' at level fused", program));
}

const ir::Op& maker_of(const ir::Graph& graph, const std::string& value) {
  const ir::ValueId id = graph.find(value);
  if (id != ir::kNone && !ir::lowering_as<ir::SourceLowering>(graph.maker(id))) return graph.maker(id);
  std::vector<std::string> names;
  for (const ir::Op& op : graph.ops()) {
    for (const ir::ValueId result : op.results) {
      if (op.region) names.push_back(graph.value(result).name);
    }
  }
  const std::string nearest = ir::nearest_name(value, names);
  throw ir::UserError({}, fmt::format("no op of @{} makes a value '{}'{}", graph.name(), value,
                                      nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

}  // namespace

ir::Plan alone(const ir::Plan& whole, const std::string& program, const std::string& value, const std::string& arch) {
  const ir::Module module = fused_module(whole, program);
  const ir::Graph& graph = module.graph(program);
  const ir::Op& op = maker_of(graph, value);
  ir::Graph single(program, ir::Level::fused);
  ir::Rewriter rewriter(graph, single);
  for (const ir::ValueId operand : op.operands) {
    if (operand == ir::kNone || rewriter.mapped(operand)) continue;
    rewriter.map(operand, rewriter.b().input(graph.value(operand).name, graph.type(operand)));
  }
  rewriter.copy(op);
  for (const ir::ValueId result : op.results) single.add_output({graph.value(result).name, rewriter(result), op.loc});
  ir::Module part;
  part.name = module.name;
  part.ranges = module.ranges;
  codegen::CompileOptions options;
  for (const auto& [key, text] : whole.info) {
    if (key == "options.precision") options.precision = text;
  }
  ir::Plan plan = codegen::assemble(part, {{program, single}}, *make_target(whole.target, arch), options);
  plan.info.emplace_back("options.precision", options.precision);
  const std::vector<ir::Call>& calls = plan.find_program(program)->calls;
  const auto computes = [](const ir::Call& call) { return call.kind == ir::CallKind::launch || call.kind == ir::CallKind::gemm; };
  if (std::any_of(calls.begin(), calls.end(), computes)) return plan;
  throw ir::UserError(op.loc, fmt::format("'{}' is made by '{}', which computes nothing", value, op.name()));
}

}  // namespace ingot::tools
