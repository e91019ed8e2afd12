// dce: drops what nothing needs. Outputs, updates and what they are made of stay; so do the inputs, which are the
// program's signature.
//
//   input %x: f32[2]                     input %x: f32[2]
//   input %z: f32[2]                     input %z: f32[2]
//   %a = exp(%x): f32[2]           =>    %b = tanh(%x): f32[2]
//   %b = tanh(%x): f32[2]                output y = %b
//   output y = %b
#include "passes/passes.h"
#include "passes/util.h"

namespace ingot::passes {

PassInfo dce_pass() {
  return {"dce", "Drops ops whose results nothing needs.", {}, false, [](const ir::Graph& graph, PassContext&) {
            return without_dead(graph);
          }};
}

}  // namespace ingot::passes
