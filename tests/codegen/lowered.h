// Graph in, calls out, as text.
#pragma once
#include <regex>
#include <sstream>
#include <string>

#include "codegen/lower.h"
#include "ir/graph/text.h"
#include "tests/codegen/fake_target.h"

namespace ingot::codegen {

/// The plan of a module's graphs, as the fake target lowers them.
inline ir::Plan plan_of(const std::string& text, const FakeTarget& target = {}, const CompileOptions& options = {}) {
  const ir::Module module = ir::parse_module(text);
  std::vector<std::pair<std::string, ir::Graph>> programs;
  for (const ir::Graph& graph : module.graphs) {
    if (graph.name() != "prepare") programs.emplace_back(graph.name(), graph);
  }
  return assemble(module, programs, target, options);
}

/// Local buffers and the calls of program @p whose ops are `body`. Kernel names are shown without their hash; lines that say
/// nothing about lowering are left out.
inline std::string lowered(const std::string& body, const FakeTarget& target = {}, const std::string& variables = "",
                           int lanes = 1) {
  CompileOptions options;
  options.lanes = lanes;
  const std::string level = body.find("fuse(") == std::string::npos ? "core" : "fused";
  const std::string text =
      ir::print_plan(plan_of("module m\n" + variables + "graph @p at " + level + " {\n" + body + "}\n", target, options));
  static const std::regex hash("_[0-9a-f]{16}"), loc(" loc\\([^)]*\\)"), counts(" (flops|bytes) .*");
  std::istringstream lines(std::regex_replace(std::regex_replace(text, hash, ""), loc, ""));
  std::string out;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    inside = line == "program p {" || (inside && line != "}");
    if (line.starts_with("buffer %\"p/")) out += line + "\n";
    if (inside && line.starts_with("  ")) out += std::regex_replace(line.substr(2), counts, "") + "\n";
  }
  return out;
}

}  // namespace ingot::codegen
