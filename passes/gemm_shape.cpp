// gemm_shape: matrix products in the form the gemm library does most of. Each rewrite stands in a file of its own and can be
// switched off (gemm_shape{add=false}):
//
//   add     sums of a product and something else become the gemm's own addition       (gemm_add.cpp)
#include "ir/base/error.h"
#include "passes/gemm_rewrites.h"
#include "passes/passes.h"

namespace ingot::passes {
namespace {

bool wanted(const PassContext& context, std::string_view rewrite) {
  const std::string text = context.option(rewrite, "true");
  if (text != "true" && text != "false") {
    throw ir::UserError({}, "gemm_shape: " + std::string(rewrite) + " is true or false, not '" + text + "'");
  }
  return text == "true";
}

ir::Graph run(const ir::Graph& graph, PassContext& context) { return wanted(context, "add") ? add_into_gemms(graph) : graph; }

}  // namespace

PassInfo gemm_shape_pass() {
  return {"gemm_shape", "Brings matrix products into the form the gemm library does most of.", {"add"}, false, run};
}

}  // namespace ingot::passes
