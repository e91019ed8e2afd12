#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "ir/plan/plan.h"
#include "tests/plan/sample.h"

// The writer's calls are watched, and may be made to fail, by standing in front of the C library's.
namespace {
std::vector<std::string> g_events;
bool g_fsync_fails = false;

std::string path_of(int fd) {
  char path[4096];
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return size < 0 ? "?" : std::string(path, static_cast<size_t>(size));
}
}  // namespace

extern "C" int fsync(int fd) {
  g_events.push_back("fsync " + path_of(fd));
  if (!g_fsync_fails) return static_cast<int>(::syscall(SYS_fsync, fd));
  errno = EIO;
  return -1;
}
extern "C" int rename(const char* from, const char* to) noexcept {
  g_events.push_back(std::string("rename ") + from + " " + to);
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}

namespace ingot::ir {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Container : public testing::Test {
 protected:
  Container() {
    std::string pattern = (fs::temp_directory_path() / "ingot-plan-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~Container() override { fs::remove_all(directory_); }

  std::string path(const std::string& name = "a.plan") const { return (directory_ / name).string(); }
  size_t entries() const { return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), {})); }

  static std::string slurp(const std::string& from) {
    std::ifstream in(from, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  static void spill(const std::string& to, const std::string& bytes) { std::ofstream(to, std::ios::binary) << bytes; }

  static std::string error_of(const std::string& from) {
    try {
      (void)read_plan(from);
    } catch (const UserError& error) {
      EXPECT_EQ(error.diagnostics().size(), 1u);
      const std::string text = error.what();
      EXPECT_THAT(text, HasSubstr(from));
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      return text;
    }
    return "no error";
  }
  std::string error_of_bytes(const std::string& bytes) const {
    spill(path("bad.plan"), bytes);
    return error_of(path("bad.plan"));
  }

  fs::path directory_;
};

TEST_F(Container, ReadsBackWhatWasWritten) {
  Plan plan = sample_plan();
  plan.files["empty"] = "";
  plan.files["binary"] = std::string("\0\xff\n PK\x05\x06", 8);
  write_plan(plan, path());
  const Plan back = read_plan(path());
  EXPECT_TRUE(same(plan, back));
  EXPECT_EQ(print_plan(back), print_plan(plan));
  EXPECT_EQ(entries(), 1u) << "nothing is left beside the plan";
}

TEST_F(Container, TheSamePlanGivesTheSameBytes) {
  write_plan(sample_plan(), path("a.plan"));
  ::setenv("TZ", "Pacific/Auckland", 1);
  ::tzset();
  write_plan(sample_plan(), path("b.plan"));
  ::unsetenv("TZ");
  ::tzset();
  EXPECT_EQ(slurp(path("a.plan")), slurp(path("b.plan")));
}

TEST_F(Container, IsAZipThatStoresItsFilesAsTheyAre) {
  write_plan(sample_plan(), path());
  const std::string bytes = slurp(path());
  EXPECT_EQ(bytes.substr(0, 4), "PK\x03\x04");
  EXPECT_EQ(bytes.substr(30, 8), "plan.txt");
  EXPECT_THAT(bytes, HasSubstr(print_plan(sample_plan())));
  EXPECT_THAT(bytes, HasSubstr("machine code"));
}

TEST_F(Container, RefusesEveryTruncation) {
  write_plan(sample_plan(), path());
  const std::string bytes = slurp(path());
  for (size_t size = 0; size < bytes.size(); size += size < 60 || bytes.size() - size < 100 ? 1 : 61) {
    const std::string error = error_of_bytes(bytes.substr(0, size));
    ASSERT_THAT(error,
                testing::AnyOf(HasSubstr("is truncated or damaged"), HasSubstr("is not an Ingot plan"), HasSubstr("is damaged")))
        << size;
    if (size >= 38) {
      ASSERT_THAT(error, testing::Not(HasSubstr("not an Ingot plan"))) << size;
    }
  }
}

TEST_F(Container, RefusesEveryFlippedByte) {
  write_plan(sample_plan(), path());
  const std::string bytes = slurp(path());
  for (size_t at = 0; at < bytes.size(); at += at < 60 || bytes.size() - at < 300 ? 1 : 31) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    ASSERT_NE(error_of_bytes(bad), "no error") << "byte " << at;
  }
}

TEST_F(Container, RefusesBytesBehindTheEnd) {
  write_plan(sample_plan(), path());
  EXPECT_NE(error_of_bytes(slurp(path()) + "x"), "no error");
}

TEST_F(Container, RefusesForeignFiles) {
  EXPECT_THAT(error_of_bytes(""), HasSubstr("is not an Ingot plan"));
  EXPECT_THAT(error_of_bytes("hello"), HasSubstr("is not an Ingot plan"));
  EXPECT_THAT(error_of_bytes(print_plan(sample_plan())), HasSubstr("is not an Ingot plan"));
  EXPECT_THAT(error_of_bytes(std::string("PK\x05\x06", 4) + std::string(18, '\0')), HasSubstr("is not an Ingot plan"));
  EXPECT_THAT(error_of(path("absent.plan")), HasSubstr("cannot be read: No such file or directory"));
  EXPECT_THAT(error_of(directory_.string()), HasSubstr("is no file"));
}

TEST_F(Container, RefusesAnotherVersion) {
  write_plan(sample_plan(), path());
  std::string bytes = slurp(path());
  const size_t at = bytes.rfind("ingot plan 3");
  for (const char other : {'1', '2', '4'}) {  // older and newer
    bytes[at + 11] = other;
    EXPECT_THAT(error_of_bytes(bytes), HasSubstr(fmt::format("has plan format {}; this program reads format 3: compile the model "
                                                             "again",
                                                             other)));
  }
}

// A seal says the bytes are whole, not that they are right: what is inside is verified all the same.
TEST_F(Container, VerifiesWhatItReads) {
  Plan plan = sample_plan();
  plan.arenas[3].bytes = 300;
  write_plan(plan, path());
  EXPECT_THAT(error_of(path()), HasSubstr("bad plan: "));
}

TEST_F(Container, AFileChangedUnderAFreshSealIsRefused) {
  write_plan(sample_plan(), path());
  std::string bytes = slurp(path());
  // The zip's own CRC of the entry is wrong too; both guards stand behind the seal.
  bytes[bytes.find("machine code")] = 'M';
  bytes.replace(bytes.size() - 16, 16, "");
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash64(bytes)));
  EXPECT_THAT(error_of_bytes(bytes + digits), HasSubstr("is damaged"));
}

TEST_F(Container, AFullDiskLeavesTheOldPlan) {
  write_plan(sample_plan(), path());
  const std::string before = slurp(path());
  Plan larger = sample_plan();
  larger.files["image.so"] = std::string(1 << 20, 'x');
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{}, tiny{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  tiny = old;
  tiny.rlim_cur = 4096;
  ::setrlimit(RLIMIT_FSIZE, &tiny);
  std::string message;
  try {
    write_plan(larger, path());
  } catch (const MachineError& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("cannot write " + path()));
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_EQ(slurp(path()), before);
  EXPECT_EQ(entries(), 1u) << "the half-written file is gone";
}

// A crash at any moment leaves the old plan or the new one: contents are on disk before the name, the name before we return.
TEST_F(Container, SyncsTheFileThenRenamesThenSyncsTheDirectory) {
  g_events.clear();
  write_plan(sample_plan(), path());
  const std::string aside = path() + "." + std::to_string(::getpid()) + ".tmp";
  EXPECT_THAT(g_events, testing::ElementsAre("fsync " + aside, "rename " + aside + " " + path(), "fsync " + directory_.string()));
}

TEST_F(Container, AFailedSyncLeavesTheOldPlan) {
  write_plan(sample_plan(), path());
  const std::string before = slurp(path());
  Plan other = sample_plan();
  other.name = "other";
  g_fsync_fails = true;
  EXPECT_THROW(write_plan(other, path()), MachineError);
  g_fsync_fails = false;
  EXPECT_EQ(slurp(path()), before);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Container, SaysWhyItCannotWrite) {
  EXPECT_THROW(write_plan(sample_plan(), path("no/such/a.plan")), MachineError);
  EXPECT_THROW(write_plan(sample_plan(), directory_.string()), MachineError);
  EXPECT_THROW(write_plan(sample_plan(), "/dev/full"), MachineError);
  EXPECT_TRUE(fs::exists("/dev/full"));
}

}  // namespace
}  // namespace ingot::ir
