// The text form of modules and graphs: parse(print(m)) equals m field by field, print(parse(print(m))) == print(m).
//
//   module rwkv7
//   info width = "64"
//   hyper %lr: f32[] = "6e-4"
//   param %w: f32[768, 1536] = "orthogonal(1)" {lr: 2.0, decay: 0.0} loc("m.yaml":30:7)
//   state %step: i32[] = "0"
//   range tokens 0..100 or [-100] loc("m.yaml":12:3)
//   optimizer rule "adamw(lr, beta1, beta2, adam_eps, decay)" loc("m.yaml":90:9)
//   pin "*.dt_t"
//   checkpoint_ignore "blocks.0.att.v0"
//
//   graph @gate at fused {
//     input %x: bf16[8, 128, 768]
//     param %w: bf16[768, 1536]
//     %h = matmul(%x, %w) {ta: false, tb: false}: bf16[8, 128, 1536] loc("m.yaml":41:30 from "autocast")
//     %0 = fuse(%h) {kind: "row"} (%a: bf16[8, 128, 1536]) {
//       %1 = silu(%a): f32[8, 128, 1536]
//       yield %1
//     }: bf16[8, 128, 1536]
//     %y, %last = shift(%0, none, none): bf16[8, 128, 1536], bf16[8, 1536]
//     output y = %y
//     update %w = %h
//   }
//
// Fields of a variable that have their usual value (lr: 1.0, decay: 1.0, trainable: true, saved: true) are not written. Phases
// other than forward print as a word before the op: `backward %g = ...`. A region prints ` @name at level` before its inputs
// when it is not called main or stands at another level. Names beyond letters, digits, _ and . are quoted: %"a b", output "1".
// Locations: `loc("file":line:col from "origin")`; an unknown place prints as loc(unknown). On input a location may be left
// out: then the place in this text counts, so that mistakes in a written graph are reported there. `PrintOptions::locations =
// false` leaves them out (pass tests).
// Types are written and checked: parsing infers every op's results again and refuses a type that differs. Variables are
// declared before the graphs that read them. Newlines separate nothing; comments run from // to the end of the line.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"

namespace ingot::ir {

struct PrintOptions {
  bool locations = true;
};

std::string print(const Module& module, PrintOptions options = {});
std::string print(const Graph& graph, PrintOptions options = {});

/// `file` names the text in diagnostics. Mistakes are located UserErrors in that file. The result is verified.
Module parse_module(std::string_view text, std::string_view file = "<text>");
/// A lone `graph @name at level { ... }`, or bare op lines (then a graph "main" at the first level where every op is
/// legal). Variables it reads are not checked.
/// `range` lines may stand before it (the examples of ops have them); they are added to `ranges`.
Graph parse_graph(std::string_view text, std::string_view file = "<text>", std::vector<InputRange>* ranges = nullptr);

}  // namespace ingot::ir
