// Windows over token files, and what is refused.
#include "runtime/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/runtime/scratch_folder.h"

namespace ingot::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DataOptions options(int64_t batch, int64_t time, double holdout = 0, int64_t vocab = 256) {
  DataOptions o;
  o.batch = batch, o.time = time, o.holdout = holdout, o.vocab = vocab;
  return o;
}

const std::string kText = "abcdefghijklmnopqrstuvwxyz";  // 26 tokens: 8 windows of 3

std::string text_of(const HostTensor& ids) {
  std::string out;
  for (double id : ids.to_doubles()) out += static_cast<char>(id);
  return out;
}

TEST(Data, ConsecutiveWindowsThatWrap) {
  ScratchFolder folder;
  const TokenData data(folder.write("t.txt", kText), options(2, 3));
  EXPECT_EQ(data.train_windows(), 8);
  EXPECT_EQ(text_of(data.train_batch(0).tokens), "abcdef");
  EXPECT_EQ(text_of(data.train_batch(0).targets), "bcdefg");
  EXPECT_EQ(text_of(data.train_batch(2).tokens), "ghijkl");
  EXPECT_EQ(text_of(data.train_batch(7).tokens), "vwxabc");
  EXPECT_EQ(text_of(data.train_batch(8 * 1000 + 2).targets), "hijklm");
}

TEST(Data, RowsReadOnInStretchesOfTheirOwn) {
  ScratchFolder folder;
  const TokenData data(folder.write("t.txt", kText), options(3, 3));  // 8 windows: 2 a row, the last 2 left out
  EXPECT_EQ(data.stretch(), 2);
  EXPECT_EQ(text_of(data.stretch_batch(0).tokens), "abcghimno");
  EXPECT_EQ(text_of(data.stretch_batch(3).tokens), "defjklpqr");
  EXPECT_EQ(text_of(data.stretch_batch(3).targets), "efgklmqrs");
  EXPECT_EQ(text_of(data.stretch_batch(6).tokens), "abcghimno");
  EXPECT_EQ(text_of(data.stretch_batch(3 * 1001).tokens), "defjklpqr");
  EXPECT_TRUE(data.begins_stretch(0));
  EXPECT_FALSE(data.begins_stretch(3));
  EXPECT_TRUE(data.begins_stretch(6));
}

TEST(Data, HoldsOutTheEnd) {
  ScratchFolder folder;
  const TokenData data(folder.write("t.txt", kText), options(2, 3, 0.4));
  EXPECT_EQ(data.train_windows(), 5);
  EXPECT_EQ(data.held_windows(), 3);
  EXPECT_EQ(text_of(data.train_batch(4).tokens), "mnoabc");
  EXPECT_EQ(text_of(data.held_batch(0, -100).tokens), "pqrstu");
  EXPECT_THAT(data.held_batch(2, -100).targets.to_doubles(), ElementsAre('w', 'x', 'y', -100, -100, -100));
}

TEST(Data, KeepsAStepsWorthForTraining) {
  ScratchFolder folder;
  DataOptions o = options(2, 3, 0.9);
  o.least = 6;  // three microbatches of two
  const TokenData data(folder.write("t.txt", kText), o);
  EXPECT_EQ(data.train_windows(), 6);
  EXPECT_EQ(data.held_windows(), 2);
}

TEST(Data, ExactlyEnoughTokens) {
  ScratchFolder folder;
  for (size_t n : {0u, 1u, 3u, 6u}) {
    const std::string path = folder.write("short.txt", kText.substr(0, n));
    EXPECT_EQ(error_of([&] { TokenData(path, options(2, 3)); }),
              path + ": error: too short: have " + std::to_string(n) +
                  " tokens, need 7 (one step takes 2 windows of 3 tokens, and one token more)");
  }
  const TokenData data(folder.write("enough.txt", kText.substr(0, 7)), options(2, 3, 0.05));
  EXPECT_EQ(text_of(data.train_batch(0).targets), "bcdefg");
  EXPECT_EQ(data.held_windows(), 0);
}

std::string words(const std::vector<int32_t>& ids) {
  std::string out(ids.size() * 4, '\0');
  std::memcpy(out.data(), ids.data(), out.size());
  return out;
}

TEST(Data, IdsPastTheVocabulary) {
  ScratchFolder folder;
  for (int32_t bad : {7, 8, -1}) {
    const std::string path = folder.write("t.i32", words({0, 1, 2, 3, 4, bad, 6}));
    const TokenData data(path, options(1, 2, 0, 7));
    EXPECT_EQ(error_of([&] { data.train_batch(2); }),
              path + ": error: token " + std::to_string(bad) + " at byte 20 is outside the vocabulary of 7 (ids 0 .. 6)");
    EXPECT_THAT(data.train_batch(1).tokens.to_doubles(), ElementsAre(2, 3));
    EXPECT_EQ(error_of([&] { data.check_ids(); }),
              path + ": error: token " + std::to_string(bad) + " at byte 20 is outside the vocabulary of 7 (ids 0 .. 6)");
  }
}

TEST(Data, FormatsBySuffixAndByName) {
  ScratchFolder folder;
  EXPECT_EQ(TokenData(folder.write("t.u16", words({1, 2, 3})), options(1, 2, 0, 10)).tokens(), 6);
  EXPECT_EQ(TokenData(folder.write("t.i32", words({1, 2, 3})), options(1, 2, 0, 10)).tokens(), 3);
  EXPECT_THAT(error_of([&] { TokenData(folder.write("odd.u16", "abc"), options(1, 1)); }),
              HasSubstr("3 bytes are no whole number of 2-byte"));
  EXPECT_THAT(error_of([] { token_format_named("u8"); }), HasSubstr("auto, bytes, u16 or i32"));
  EXPECT_THAT(error_of([&] { TokenData(folder.path("absent"), options(1, 1)); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { TokenData(folder.write("t", kText), options(1, 1, 1.5)); }), HasSubstr("a hold-out of 1.5"));
}

TEST(Data, TruncatedWhileTraining) {
  ScratchFolder folder;
  const std::string path = folder.write("t.txt", kText);
  const TokenData data(path, options(1, 3));
  std::filesystem::resize_file(path, 10);
  EXPECT_EQ(text_of(data.train_batch(0).tokens), "abc");
  EXPECT_THAT(error_of([&] { data.train_batch(5); }), HasSubstr(path + ": error: the file has become shorter: 26 bytes"));
}

}  // namespace
}  // namespace ingot::runtime
