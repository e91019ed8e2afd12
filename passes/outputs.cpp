// outputs{keep=a+b}: keeps only the named outputs. A training step has no use for the model's own outputs: their buffers
// would stay alive to its end.
//
//   output loss = %l                     output loss = %l
//   output count = %n              =>    output count = %n
//   output logits = %y
#include <algorithm>

#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

ir::Graph run(const ir::Graph& graph, PassContext& context) {
  const std::vector<std::string> keep = split(context.option("keep", "loss+count"), '+');
  ir::Graph out = like(graph);
  ir::Rewriter rw(graph, out);
  for (const ir::Op& op : graph.ops()) rw.copy(op);
  finish_outputs(graph, rw,
                 [&](const ir::Output& output) { return std::find(keep.begin(), keep.end(), output.name) != keep.end(); });
  return out;
}

}  // namespace

PassInfo outputs_pass() { return {"outputs", "Keeps only the named outputs (loss+count).", {"keep"}, false, run}; }

}  // namespace ingot::passes
