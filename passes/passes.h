// One function per pass, each in a file of its name. pass.cpp lists them in the order of a full pipeline.
#pragma once
#include "passes/pass.h"

namespace ingot::passes {

PassInfo carry_pass();
PassInfo canonicalize_pass();
PassInfo fold_pass();
PassInfo cse_pass();
PassInfo dce_pass();
PassInfo lerp_pass();
PassInfo autocast_pass();
PassInfo configure_pass();
PassInfo split_adds_pass();
PassInfo outputs_pass();
PassInfo autodiff_pass();
PassInfo accumulate_pass();
PassInfo optimizer_pass();
PassInfo decompose_pass();
PassInfo chunk_head_pass();
PassInfo gemm_shape_pass();
PassInfo recompute_pass();
/// UserError unless it is a mode of that pass.
void check_recompute(const std::string& mode);
PassInfo bias_pass();
PassInfo prepare_pass();
PassInfo fuse_pass();
PassInfo schedule_pass();
PassInfo siblings_pass();
PassInfo check_pass();

}  // namespace ingot::passes
