// Passes: graph in, graph out. A pipeline is text: "autocast{dtype=bf16}, autodiff, decompose, cse, dce, check".
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/error.h"
#include "ir/graph/graph.h"

namespace ingot::passes {

/// What the target wants an op with a hand-tuned kernel to be like (codegen::Target::configure); empty: as it is written.
using KernelAttrs = std::function<ir::Attrs(const ir::Graph&, const ir::Op&)>;

/// What a pass may see and change beside its graph: the module's variables (it may declare new ones), its options, and
/// where it leaves remarks (`--explain`).
struct PassContext {
  ir::Module& module;
  std::map<std::string, std::string> options;  ///< of this pass in the pipeline text
  std::vector<std::string>* remarks = nullptr;
  const KernelAttrs* kernel_attrs = nullptr;

  std::string option(std::string_view name, std::string_view fallback) const;
  /// Adds a variable unless an equal one exists; InternalError when one of that name differs.
  void declare(ir::Variable variable);
};

struct PassInfo {
  std::string name;
  std::string summary;               ///< one sentence
  std::vector<std::string> options;  ///< names it understands
  bool needed = false;               ///< the result cannot do without it: `--disable` refuses
  std::function<ir::Graph(const ir::Graph&, PassContext&)> run;
};

/// All passes, in the order they stand in a full pipeline.
const std::vector<PassInfo>& pass_table();
const PassInfo* find_pass(std::string_view name);

struct PassStep {
  const PassInfo* info = nullptr;
  std::map<std::string, std::string> options;
};
/// Passes with a comma or a line break between; `#` comments run to the end of the line. UserError (located as
/// "<passes>:line:col", with the nearest name) for an unknown pass or option.
std::vector<PassStep> parse_pipeline(std::string_view text);

struct PassTime {
  std::string pass;
  double milliseconds = 0;
  size_t ops_before = 0, ops_after = 0;
};

struct PipelineOptions {
  std::vector<std::string> dump_after;  ///< pass names, or "all"
  std::string dump_dir;                 ///< "<dir>/<program>.<NN>.<pass>.ir", each a whole module that feeds back in
  std::string stop_after;               ///< "" = run all
  std::vector<std::string> disable;     ///< passes to leave out (only those the result can do without)
  bool verify_roundtrip = false;        ///< after each pass print, parse, compare
  std::vector<PassTime>* times = nullptr;
  std::vector<std::string>* remarks = nullptr;
  KernelAttrs kernel_attrs;  ///< for the pass `configure`
};

/// Runs the steps in order, the verifier after each. When a pass throws InternalError, writes "ingot-reproducer-<pass>.ir"
/// (the module before it, with the command that replays it at its head) into dump_dir or the current folder, and says so.
ir::Graph run_pipeline(const ir::Graph& graph, ir::Module& module, const std::vector<PassStep>& steps,
                       const PipelineOptions& options = {}, std::string_view program = "main");

}  // namespace ingot::passes
