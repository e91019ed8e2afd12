// Graphs and modules as a person reads them: summary, where a value comes from, a drawing.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ir/graph/graph.h"

namespace ingot::tools {

std::string module_summary(const ir::Module& module);
nlohmann::ordered_json module_json(const ir::Module& module);
/// The op that makes a value, what it reads, who reads it, and every value derived from it, in one graph. "" when unknown.
std::string graph_why(const ir::Graph& graph, const std::string& name);
/// Graphviz: an op a box coloured by phase, a value an edge with its type.
std::string graph_dot(const ir::Graph& graph);

}  // namespace ingot::tools
