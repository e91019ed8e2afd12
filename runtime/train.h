// The training loop: steps, validation, metrics, checkpoints, resuming, stopping.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint.h"
#include "runtime/data.h"
#include "runtime/progress.h"
#include "runtime/session.h"
#include "runtime/signals.h"

namespace ingot::runtime {

struct TrainOptions {
  std::string out;            ///< folder of the run; "" = nothing is kept
  int64_t steps = 1000;       ///< of the whole run, resumed or not
  int64_t microbatches = 1;   ///< batches a step; more than 1 needs programs first, next, last
  int64_t save_every = 0;     ///< 0 = at the end only
  int64_t eval_every = 100;   ///< 0 = never
  int64_t eval_batches = 16;  ///< held-out batches an evaluation reads, from the first; 0 = all
  int64_t keep = 3;           ///< checkpoints
  int64_t patience = 5;       ///< steps in a row without a finite loss and norm before the run stops itself
  uint64_t seed = 0;
  std::string init;      ///< weights to start from
  bool partial = false;  ///< they need not fit
  bool resume = false;
  std::string resume_from;                                  ///< this checkpoint and no other
  std::vector<std::string> allow_change;                    ///< config keys a resumed run may differ in
  std::vector<std::pair<std::string, std::string>> hypers;  ///< values set over the plan's own
};

enum class TrainEnd : uint8_t { finished, signal, diverged };

struct TrainResult {
  TrainEnd end = TrainEnd::finished;
  int signal = 0;
  int64_t step = 0;
  std::string checkpoint;  ///< the last one saved, "" when none
  std::string reason;      ///< diverged: the sentence to say
};

/// Before anything slow happens: is OUT free (or, to resume, is there something in it)? UserError.
void check_run_folder(const TrainOptions& options);

/// Runs to the end, to a signal (the step is finished and saved) or until the loss is not finite for too long.
/// Everything that must agree for a resumed run to continue bit-equal (config, hypers, steps, data) is compared; differences are
/// printed and, unless allowed by name, refused.
TrainResult train(Session& session, const TokenData& data, const TrainOptions& options, Progress& progress, Signals& signals);

}  // namespace ingot::runtime
