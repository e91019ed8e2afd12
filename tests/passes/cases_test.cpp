// The case files: tests/passes/cases/*.ir. A file holds cases with a line of dashes between:
//
//   // What the case shows.
//   // passes: cse
//   %a = exp(%x): f32[2]          a module, or bare op lines
//   // =>
//   %a = exp(%x): f32[2]          what comes out: text, or `unchanged`, or `error LINE:COL: MESSAGE` (lines count from the
//                                 case's first line of text)
//
// `passes_tests --update` writes what comes out into the files.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/common/places.h"
#include "tests/passes/support.h"

namespace ingot::tests {
namespace {

const std::string kBreak = "// ----\n";

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const size_t from = text.find_first_not_of('\n');
  return from == std::string::npos ? "" : text.substr(from);
}

struct Case {
  std::string comment, passes, input, expected;

  explicit Case(const std::string& text) {
    const std::string marker = "// passes:";
    const size_t at = text.find(marker), arrow = text.find("// =>\n");
    if (at == std::string::npos || arrow == std::string::npos)
      throw std::runtime_error("a case needs '// passes:' and '// =>':\n" + text);
    const size_t end = text.find('\n', at);
    comment = trimmed(text.substr(0, at));
    passes = text.substr(at + marker.size(), end - at - marker.size());
    passes = passes.substr(passes.find_first_not_of(' '));
    input = trimmed(text.substr(end + 1, arrow - end - 1));
    expected = trimmed(text.substr(arrow + 6));
  }
  std::string result() const { return trimmed(pass_result(input, passes)); }
  std::string text(const std::string& result) const {
    return comment + "\n// passes: " + passes + "\n" + input + "\n// =>\n" + result + "\n";
  }
};

std::vector<Case> read_cases(const std::filesystem::path& path) {
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  std::vector<Case> cases;
  for (size_t from = 0; from < text.size();) {
    const size_t to = text.find(kBreak, from);
    cases.emplace_back(text.substr(from, to == std::string::npos ? to : to - from));
    from = to == std::string::npos ? text.size() : to + kBreak.size();
  }
  return cases;
}

std::vector<std::string> case_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(source_file("tests/passes/cases"))) {
    if (entry.path().extension() == ".ir") files.push_back(entry.path().stem().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool update_wanted() {
  const std::vector<std::string> args = testing::internal::GetArgvs();
  return std::find(args.begin(), args.end(), "--update") != args.end();
}

class CaseFile : public testing::TestWithParam<std::string> {};

TEST_P(CaseFile, GivesWhatItSays) {
  const std::filesystem::path path = std::filesystem::path(source_file("tests/passes/cases")) / (GetParam() + ".ir");
  const std::vector<Case> cases = read_cases(path);
  ASSERT_FALSE(cases.empty());
  std::string updated;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.comment);
    const std::string result = c.result();
    updated += (updated.empty() ? "" : kBreak) + c.text(result);
    if (!update_wanted()) {
      EXPECT_EQ(result, c.expected);
    }
  }
  if (update_wanted()) std::ofstream(path) << updated;
}

// What a pass gives is a valid input of the pass, and it leaves it alone.
TEST_P(CaseFile, TwiceIsOnce) {
  for (const Case& c : read_cases(std::filesystem::path(source_file("tests/passes/cases")) / (GetParam() + ".ir"))) {
    SCOPED_TRACE(c.comment);
    const std::string once = c.result();
    if (once.starts_with("error")) continue;
    EXPECT_EQ(trimmed(pass_result(once == "unchanged" ? c.input : once, c.passes)), "unchanged");
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, CaseFile, testing::ValuesIn(case_files()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ingot::tests
