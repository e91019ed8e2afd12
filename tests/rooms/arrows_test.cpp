// The rooms and their arrows: who may include whom, and which package lives where. Reads the sources, so that a shortcut
// fails here and not in a review.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/common/places.h"

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = ingot::tests::source_file("");
const std::vector<std::string> kRooms{"ir/base", "ir/graph", "ir/ops", "ir/plan", "passes", "models", "codegen", "runtime", "tools", "tests"};

// Room -> rooms it may include (itself always). tools and tests may include anything.
const std::map<std::string, std::set<std::string>> kArrows{
    {"ir/base", {}},
    {"ir/graph", {"ir/base"}},
    {"ir/ops", {"ir/base", "ir/graph"}},
    {"ir/plan", {"ir/base"}},
    {"passes", {"ir/base", "ir/graph"}},
    {"models", {"ir/base", "ir/graph"}},
    {"codegen", {"ir/base", "ir/graph", "ir/plan", "passes"}},
    {"runtime", {"ir/base", "ir/plan"}},
};

// Header prefix -> rooms the package may be used in.
const std::map<std::string, std::set<std::string>> kPackages{
    {"yaml-cpp/", {"models"}},
    {"zip.h", {"ir/plan"}},
    {"nlohmann/", {"runtime", "tools", "tests"}},
    {"oneapi/", {"runtime"}},
    {"dnnl", {"runtime"}},
    {"omp.h", {"runtime"}},
    {"CLI/", {"tools"}},
    {"cuda", {"runtime", "tests"}},
    {"cublas", {"runtime", "tests"}},
    {"nccl", {"runtime"}},
    {"nvrtc", {"codegen"}},
    {"gtest/", {"tests"}},
    {"gmock/", {"tests"}},
};

std::string room_of(const std::string& path) {
  for (const std::string& room : kRooms) {
    if (path.starts_with(room + "/")) return room;
  }
  return "";
}

struct Include {
  std::string file, room, target;
  int line;
};

std::vector<Include> all_includes() {
  static const std::regex kInclude(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::vector<Include> list;
  for (const std::string& room : kRooms) {
    if (!fs::exists(kRoot / room)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / room)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp") continue;
      const std::string path = fs::relative(entry.path(), kRoot).generic_string();
      if (path.starts_with("codegen/text/")) continue;  // compiled at run time, not part of the program
      std::ifstream in(entry.path());
      std::string text;
      std::smatch match;
      for (int line = 1; std::getline(in, text); ++line) {
        if (std::regex_search(text, match, kInclude)) list.push_back({path, room_of(path), match[1], line});
      }
    }
  }
  return list;
}

TEST(Rooms, IncludesFollowTheArrows) {
  for (const Include& include : all_includes()) {
    const std::string target = room_of(include.target);
    if (target.empty() || target == include.room || !kArrows.contains(include.room)) continue;
    EXPECT_TRUE(kArrows.at(include.room).contains(target))
        << include.file << ":" << include.line << ": " << include.room << " may not include " << include.target;
  }
}

TEST(Rooms, PackagesStayInTheirRoom) {
  for (const Include& include : all_includes()) {
    for (const auto& [prefix, rooms] : kPackages) {
      if (!include.target.starts_with(prefix)) continue;
      EXPECT_TRUE(rooms.contains(include.room)) << include.file << ":" << include.line << ": " << include.target << " does not belong in " << include.room;
    }
  }
}

TEST(Rooms, ThePlanHalfNeverSeesTheGraph) {
  for (const Include& include : all_includes()) {
    if (include.room != "runtime" && include.room != "ir/plan" && !include.file.starts_with("tools/ingot-run/")) continue;
    EXPECT_FALSE(include.target.starts_with("ir/graph/") || include.target.starts_with("passes/") || include.target.starts_with("models/") ||
                 include.target.starts_with("codegen/"))
        << include.file << ":" << include.line << ": includes " << include.target;
  }
}

TEST(Rooms, EnvironmentIsReadOnlyInTools) {
  for (const std::string& room : kRooms) {
    if (room == "tools" || room == "tests" || !fs::exists(kRoot / room)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / room)) {
      if (entry.path().extension() != ".cpp") continue;
      std::ifstream in(entry.path());
      std::stringstream text;
      text << in.rdbuf();
      EXPECT_EQ(text.str().find("getenv"), std::string::npos) << entry.path();
    }
  }
}

TEST(Rooms, EveryRoomHasItsPage) {
  for (const char* room : {"ir", "models", "passes", "codegen", "runtime", "tools", "tests"}) {
    EXPECT_TRUE(fs::exists(kRoot / room / "README.md")) << room << "/README.md is missing";
  }
}

TEST(Rooms, NoFileIsLongerThan800Lines) {
  for (const std::string& room : kRooms) {
    if (!fs::exists(kRoot / room)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / room)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".inc") continue;
      std::ifstream in(entry.path());
      std::string line;
      int lines = 0;
      while (std::getline(in, line)) ++lines;
      EXPECT_LE(lines, 800) << entry.path();
    }
  }
}

}  // namespace
