// The text form of modules and graphs: parse(print(m)) equals m field by field, print(parse(print(m))) == print(m).
//
//   module rwkv7
//   info width = "64"
//   hyper %lr: f32[] = "6e-4"
//   param %w: f32[768, 1536] = "orthogonal(1)" {lr: 1.0, decay: 1.0}  loc("m.yaml":30:7)
//   state %step: i32[] = "0"
//   range tokens 0..100 or [-100]
//   optimizer rule "adamw(lr, beta1, beta2, adam_eps, decay)" loc(..)
//   pin "*.dt_t"
//   graph @gate at fused {
//     input %x: bf16[8, 128, 768]
//     param %w: bf16[768, 1536]
//     %h = matmul(%x, %w) {ta: false, tb: false}: bf16[8, 128, 1536] loc("m.yaml":41:30)
//     %0 = fuse(%h) {kind: "row"} (%a: bf16[8, 128, 1536]) {
//       %1 = silu(%a): f32[8, 128, 1536]
//       yield %1
//     }: bf16[8, 128, 1536]
//     output y = %0
//     update %w = %h
//   }
//
// Phases other than forward print as a `backward ` / `recompute ` / `optimizer ` word before the op. Locations are
// optional on input; `PrintOptions::locations = false` leaves them out (pass tests). Types are written and checked:
// parsing infers every op's results again and refuses a type that differs. Comments run from // to the end of the line.
#pragma once
#include <string>
#include <string_view>

#include "ir/graph/graph.h"

namespace ingot::ir {

struct PrintOptions {
  bool locations = true;
};

std::string print(const Module& module, PrintOptions options = {});
std::string print(const Graph& graph, PrintOptions options = {});

/// `file` names the text in diagnostics. Mistakes are located UserErrors in that file. The result is verified.
Module parse_module(std::string_view text, std::string_view file = "<text>");
/// A lone `graph @name at level { ... }`, or bare op lines (then a graph "main" at model level). Variables it reads are not checked.
Graph parse_graph(std::string_view text, std::string_view file = "<text>");

}  // namespace ingot::ir
