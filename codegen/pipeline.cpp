// The pipelines of all programs, each position with its reason. They differ in what they are made from (@loss, @decode) and
// in the middle; head and tail are the same for all.
#include <fmt/format.h>

#include "codegen/compile.h"
#include "ir/base/error.h"

namespace ingot::codegen {
namespace {

using Lines = std::vector<std::string>;

std::string tiles(const GemmCosts& c) {
  return fmt::format("tile_rows={}, tile_columns={}, tiles_at_a_time={}", c.tile_rows, c.tile_columns, c.tiles_at_a_time);
}

bool trains(const std::string& program) {
  return program == "train" || program == "first" || program == "next" || program == "last";
}

// States and document starts. First of all: they are values of the model, and cast, fold and differentiate like any other.
void carry(Lines& lines, const std::string& program, const CompileOptions& options) {
  const std::string end = options.document_end.empty() ? "" : ", end=" + options.document_end;
  if (program == "decode") {
    lines.push_back("carry{prefix=decode.carry" + end + "}  # from token to token");
  } else if (trains(program) && options.carry_state) {
    lines.push_back("carry{prefix=train.carry, saved=true, finite=true" + end + "}  # from window to window");
  } else if (!end.empty()) {
    lines.push_back("carry{states=false" + end + "}         # each window by itself, of several documents");
  }
}

void head(Lines& lines, const std::string& program, const CompileOptions& options) {
  carry(lines, program, options);
  lines.push_back("canonicalize                    # before autodiff: what is simplified here is never differentiated");
  lines.push_back("fold                            # after the constants have moved together");
  lines.push_back("cse                             # before autodiff: two equal values would get two gradients to add");
  lines.push_back("dce                             # a parameter that only dead values read must be found out by autodiff");
  const bool differentiates = program != "eval" && program != "decode";
  lines.push_back(
      fmt::format("lerp{{dtype={}, gradients={}, flops_per_byte={:.9g}, {}{}}}  # before autodiff: gradients follow what it made",
                  options.precision, differentiates, options.gemm_costs.flops_per_byte, tiles(options.gemm_costs),
                  options.explain_lerp ? ", explain=true" : ""));
  if (options.precision != "f32") {
    lines.push_back(fmt::format("autocast{{dtype={}}}             # before autodiff: gradients follow the dtypes they find",
                                options.precision));
  }
  lines.push_back(
      "configure                       # before autodiff: a gradient reads what its forward op saved, as it saved it");
}

// f16 ends at 6e-8, so its backward works on a multiple of the loss; where no state chooses it (passes/loss_scale.h), 1024.
std::string scale(const std::string& program, const CompileOptions& options) {
  if (options.precision != "f16") return "";
  return trains(program) ? ", scale=state" : ", scale=1024";
}

void gradients(Lines& lines, const std::string& program, const CompileOptions& options) {
  lines.push_back(
      fmt::format("autodiff{{grads={}{}}}             # on composites: their gradients are shorter than those of their pieces",
                  options.grads, scale(program, options)));
}

void middle(Lines& lines, const std::string& program, const CompileOptions& options) {
  if (program == "eval" || program == "decode") return;
  if (program == "verify") return gradients(lines, program, options);
  lines.push_back("outputs{keep=loss+count}        # a step reports its loss; logits kept to its end would cost their bytes");
  gradients(lines, program, options);
  if (program != "train") {
    lines.push_back(
        fmt::format("accumulate{{role={}}}           # on finished gradients, before the optimizer takes them", program));
  }
  if (program == "train" || program == "last") {
    lines.push_back(fmt::format("optimizer{}         # needs every gradient; its scalars are simplified below with the rest",
                                options.precision == "f16" ? "{scaled=true}" : "              "));
  }
}

void tail(Lines& lines, const CompileOptions& options, bool differentiates) {
  lines.push_back("decompose                       # after autodiff and autocast, which know composites");
  lines.push_back("canonicalize                    # pieces of different composites meet for the first time");
  lines.push_back("fold");
  lines.push_back("cse                             # within a phase");
  lines.push_back("dce                             # results that nobody used when their composite was written out");
  if (differentiates) {
    lines.push_back(fmt::format(
        "chunk_head{{chunks={}}}            # on primitives, which work row by row; before recompute, which sees its parts",
        options.head_chunks));
  }
  lines.push_back(
      "gemm_shape                      # before recompute: what a gemm made is kept as it is stored, never made again");
  if (differentiates) {
    lines.push_back(fmt::format("recompute{{mode={}, narrow={}}}          # on primitives: what is cheap is seen piece by piece",
                                options.recompute, options.precision));
    lines.push_back("cse                             # two gradients may have made the same value again");
    lines.push_back("dce                             # forward values that only the backward read");
  }
  lines.push_back(fmt::format(
      "bias{{narrow={}{}{}}}               # on what fuse will see; before prepare, which copies parameters", options.precision,
      options.biases_of_kernels ? ", kernels=true" : "", options.adds_other_dtypes ? "" : ", same_dtype=true"));
  lines.push_back("prepare                         # after cse: one cast per parameter is left to be taken out");
  lines.push_back(fmt::format("fuse{{narrow={}{}}}              # on all that is left: no pass sees into regions",
                              options.precision, options.explain_fuse ? ", explain=true" : ""));
  if (!options.adds_other_dtypes) lines.push_back("split_adds                      # on the dtypes that fuse has settled");
  lines.push_back("schedule                        # on the ops that will be launched; the call order is theirs");
  lines.push_back(fmt::format("siblings{{{}, wide_tile_columns={}}}  # in that order, which it changes by a few calls",
                              tiles(options.gemm_costs), options.gemm_costs.wide_tile_columns));
  lines.push_back("check                           # last");
}

bool known(const std::string& program) {
  for (const char* name : {"train", "first", "next", "last", "eval", "verify", "decode"}) {
    if (program == name) return true;
  }
  return false;
}

}  // namespace

std::string program_pipeline(const std::string& program, const CompileOptions& options) {
  ir::check(known(program), fmt::format("there is no program '{}'", program));
  Lines lines;
  head(lines, program, options);
  middle(lines, program, options);
  tail(lines, options, program != "eval" && program != "decode");
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

ir::Graph build_program(ir::Module& module, const std::string& program, const CompileOptions& wishes) {
  CompileOptions options = wishes;
  for (const auto& [key, value] : module.info) {
    if (key == "eod") options.document_end = value;
  }
  const std::string pipeline = program_pipeline(program, options);
  ir::Graph graph = module.graph(program == "decode" ? "decode" : "loss");
  graph.set_name(program);
  return passes::run_pipeline(graph, module, passes::parse_pipeline(pipeline), options.pipeline, program);
}

}  // namespace ingot::codegen
