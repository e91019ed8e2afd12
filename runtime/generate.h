// Text from a trained model, one token at a time.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/random.h"
#include "runtime/session.h"

namespace ingot::runtime {

struct SampleOptions {
  double temperature = 1;  ///< 0 = always the likeliest
  double top_p = 1;        ///< keep the likeliest tokens that together reach this share
  uint64_t seed = 0;
};

/// Draws tokens from logits; equal seeds draw equal tokens.
class Sampler {
 public:
  /// UserError when temperature or top_p is out of range.
  explicit Sampler(const SampleOptions& options);
  /// UserError when no logit is finite.
  int64_t draw(const std::vector<double>& logits);

 private:
  SampleOptions options_;
  Random random_;
  uint64_t draws_ = 0;
};

/// UserError for a plan, a prompt or options that `generate` cannot work with.
void check_generate(const Session& session, const std::vector<int64_t>& prompt, const SampleOptions& options);

/// Feeds `prompt` (at least one token) to the program `decode`, its carried states zeroed first, then draws `count` tokens, each
/// fed back. `on_token` hears of every drawn token as it comes and stops the generation by returning false.
void generate(Session& session, const std::vector<int64_t>& prompt, int64_t count, const SampleOptions& options,
              const std::function<bool(int64_t)>& on_token);

}  // namespace ingot::runtime
