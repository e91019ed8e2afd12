// Sums of partial rows that wait for each other and for who reads them, as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/codegen/lowered.h"

namespace ingot::codegen {
namespace {

using testing::HasSubstr;
using testing::Not;

FakeTarget waiting(SumLimits limits = {}) {
  FakeTarget target;
  target.waiting = {"sum"};
  target.limits = limits;
  return target;
}

constexpr const char* kThreeSums = R"(
    input %x: f32[4, 64]
    %a = sum(%x) {axes: [0], keep: false}: f32[64]
    %u = exp(%x): f32[4, 64]
    %b = sum(%u) {axes: [0], keep: false}: f32[64]
    %v = log(%u): f32[4, 64]
    %c = sum(%v) {axes: [0], keep: false}: f32[64]
)";

TEST(LowerSums, AreAddedByOneCallBeforeTheFirstReader) {
  EXPECT_EQ(lowered(std::string(kThreeSums) + "%y = add(%a, %c): f32[64]\n%z = mul(%y, %b): f32[64]\noutput z = %z\n", waiting()),
            R"(buffer %"p/x": f32[4, 64] input of p in io at 0 bytes 1024
buffer %"p/a#0": bool[512] workspace of p in work at 2048 bytes 512 live 0..5
buffer %"p/a": f32[64] temp of p in work at 512 bytes 256 live 5..6
buffer %"p/u": f32[4, 64] temp of p in work at 0 bytes 1024 live 1..3
buffer %"p/b#0": bool[512] workspace of p in work at 2560 bytes 512 live 2..5
buffer %"p/b": f32[64] temp of p in work at 768 bytes 256 live 5..7
buffer %"p/v": f32[4, 64] temp of p in work at 1024 bytes 1024 live 3..4
buffer %"p/c#0": bool[512] workspace of p in work at 0 bytes 512 live 4..5
buffer %"p/c": f32[64] temp of p in work at 1024 bytes 256 live 5..6
buffer %"p/y": f32[64] temp of p in work at 0 bytes 256 live 6..7
buffer %"p/z": f32[64] output of p in io at 1024 bytes 256
input x = %"p/x"
output z = %"p/z"
launch "a" (read %"p/x", write %"p/a#0") kernel sum
launch "u" (read %"p/x", write %"p/u") kernel exp
launch "b" (read %"p/u", write %"p/b#0") kernel sum
launch "v" (read %"p/u", write %"p/v") kernel log
launch "c" (read %"p/v", write %"p/c#0") kernel sum
launch "a+2" (read %"p/a#0", write %"p/a", read %"p/b#0", write %"p/b", read %"p/c#0", write %"p/c") kernel sums
launch "y" (read %"p/a", read %"p/c", write %"p/y") kernel add
launch "z" (read %"p/y", read %"p/b", write %"p/z") kernel mul
)");
}

// The labels of the calls, in their order.
std::string labels(const std::string& body, const FakeTarget& target, const std::string& variables = "") {
  std::istringstream lines(lowered(body, target, variables));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find('"') + 1;
    if (line.starts_with("launch") || line.starts_with("copy")) out += line.substr(begin, line.find('"', begin) - begin) + " ";
  }
  return out;
}

constexpr const char* kThreeOutputs = "output a = %a\noutput b = %b\noutput c = %c\n";

TEST(LowerSums, OutputsWaitForTheEnd) { EXPECT_EQ(labels(std::string(kThreeSums) + kThreeOutputs, waiting()), "a u b v c a+2 "); }

TEST(LowerSums, AResultThatIsReadEarlyTakesTheOthersAlong) {
  EXPECT_EQ(labels(std::string(kThreeSums) + "%w = exp(%a): f32[64]\n%d = sum(%u) {axes: [1], keep: false}: f32[4]\n" +
                       "output w = %w\noutput d = %d\n" + kThreeOutputs,
                   waiting()),
            "a u b v c a+2 w d d ");
}

TEST(LowerSums, NoMoreWaitThanTheTargetAllows) {
  EXPECT_EQ(labels(std::string(kThreeSums) + kThreeOutputs, waiting({2, int64_t{1} << 40})), "a u b a+1 v c c ");
  EXPECT_EQ(labels(std::string(kThreeSums) + kThreeOutputs, waiting({100, 513})), "a u b a+1 v c c ") << "bytes of partials";
  EXPECT_EQ(labels(std::string(kThreeSums) + kThreeOutputs, waiting({100, 512})), "a a u b b v c c ");
}

TEST(LowerSums, PartsOfAPackWaitForWhoReadsThem) {
  const std::string pack = "%p = concat(%a, %b, %c) {axis: 0}: f32[192]\n";
  const std::string reader = "%y = exp(%p): f32[192]\noutput y = %y\n";
  EXPECT_EQ(labels(kThreeSums + pack + reader, waiting()), "a u b v c a+2 y ");
  // A part that stands elsewhere is copied, which needs no sum of the pack; one that is copied from a sum does.
  const std::string other = "%p = concat(%x0, %b, %c) {axis: 0}: f32[192]\n",
                    twice = "%p = concat(%a, %b, %a) {axis: 0}: f32[192]\n";
  EXPECT_EQ(labels("input %x0: f32[64]\n" + (kThreeSums + other) + reader + "output a = %a\n", waiting()), "a u b v c p a+2 y ");
  EXPECT_EQ(labels(kThreeSums + twice + reader, waiting()), "a u b a+1 p y ");
}

TEST(LowerSums, NewValuesOfVariablesToo) {
  const char* const kState = "state %s: f32[64] = \"0\"\nstate %t: f32[64] = \"0\"\n";
  EXPECT_EQ(labels(std::string(kThreeSums) + "update %s = %a\nupdate %t = %b\n", waiting(), kState), "a u b a+1 ");
  // The old value is read last: the new one is copied when it has been added.
  EXPECT_EQ(labels(std::string("state %s: f32[64]\n") + kThreeSums + "%y = add(%s, %c): f32[64]\nupdate %s = %a\noutput y = %y\n",
                   waiting(), kState),
            "a u v c a+1 s ");
}

// A number that one region reads: partials, then the region.
constexpr const char* kNumber = R"(
    input %x: f32[4, 8]
    %n = sum(%x) {axes: [0, 1], keep: false}: f32[]
    %r = fuse(%x, %n) {kind: "row", rows: 4} (%p: f32[4, 8], %m: f32[]) {
      %0 = mul(%p, %m): f32[4, 8]
      yield %0
    }: f32[4, 8]
    output r = %r
)";

FakeTarget adding(SumLimits limits = {}) {
  FakeTarget target = waiting(limits);
  target.adds_numbers = true;
  return target;
}

TEST(LowerSums, ANumberIsAddedByItsReader) {
  const std::string text = lowered(kNumber, adding());
  EXPECT_THAT(text, HasSubstr("launch \"n\" (read %\"p/x\", write %\"p/n#0\") kernel sum\n"
                              "launch \"r\" (read %\"p/x\", read %\"p/n#0\", write %\"p/r\")"));
  EXPECT_THAT(text, Not(HasSubstr("%\"p/n\""))) << "it has no bytes of its own";
}

// Gradients and their accumulators, which the program renews.
TEST(LowerSums, AccumulatorsAreAddedToWhereTheSumsAre) {
  const char* const kState = "state %s: f32[64] = \"0\"\nstate %t: f32[1, 64] = \"0\"\n";
  const std::string old = "state %s: f32[64]\nstate %t: f32[1, 64]\n";
  const std::string sums =
      "%a2 = add(%s, %a): f32[64]\n%b1 = reshape(%b) {shape: [1, 64]}: f32[1, 64]\n%b2 = add(%t, %b1): f32[1, 64]\n";
  const std::string updates = "update %s = %a2\nupdate %t = %b2\noutput c = %c\n";
  const std::string text = lowered(old + kThreeSums + sums + updates, waiting(), kState);
  EXPECT_THAT(text, HasSubstr("launch \"a2+2\" (read %\"p/a#0\", inout %s, inout %s, read %\"p/b#0\", inout %t, inout %t, "
                              "read %\"p/c#0\", write %\"p/c\") kernel sums\n"));
  EXPECT_EQ(labels(old + kThreeSums + sums + updates, waiting(), kState), "a u b v c a2+2 ");
  // Who reads the old value stands before the sum; who reads the sum itself needs it by itself.
  EXPECT_EQ(labels(old + kThreeSums + sums + "%y = exp(%s): f32[64]\noutput y = %y\n" + updates, waiting(), kState),
            "a u b v c a+2 a2 y s ");
  EXPECT_EQ(labels(old + kThreeSums + sums + "output a = %a\n" + updates, waiting(), kState), "a u b v c a+2 a2 ");
  // A later sum's place is where an earlier one starts from.
  EXPECT_EQ(labels(old + "input %x: f32[4, 64]\n%a = sum(%x) {axes: [0], keep: false}: f32[64]\n%y = add(%s, %a): f32[64]\n"
                         "%u = exp(%x): f32[4, 64]\n%c = sum(%u) {axes: [0], keep: false}: f32[64]\n"
                         "output y = %y\nupdate %s = %c\n",
                   waiting(), kState),
            "a u c y c ");
  // A value that is made later cannot be added to before; two sums are added up by a call after both.
  EXPECT_EQ(labels(kThreeSums + std::string("%y = exp(%c): f32[64]\n%z = add(%y, %a): f32[64]\noutput z = %z\n"), waiting()),
            "a u v c a+1 y z ");
  EXPECT_EQ(labels(kThreeSums + std::string("%z = add(%b, %a): f32[64]\noutput z = %z\n"), waiting()), "a u b a+1 z ");
}

// The addition may move to the sum; what its result stands over may not be written before all have read it.
TEST(LowerSums, AdditionsStayWhereOldValuesAreReadBeforeThem) {
  const char* const kState = "state %s: f32[64] = \"0\"\n";
  const std::string head =
      "state %s: f32[64]\ninput %x: f32[4, 64]\n%g = exp(%s): f32[64]\n"
      "%a = sum(%x) {axes: [0], keep: false}: f32[64]\n";
  const std::string tail = "update %s = %y\noutput w = %w\n";
  EXPECT_EQ(labels(head + "%w = log(%s): f32[64]\n%y = add(%g, %a): f32[64]\n" + tail, waiting(), kState), "g a w a y ")
      << "the sum stands over the variable that w reads";
  EXPECT_EQ(labels(head + "%w = log(%x): f32[4, 64]\n%y = add(%g, %a): f32[64]\n" + tail, waiting(), kState), "g a w y ");
  EXPECT_EQ(labels(head + "%t = reshape(%s) {shape: [64]}: f32[64]\n%w = log(%t): f32[64]\n%y = add(%g, %a): f32[64]\n" + tail,
                   waiting(), kState),
            "g a w a y ")
      << "by another name";
}

TEST(LowerSums, ANumberIsAddedByACallWhereItsReaderDoesNot) {
  EXPECT_EQ(labels(kNumber, waiting()), "n n r ") << "the target does not";
  EXPECT_EQ(labels(kNumber, adding({64, int64_t{1} << 20, 1})), "n n r ") << "too many partials";
  EXPECT_EQ(labels(std::string(kNumber) + "output n = %n\n", adding()), "n n r ") << "an output";
  EXPECT_EQ(labels(std::string(kNumber) + "%y = exp(%n): f32[]\noutput y = %y\n", adding()), "n n r y ") << "another reader";
}

}  // namespace
}  // namespace ingot::codegen
