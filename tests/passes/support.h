// What the pass tests share: text through passes, graphs through the interpreter, and how far two answers are apart.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/interpret.h"
#include "ir/graph/op_def.h"
#include "passes/pass.h"

namespace ingot::tests {

using Named = std::map<std::string, ir::Tensor>;

/// A module, or bare op lines (then graph @main of a module without declarations).
ir::Module read_module(const std::string& text, const std::string& file = "case");

/// The module's first graph through the pipeline, put back in its place. Every pass goes through the text form and back.
void run_passes(ir::Module& module, const std::string& pipeline);

/// What a case file says after `=>`: the printed module after the passes, "unchanged", or "error LINE:COL: MESSAGE" (one line
/// per mistake). Bare op lines come back as a bare graph.
std::string pass_result(const std::string& text, const std::string& pipeline);

/// Outputs and updates in one map: "output x", "update w".
Named evaluate(const ir::Graph& graph, const Named& inputs, const Named& variables, ir::InterpretOptions options = {});

/// The largest difference, relative to the larger of 1 and the largest element; infinity when names, shapes or the places of
/// what is not finite differ. Dtypes may differ.
double distance(const Named& a, const Named& b);
double distance(const ir::Tensor& a, const ir::Tensor& b);

/// The same to the last bit, signs of zeros included; any NaN equals any other. Dtypes may differ.
bool identical(const Named& a, const Named& b);

/// The initial numbers of a test: uniform draws for every param and state, `hypers` for the rest.
Named draw_variables(const ir::Module& module, uint64_t seed, const std::map<std::string, double>& hypers = {});

/// The graph as text without locations.
std::string text_of(const ir::Graph& graph);

}  // namespace ingot::tests
