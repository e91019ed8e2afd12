// A plan written by hand: a table of next-token logits, trained with plain gradient steps. Small enough to check by eye, and with
// everything the training loop and generation need: hypers, saved states, a carried state, a count, programs by their names.
#pragma once
#include <cstdint>
#include <string>

#include "ir/plan/plan.h"

namespace ingot::runtime {

struct BigramOptions {
  int64_t vocab = 256, batch = 2, time = 8;
  bool microbatches = false;  ///< first/next/last instead of train
  std::string extra_info;     ///< value of the config key "width"
};

/// Programs: init, prepare, train (or first, next, last), eval, decode. Variables: table (param), table.m (saved state), step,
/// lr, steps (hypers), table.acc, loss.acc, count.acc (accumulators), table.copy (compute), decode.carry.seen (carried).
ir::Plan bigram_plan(const BigramOptions& options = {});

}  // namespace ingot::runtime
