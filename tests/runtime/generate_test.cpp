// Sampling, and generation with a carried state.
#include "runtime/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/runtime/bigram.h"
#include "tests/runtime/scratch_folder.h"

namespace ingot::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SampleOptions sampling(double temperature, double top_p, uint64_t seed = 0) {
  SampleOptions o;
  o.temperature = temperature, o.top_p = top_p, o.seed = seed;
  return o;
}

std::map<int64_t, int> counts(const SampleOptions& options, const std::vector<double>& logits, int draws) {
  Sampler sampler(options);
  std::map<int64_t, int> seen;
  for (int i = 0; i < draws; ++i) ++seen[sampler.draw(logits)];
  return seen;
}

TEST(Sampler, TemperatureZeroTakesTheFirstLikeliest) { EXPECT_EQ(Sampler(sampling(0, 1)).draw({1, 3, 3, 2}), 1); }

TEST(Sampler, DrawsInProportion) {
  const auto seen = counts(sampling(1, 1), {0, std::log(3.0), -INFINITY}, 8000);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_NEAR(seen.at(1), 6000, 200);
  const auto cool = counts(sampling(0.5, 1), {0, std::log(3.0)}, 8000);
  EXPECT_NEAR(cool.at(1), 7200, 150);
}

TEST(Sampler, TopPKeepsTheLikeliest) {
  const std::vector<double> logits{std::log(0.5), std::log(0.3), std::log(0.2)};
  EXPECT_EQ(counts(sampling(1, 0.5), logits, 500).size(), 1u);
  EXPECT_EQ(counts(sampling(1, 0.6), logits, 500).size(), 2u);
  EXPECT_EQ(counts(sampling(1, 1), logits, 500).size(), 3u);
}

TEST(Sampler, SeedsRepeat) {
  const std::vector<double> logits(50, 0.0);
  const auto sequence = [&](uint64_t seed) {
    Sampler sampler(sampling(1, 1, seed));
    std::vector<int64_t> out;
    for (int i = 0; i < 20; ++i) out.push_back(sampler.draw(logits));
    return out;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
}

TEST(Sampler, RefusesBadOptions) {
  EXPECT_THAT(error_of([] { Sampler s(sampling(-1, 1)); }), HasSubstr("a temperature of -1"));
  EXPECT_THAT(error_of([] { Sampler s(sampling(1, 0)); }), HasSubstr("a top-p of 0"));
  EXPECT_THAT(error_of([] {
                Sampler s(sampling(1, 1));
                s.draw({NAN, NAN});
              }),
              HasSubstr("not finite"));
}

std::vector<int64_t> drawn(Session& session, const std::vector<int64_t>& prompt, int64_t count) {
  std::vector<int64_t> tokens;
  generate(session, prompt, count, sampling(0, 1), [&](int64_t t) { return tokens.push_back(t), true; });
  return tokens;
}

// The table prefers repetition; the carried count of tokens seen makes it ever less likely, and starts anew each time.
TEST(Generate, CarriesStateAndStartsFromZero) {
  BigramOptions model;
  model.vocab = 3;
  auto session = Session::open(bigram_plan(model), {});
  session->initialise(1);
  session->write_variable("table", HostTensor::from_doubles({ir::DType::f32, {3, 3}}, {3.5, 1, 0, 0, 3.5, 1, 1, 0, 3.5}));
  EXPECT_THAT(drawn(*session, {0}, 5), ElementsAre(0, 0, 1, 2, 0));
  EXPECT_THAT(drawn(*session, {0}, 5), ElementsAre(0, 0, 1, 2, 0));
  EXPECT_THAT(drawn(*session, {0, 0, 0}, 2), ElementsAre(1, 2));
}

TEST(Generate, StopsWhenToldAndRefusesEmptyPrompts) {
  BigramOptions model;
  auto session = Session::open(bigram_plan(model), {});
  session->initialise(1);
  int heard = 0;
  generate(*session, {65}, 100, {}, [&](int64_t) { return ++heard < 3; });
  EXPECT_EQ(heard, 3);
  EXPECT_THAT(error_of([&] { drawn(*session, {}, 1); }), HasSubstr("an empty prompt"));
  EXPECT_THAT(error_of([&] { drawn(*session, {300}, 1); }),
              HasSubstr("token 300 (number 1) is outside the vocabulary, 0 .. 255"));
}

}  // namespace
}  // namespace ingot::runtime
