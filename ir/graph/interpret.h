// The reference interpreter: the meaning of a graph, in double, one op after another; the oracle of every test.
#pragma once
#include <map>
#include <string>

#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::ir {

struct InterpretOptions {
  /// Round every op's results to their dtype (the rounding points of an unfused 16-bit or f32 run). Off: pure double.
  bool round = false;
  /// With `round`: also round f32 values to f32.
  bool round_f32 = false;
};

struct InterpretResult {
  std::map<std::string, Tensor> outputs;
  std::map<std::string, Tensor> updates;  ///< new values of updated variables
  std::map<std::string, Tensor> values;   ///< every value by name, when keep_all
};

/// Runs a graph at any level. `inputs` and `variables` by name; missing or misshapen ones are a UserError.
InterpretResult interpret(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                          const std::map<std::string, Tensor>& variables, InterpretOptions options = {},
                          bool keep_all = false);

/// One op alone (used by `fold`). `round`: a `cast` rounds.
std::vector<Tensor> interpret_op(const Graph& graph, const Op& op, const std::vector<const Tensor*>& operands, bool round = true);

}  // namespace ingot::ir
