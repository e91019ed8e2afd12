// What several passes share.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph/builder.h"
#include "ir/graph/graph.h"
#include "passes/pass.h"

namespace ingot::passes {

/// An empty graph of the same name and level, with room for as much.
ir::Graph like(const ir::Graph& graph);

/// The same graph with these values renamed; whoever else had such a name is numbered. Passes that build a value out of
/// several ops use it to give the last of them the name that counts.
ir::Graph with_names(const ir::Graph& graph, const std::unordered_map<ir::ValueId, std::string>& names);

/// The same graph without the ops nothing needs; inputs stay (they are the program's signature).
ir::Graph without_dead(const ir::Graph& graph);

/// f(a, b) equals f(b, a) to the last bit, NaN and signed zeros included.
bool commutative(const ir::Op& op);

/// Per value: does it depend on an input of the program? The others depend on variables alone.
std::vector<bool> follow_inputs(const ir::Graph& graph);

/// The variable an op reads, or "" when it reads none.
std::string read_variable(const ir::Op& op);
/// Looks through casts: the variable whose (cast) value this is, or "".
std::string behind_casts(const ir::Graph& graph, ir::ValueId id);

/// The result types the op would have on these operands and attributes; nullopt when inference refuses them.
std::optional<std::vector<ir::Type>> try_infer(const ir::Graph& graph, const ir::OpDef& def,
                                               const std::vector<ir::ValueId>& operands, const ir::Attrs& attrs);

/// The number an option of the pass gives; UserError when it is none or less than `least`.
double number_option(const PassContext& context, std::string_view pass, const char* option, const char* fallback, double least);

/// What a rank-0 value is at compile time, when a `constant` makes it.
std::optional<double> constant_value(const ir::Graph& graph, ir::ValueId id);

/// Maps outputs and updates as Rewriter::finish, but leaves out the outputs `keep` refuses.
template <class Keep>
void finish_outputs(const ir::Graph& from, ir::Rewriter& rw, Keep keep) {
  for (const ir::Output& output : from.outputs()) {
    if (keep(output)) rw.b().graph().add_output({output.name, rw(output.value), output.loc});
  }
  for (const ir::Update& update : from.updates()) rw.b().graph().add_update({update.variable, rw(update.value), update.loc});
}

}  // namespace ingot::passes
