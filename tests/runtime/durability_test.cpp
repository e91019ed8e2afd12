// What a power cut may leave: every write, fsync and rename of a save is watched in the order it happens. A name may only appear
// for bytes that are on disk, and must itself be on disk before the save is called done.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "runtime/checkpoint.h"
#include "runtime/files.h"
#include "tests/runtime/bigram.h"
#include "tests/runtime/scratch_folder.h"

namespace {

// A disk that forgets what was not synced.
struct Disk {
  std::set<std::string> dirty;        ///< files with bytes, folders with names, that are not on disk yet
  std::vector<std::string> mistakes;  ///< names that appeared for bytes that were not on disk
  std::vector<std::string> renames, syncs;

  static std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }
  void wrote(const std::string& path) { dirty.insert(path); }
  void synced(const std::string& path) {
    dirty.erase(path);
    syncs.push_back(path);
  }
  void renamed(const std::string& from, const std::string& to) {
    for (const std::string& path : dirty) {
      if (path == from || path.starts_with(from + "/")) mistakes.push_back(to + " appears before " + path + " is on disk");
    }
    dirty.insert(parent(to));
    renames.push_back(to);
  }
};
Disk* g_disk = nullptr;

std::string path_of(int file) {
  char path[4096];
  const ssize_t n = readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
  return {path, static_cast<size_t>(std::max<ssize_t>(n, 0))};
}

}  // namespace

// The program's own definitions stand before the C library's.
extern "C" ssize_t write(int file, const void* bytes, size_t size) {
  if (g_disk) g_disk->wrote(path_of(file));
  return syscall(SYS_write, file, bytes, size);
}
extern "C" int fsync(int file) {
  if (g_disk) g_disk->synced(path_of(file));
  return static_cast<int>(syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (g_disk) g_disk->renamed(from, to);
  return static_cast<int>(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

namespace ingot::runtime {
namespace {

struct Watch {
  Disk disk;
  Watch() { g_disk = &disk; }
  ~Watch() { g_disk = nullptr; }
};

TEST(Durability, AFileAppearsWhenItIsOnDisk) {
  ScratchFolder folder;
  Watch watch;
  write_file(folder.path("a.json"), "text");
  g_disk = nullptr;
  EXPECT_THAT(watch.disk.mistakes, testing::IsEmpty());
  EXPECT_THAT(watch.disk.dirty, testing::IsEmpty());
  EXPECT_THAT(watch.disk.renames, testing::ElementsAre(folder.path("a.json")));
  EXPECT_THAT(watch.disk.syncs, testing::Contains(folder.path()));
}

TEST(Durability, ACheckpointAppearsWhenAllOfItIsOnDisk) {
  ScratchFolder folder;
  BigramOptions model;
  model.vocab = 4;
  const auto session = Session::open(bigram_plan(model), {});
  session->initialise(1);
  const RunState state{"run", 7, 0, 0, 0, {}};
  for (int again = 0; again < 2; ++again) {  // the second replaces the first
    Watch watch;
    const Checkpoint saved = save_checkpoint(folder.path(), *session, state);
    g_disk = nullptr;
    EXPECT_THAT(watch.disk.mistakes, testing::IsEmpty());
    EXPECT_THAT(watch.disk.dirty, testing::IsEmpty());
    ASSERT_GE(watch.disk.renames.size(), 4u);
    EXPECT_EQ(watch.disk.renames.back(), saved.path);
    EXPECT_THAT(watch.disk.renames[2], testing::EndsWith("/state.json"));  // the manifest after what it describes
    EXPECT_EQ(watch.disk.syncs.back(), folder.path());
  }
}

}  // namespace
}  // namespace ingot::runtime
