// Small parts of tools/: units, word splitting, differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "tests/common/random_graph.h"
#include "tools/ingot/text_diff.h"
#include "tools/shared/exit.h"
#include "tools/shared/parse.h"
#include "tools/shared/units.h"

namespace ingot::tools {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(10 * 1024), "10.0 KiB");
  EXPECT_EQ(bytes_text(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(bytes_text(int64_t{80} << 30), "80.0 GiB");
  EXPECT_EQ(bytes_text(int64_t{5000} << 40), "5000 TiB");
}

TEST(Units, CountsAndTimes) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1.00k");
  EXPECT_EQ(count_text(123456789), "123M");
  EXPECT_EQ(count_text(0.25), "0.25");
  EXPECT_EQ(flops_text(78.8e6), "78.8 MFLOP");
  EXPECT_EQ(flops_text(12), "12 FLOP");
  EXPECT_EQ(seconds_text(1.5e-6), "1.50 us");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(seconds_text(1), "1.00 s");
  EXPECT_EQ(seconds_text(125), "2 min 05 s");
  EXPECT_EQ(seconds_text(3725), "1 h 02 min");
  EXPECT_EQ(plural(1, "op"), "1 op");
  EXPECT_EQ(plural(0, "op"), "0 ops");
}

TEST(Words, CommaListsAndAssignments) {
  EXPECT_EQ(comma_list(" a, b ,,c "), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(comma_list(""), std::vector<std::string>{});
  const auto pairs = assignments({"lr=1e-3", "blocks=[a, b]", "x=", "y=a=b"});
  EXPECT_EQ(pairs[1].second, "[a, b]");
  EXPECT_EQ(pairs[2].second, "");
  EXPECT_EQ(pairs[3], (std::pair<std::string, std::string>{"y", "a=b"}));
  EXPECT_THROW(assignments({"lr"}), ir::UserError);
  EXPECT_THROW(assignments({"=1"}), ir::UserError);
}

TEST(Words, CommandLinesAreQuotedForAShell) {
  const char* words[] = {"ingot", "opt", "a b.ir", "--passes", "cse,dce", "it's", ""};
  EXPECT_EQ(command_line(7, const_cast<char**>(words)), "ingot opt 'a b.ir' --passes cse,dce 'it'\\''s' ''");
}

TEST(Exit, CodesOfEveryKindOfFailure) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(guarded("x", [] {}), 0);
  EXPECT_EQ(guarded("x", [] { throw ir::UserError(ir::make_loc("m.yaml", 3, 4), "wrong"); }), 1);
  EXPECT_EQ(guarded("x", [] { throw ir::MachineError("no compiler"); }), 2);
  EXPECT_EQ(guarded("x", [] { throw std::bad_alloc(); }), 2);
  EXPECT_EQ(guarded("ingot opt y.ir", [] { throw ir::InternalError("broken"); }), 3);
  EXPECT_EQ(guarded("x", [] { throw Stopped("the loss is not finite"); }), 4);
  EXPECT_EQ(guarded("x", [] { throw Exit{130}; }), 130);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::HasSubstr("m.yaml:3:4: error: wrong\n"));
  EXPECT_THAT(said, testing::HasSubstr("ingot: error: no compiler\n"));
  EXPECT_THAT(said, testing::HasSubstr("internal error: broken\nThis is a bug of ours. To reproduce it: ingot opt y.ir\n"));
  EXPECT_THAT(said, testing::HasSubstr("stopped: the loss is not finite\n"));
}

TEST(Diff, ShowsChangesWithContext) {
  EXPECT_EQ(text_diff("a\nb\n", "a\nb\n"), "");
  EXPECT_EQ(text_diff("a\nb\nc\n", "a\nx\nc\n"), " a\n-b\n+x\n c\n");
  EXPECT_EQ(text_diff("", "a\n"), "+a\n");
  EXPECT_EQ(text_diff("a\n", ""), "-a\n");
  EXPECT_EQ(text_diff("1\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\n4\n5\n6\n8\n"), "...\n 5\n 6\n-7\n+8\n");
}

/// Old lines and new lines can be read off a difference with everything shown, and it is no longer than it must be.
TEST(Diff, RandomTextsCanBeRebuilt) {
  tests::Random random(3);
  for (int round = 0; round < 500; ++round) {
    std::string before, after;
    for (int64_t i = random.below(20); i > 0; --i) before += std::string(1, static_cast<char>('a' + random.below(3))) + "\n";
    for (int64_t i = random.below(20); i > 0; --i) after += std::string(1, static_cast<char>('a' + random.below(3))) + "\n";
    if (random.chance(0.5)) after = before + after;
    if (before == after) continue;
    const std::string diff = text_diff(before, after, 1000);
    std::string old_lines, new_lines;
    for (size_t at = 0; at < diff.size(); at = diff.find('\n', at) + 1) {
      const std::string line = diff.substr(at + 1, diff.find('\n', at) - at);
      if (diff[at] != '+') old_lines += line;
      if (diff[at] != '-') new_lines += line;
    }
    ASSERT_EQ(old_lines, before) << diff;
    ASSERT_EQ(new_lines, after) << diff;
  }
}

}  // namespace
}  // namespace ingot::tools
