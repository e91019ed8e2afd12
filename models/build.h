// Description -> graph: instantiates blocks, resolves names, makes ops.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/graph/builder.h"
#include "models/config.h"
#include "models/description.h"
#include "models/report.h"

namespace ingot::models {

/// One graph and the variables it was built with.
struct Built {
  ir::Graph graph;
  std::vector<ir::Variable> variables;       ///< parameters, then hypers
  std::map<std::string, ir::ValueId> names;  ///< every name in the model with its prefix; several may mean one value
  std::vector<std::string> residual;         ///< the first carried value, and what the blocks make of it elementwise
};

struct BuildOptions {
  std::string graph_name;
  bool with_loss = true;          ///< outputs loss and count, all inputs; without: model outputs and what they need alone
  std::vector<std::string> keep;  ///< extra outputs by full name
};

/// Mistakes go to `report`; the graph is complete only when it stayed empty. `config` must hold the stack's length in `layers`.
Built build_graph(const Description& model, const Config& config, const std::map<std::string, double>& train,
                  const BuildOptions& options, Report& report);

/// The stack's block names, or an empty list after reporting.
std::vector<std::string> stack_blocks(const Description& model, const Config& config, Report& report);

}  // namespace ingot::models
