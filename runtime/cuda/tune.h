// Plan in, tuned plan out: every distinct product of a plan gets the algorithm of cuBLASLt that is fastest on the card present.
#pragma once
#include "ir/plan/plan.h"
#include "runtime/cuda/blas.h"

namespace ingot::runtime::cuda {

/// Times the library's suggestions for every product on random data, in place where the plan adds in place, checks each answer
/// against that of its first suggestion, and writes the choice into ir::Gemm::algorithm. What is chosen is part of the plan, so
/// every run of it computes the same bits. A plan for another architecture than the card's comes back as it was. MachineError
/// without a card.
ir::Plan tune(ir::Plan plan);

/// Gives every product of `plan` the algorithm that an equal one has in `tuned`: how a run that goes on computes the bits it
/// began with. Products that `tuned` does not have keep theirs.
ir::Plan with_algorithms_of(ir::Plan plan, const ir::Plan& tuned);

/// Is there a product with a bias in the plan for which this card's library has no kernel? Then a plan without such products is
/// wanted. Asks for a card and the library only when there are any.
bool lacks_bias_kernels(const ir::Plan& plan);
/// The same of that library, for its card.
bool lacks_bias_kernels(const ir::Plan& plan, const Blas& blas);

}  // namespace ingot::runtime::cuda
