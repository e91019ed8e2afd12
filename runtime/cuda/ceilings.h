// What the card present can do at most, measured now: the figures `ingot bench` holds its own against.
#pragma once
#include <string>

#include "ir/base/type.h"

namespace ingot::runtime::cuda {

/// Of a product of three square matrices of 8192 rows and columns, random data: flop/s, the median of some repetitions.
double gemm_ceiling(ir::DType dtype);
/// Of a copy of 2 GiB on the card: bytes read and written per second, the median of some repetitions.
double copy_ceiling();
/// "NVIDIA H200"
std::string card_name();

}  // namespace ingot::runtime::cuda
