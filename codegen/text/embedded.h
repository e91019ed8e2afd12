// The texts of this folder, embedded by codegen/CMakeLists.txt.
#pragma once
#include <string_view>

namespace ingot::codegen {

extern const std::string_view text_vocabulary_h;
extern const std::string_view text_tasks_cpu_inc;
extern const std::string_view text_reduce_cpu_inc;
extern const std::string_view text_copy_cpu_inc;
extern const std::string_view text_lanes_cpu_inc;
extern const std::string_view text_wkv7_cpu_inc;
extern const std::string_view text_threads_cuda_inc;
extern const std::string_view text_reduce_cuda_inc;
extern const std::string_view text_copy_cuda_inc;
extern const std::string_view text_rows_cuda_inc;
extern const std::string_view text_ring_cuda_inc;
extern const std::string_view text_wkv7_cuda_inc;
extern const std::string_view text_warp_cuda_inc;
extern const std::string_view text_wkv7_tiles_cuda_inc;
extern const std::string_view text_wkv7_chunk_cuda_inc;
extern const std::string_view text_wkv7_chunk_grad_cuda_inc;
extern const std::string_view text_wkv7_segments_cuda_inc;

}  // namespace ingot::codegen
