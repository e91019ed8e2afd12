// One tiny file per mistake in tests/models/errors/. Its first lines say what is expected:
//   # expect: LINE:COL: part of the message       one for each mistake, in order; no others may be reported
//   # expect: FILE:LINE:COL: part of the message  in another file, or <command line>
//   # with: key=value key=value                   overrides
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/base/error.h"
#include "models/loader.h"
#include "tests/common/places.h"

namespace ingot::models {
namespace {

namespace fs = std::filesystem;

fs::path folder() { return tests::source_file("tests/models/errors"); }

struct Expectation {
  std::string place, message;
};

struct Case {
  std::vector<Expectation> expected;
  LoadOptions options;
};

Case read_case(const fs::path& path) {
  Case out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("# expect: ")) {
      const std::string text = line.substr(10);
      const size_t space = text.find(": ");
      out.expected.push_back({text.substr(0, space), text.substr(space + 2)});
    } else if (line.starts_with("# with: ")) {
      std::istringstream words(line.substr(8));
      for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        out.options.overrides.emplace_back(word.substr(0, equals), word.substr(equals + 1));
      }
    }
  }
  return out;
}

std::string place(const ir::Loc& loc, const fs::path& path) {
  if (!loc.known()) return "?";
  const std::string at = fmt::format("{}:{}", loc.line, loc.col);
  if (*loc.file == path.string()) return at;
  return fmt::format("{}:{}", fs::path(*loc.file).filename().string(), at);
}

class Errors : public ::testing::TestWithParam<std::string> {};

TEST_P(Errors, AreLocatedSentences) {
  const fs::path path = folder() / GetParam();
  const Case wanted = read_case(path);
  ASSERT_FALSE(wanted.expected.empty()) << "no `# expect:` line";
  std::vector<ir::Diagnostic> got;
  try {
    load_model(path.string(), wanted.options);
    FAIL() << "loaded without a mistake";
  } catch (const ir::UserError& e) {
    got = e.diagnostics();
  }
  std::string all;
  for (const ir::Diagnostic& d : got) all += place(d.loc, path) + ": " + d.message + "\n";
  ASSERT_EQ(got.size(), wanted.expected.size()) << all;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(place(got[i].loc, path), wanted.expected[i].place) << all;
    EXPECT_THAT(got[i].message, ::testing::HasSubstr(wanted.expected[i].message)) << all;
    EXPECT_FALSE(got[i].message.ends_with(".")) << got[i].message;
  }
}

std::vector<std::string> files() {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder())) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".yaml") && !name.starts_with("base_")) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, Errors, ::testing::ValuesIn(files()),
                         [](const auto& c) { return c.param.substr(0, c.param.size() - 5); });

}  // namespace
}  // namespace ingot::models
