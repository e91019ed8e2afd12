#include "runtime/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/base/error.h"
#include "runtime/carried.h"

namespace ingot::runtime {
namespace {

const char* const kProgram = "decode";

// One token in every row of the decode batch; the logits of the first row.
std::vector<double> feed(Session& session, const ir::Type& input, int64_t token) {
  const std::vector<double> row(static_cast<size_t>(input.elements()), static_cast<double>(token));
  session.set_input(kProgram, "tokens", HostTensor::from_doubles(input, row));
  session.run(kProgram);
  const HostTensor logits = session.output(kProgram, "logits");
  std::vector<double> values = logits.to_doubles();
  values.resize(static_cast<size_t>(logits.type.shape.back()));
  return values;
}

}  // namespace

Sampler::Sampler(const SampleOptions& options) : options_(options), random_(random_key(options.seed, "sample", 0)) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    throw ir::UserError(ir::Loc{}, fmt::format("a temperature of {}; it is 0 or more", options.temperature));
  }
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw ir::UserError(ir::Loc{}, fmt::format("a top-p of {}; it is above 0, at most 1", options.top_p));
}

int64_t Sampler::draw(const std::vector<double>& logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return !std::isfinite(logits[i]); });
  if (order.empty()) throw ir::UserError(ir::Loc{}, "the model's logits are not finite");
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  if (options_.temperature == 0) return static_cast<int64_t>(order[0]);
  std::vector<double> weight(order.size());
  double total = 0;
  for (size_t i = 0; i < order.size(); ++i)
    total += weight[i] = std::exp((logits[order[i]] - logits[order[0]]) / options_.temperature);
  double kept = 0;
  size_t n = 0;
  while (n < order.size() && kept < options_.top_p * total) kept += weight[n++];
  double at = random_.uniform(draws_++) * kept;
  for (size_t i = 0; i + 1 < n; ++i) {
    at -= weight[i];
    if (at < 0) return static_cast<int64_t>(order[i]);
  }
  return static_cast<int64_t>(order[n - 1]);
}

void check_generate(const Session& session, const std::vector<int64_t>& prompt, const SampleOptions& options) {
  const ir::Program* program = session.plan().find_program(kProgram);
  if (!program || program->inputs.empty()) throw ir::UserError(ir::Loc{}, "the plan has no decode program to generate with");
  if (prompt.empty()) throw ir::UserError(ir::Loc{}, "an empty prompt: the model needs at least one token to start from");
  for (const ir::InputRange& range : session.plan().ranges) {
    if (range.input != "tokens") continue;
    const auto bad = std::find_if(prompt.begin(), prompt.end(), [&](int64_t id) { return id < range.lo || id > range.hi; });
    if (bad == prompt.end()) continue;
    throw ir::UserError(ir::Loc{}, fmt::format("the prompt's token {} (number {}) is outside the vocabulary, {} .. {}", *bad,
                                               bad - prompt.begin() + 1, range.lo, range.hi));
  }
  const Sampler checked(options);
}

void generate(Session& session, const std::vector<int64_t>& prompt, int64_t count, const SampleOptions& options,
              const std::function<bool(int64_t)>& on_token) {
  check_generate(session, prompt, options);
  const ir::Type& input = session.plan().buffers[session.plan().find_program(kProgram)->inputs[0].buffer].type;
  Sampler sampler(options);
  zero_carried_states(session, "decode.carry.");
  std::vector<double> logits;
  for (const int64_t token : prompt) logits = feed(session, input, token);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t token = sampler.draw(logits);
    if (!on_token(token) || i + 1 == count) return;
    logits = feed(session, input, token);
  }
}

}  // namespace ingot::runtime
