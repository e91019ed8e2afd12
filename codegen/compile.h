// Graph in, plan out: pipelines for every program, lowering, memory, kernels.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/target.h"
#include "ir/graph/graph.h"
#include "ir/plan/plan.h"
#include "passes/pass.h"

namespace ingot::codegen {

struct CompileOptions {
  std::string precision = "f32";    ///< f32, bf16 or f16: what gemms and kernels compute in
  std::string grads = "f32";        ///< dtype parameter gradients are stored in
  std::string recompute = "cheap";  ///< none, cheap, block, or bytes to keep ("20GiB"): which forward values the backward makes
                                    ///< again (passes/recompute.cpp)
  bool explain_fuse = false;        ///< remarks: for each edge not fused, which rule or cost refused it
  bool explain_lerp = false;        ///< remarks: for each product of mixed rows, what it would save and cost to take it apart
  int head_chunks = 0;              ///< parts in which logits are made (passes/chunk_head.cpp); 0: as their bytes ask for
  int microbatches = 1;             ///< > 1: programs first/next/last instead of train
  /// Training programs begin with the states that the window before left (truncated backpropagation through time).
  bool carry_state = false;
  /// Programs to make, of: train (or first/next/last), eval, decode, verify. init and prepare are always made.
  std::vector<std::string> programs = {"train", "eval", "decode"};
  std::string document_end;  ///< id of the token that ends a document, "" = one text; build_program() reads it from the module
  bool reuse_memory = true;  ///< false: every temp has bytes of its own (the planner's test oracle)
  int lanes = 0;             ///< calls that may run beside each other (codegen/lanes.h); 0: Target::lanes
  bool biases_of_kernels =
      false;  ///< gemms make sums with a bias for hand-written kernels too (passes/bias.cpp); no command sets it
  // What the passes ask the target (for_target, which compile() calls); without one no operations are added to save bytes.
  bool adds_other_dtypes = true;     ///< Target::adds_other_dtypes
  GemmCosts gemm_costs;              ///< Target::gemm_costs
  passes::PipelineOptions pipeline;  ///< dumps, disabled passes, timing, stop-after
};

/// The pass pipeline of one program, as text with a reason per line (`ingot compile --stop-after`, `opt --passes` take parts of
/// it).
std::string program_pipeline(const std::string& program, const CompileOptions& options);
/// Runs that pipeline: @loss or @decode of `module` -> the core graph of `program`. New variables (moments, counters, carried
/// states, gradient accumulators) are added to `module`.
ir::Graph build_program(ir::Module& module, const std::string& program, const CompileOptions& options);

/// These options with all that passes ask the target. It must outlive them.
CompileOptions for_target(CompileOptions options, const Target& target);

/// The whole way. `sources` are files to keep in the plan ("model.yaml").
ir::Plan compile(ir::Module module, const Target& target, const CompileOptions& options,
                 const std::map<std::string, std::string>& sources = {});

}  // namespace ingot::codegen
