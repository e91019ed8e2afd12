#include "codegen/memory.h"

#include <gtest/gtest.h>

#include <random>

namespace ingot::codegen {
namespace {

int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Call by call, the obvious way.
int64_t most_live(const std::vector<Life>& lives) {
  int last = 0;
  for (const Life& life : lives) last = std::max(last, life.last);
  int64_t most = 0;
  for (int call = 0; call <= last; ++call) {
    int64_t now = 0;
    for (const Life& life : lives) now += life.first <= call && call <= life.last ? rounded(life.bytes) : 0;
    most = std::max(most, now);
  }
  return most;
}

void expect_sound(const std::vector<Life>& lives, const Placement& placement) {
  ASSERT_EQ(placement.offsets.size(), lives.size());
  for (size_t i = 0; i < lives.size(); ++i) {
    ASSERT_GE(placement.offsets[i], 0);
    ASSERT_EQ(placement.offsets[i] % 256, 0);
    ASSERT_LE(placement.offsets[i] + lives[i].bytes, placement.bytes);
    for (size_t j = 0; j < i; ++j) {
      if (lives[i].last < lives[j].first || lives[j].last < lives[i].first) continue;
      const bool apart = placement.offsets[i] + lives[i].bytes <= placement.offsets[j] ||
                         placement.offsets[j] + lives[j].bytes <= placement.offsets[i];
      ASSERT_TRUE(apart) << i << " and " << j;
    }
  }
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }

 private:
  std::mt19937_64 engine_;
};

// A network of layers: saved values live from the forward into the backward of their layer, others die within the layer.
std::vector<Life> training_step(uint64_t seed) {
  Dice dice(seed);
  const int layers = 6 + static_cast<int>(dice.below(12)), per_layer = 25 + static_cast<int>(dice.below(25));
  const int64_t unit = 256 * (16 + dice.below(64));
  const int calls = 2 * layers * per_layer;
  std::vector<Life> lives;
  for (int layer = 0; layer < layers; ++layer) {
    Dice same(seed * 31 + 7);  // every layer is alike
    for (int k = 0; k < per_layer; ++k) {
      const int at = layer * per_layer + k, mirror = calls - 1 - at;
      static constexpr int64_t kSizes[] = {1, 1, 1, 1, 2, 4, 4};
      const int64_t bytes = unit * kSizes[same.below(7)];
      if (same.below(3) == 0) {
        lives.push_back({bytes, at, mirror});
      } else {
        lives.push_back({bytes, at, std::min(at + 1 + static_cast<int>(same.below(6)), calls / 2)});
      }
      lives.push_back({bytes, mirror, std::min(mirror + 1 + static_cast<int>(same.below(5)), calls - 1)});
      if (same.below(5) == 0) lives.push_back({4, at, mirror});
    }
  }
  return lives;
}

TEST(Memory, NothingNeedsNothing) {
  const Placement placement = place({});
  EXPECT_EQ(placement.bytes, 0);
  EXPECT_EQ(placement.bound, 0);
}

TEST(Memory, BytesAreTakenOverAfterTheLastCall) {
  const Placement placement = place({{1000, 0, 1}, {1000, 2, 3}});
  EXPECT_EQ(placement.offsets, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(placement.bytes, 1024);
}

TEST(Memory, NotWithinOneCall) {
  const Placement placement = place({{1000, 0, 2}, {1000, 2, 3}});
  EXPECT_EQ(placement.offsets, (std::vector<int64_t>{0, 1024}));
}

TEST(Memory, TakesTheSmallestGapThatFits) {
  // Gaps of 512 and 256 bytes stand open at call 2; the small one is the better place for 256 bytes.
  const Placement placement = place({{2048, 0, 9}, {1536, 0, 1}, {1024, 0, 9}, {768, 0, 1}, {512, 0, 9}, {256, 2, 2}});
  EXPECT_EQ(placement.offsets[5], placement.offsets[3]);
}

TEST(Memory, WithoutReuseEveryLifeHasItsOwnBytes) {
  const std::vector<Life> lives = training_step(3);
  const Placement placement = place(lives, false);
  int64_t sum = 0;
  for (size_t i = 0; i < lives.size(); ++i) {
    EXPECT_EQ(placement.offsets[i], sum);
    sum += rounded(lives[i].bytes);
  }
  EXPECT_EQ(placement.bytes, sum);
}

TEST(Memory, RandomLivesNeverShareBytes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Dice dice(seed);
    std::vector<Life> lives;
    for (int64_t n = 1 + dice.below(120); n > 0; --n) {
      const int first = static_cast<int>(dice.below(60));
      lives.push_back({1 + dice.below(5000), first, first + static_cast<int>(dice.below(60 - first))});
    }
    const Placement placement = place(lives);
    expect_sound(lives, placement);
    EXPECT_EQ(placement.bound, most_live(lives));
    EXPECT_GE(placement.bytes, placement.bound);
  }
}

TEST(Memory, ATrainingStepTakesWhatIsLive) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const std::vector<Life> lives = training_step(seed);
    const Placement placement = place(lives);
    expect_sound(lives, placement);
    EXPECT_LE(static_cast<double>(placement.bytes), 1.005 * static_cast<double>(most_live(lives))) << "seed " << seed;
  }
}

TEST(Memory, TheSameLivesGiveTheSamePlaces) {
  const std::vector<Life> lives = training_step(11);
  EXPECT_EQ(place(lives).offsets, place(lives).offsets);
}

}  // namespace
}  // namespace ingot::codegen
