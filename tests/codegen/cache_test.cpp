// The on-disk cache of compiled kernels: races, damage, and directories that cannot be written; and what build() says when the
// compiler is missing or a kernel does not compile.
#include "codegen/cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "codegen/target.h"
#include "ir/base/error.h"
#include "tests/codegen/kernel_bench.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using codegen::Cache;

/// A fresh directory, removed at the end.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "ingot-cache-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Scratch() {
    fs::permissions(path_, fs::perms::owner_all, fs::perm_options::add);
    fs::remove_all(path_);
  }
  const fs::path& path() const { return path_; }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(path_)) out.push_back(entry.path());
    return out;
  }

 private:
  fs::path path_;
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void overwrite(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::vector<codegen::KernelText> two_kernels(const std::string& suffix = "") {
  const auto kernel = [&](const std::string& name, const std::string& statement) {
    return codegen::KernelText{
        name, "extern \"C\" void " + name + "(void* const* args, const int64_t*, int64_t) { " + statement + " }\n"};
  };
  return {kernel("three" + suffix, "*static_cast<float*>(args[0]) = 3;"),
          kernel("four" + suffix, "*static_cast<float*>(args[0]) = 4;")};
}

codegen::BuiltKernels build(const std::vector<codegen::KernelText>& kernels, const std::string& directory,
                            const std::string& compiler = "c++") {
  codegen::CpuTargetOptions options;
  options.cache.directory = directory;
  options.compiler = compiler;
  return codegen::make_cpu_target(options)->build(kernels);
}

float call(const codegen::BuiltKernels& built, const std::string& symbol) {
  const testing::Image image(built.files.at("image.so"));
  float result = 0;
  void* args[] = {&result};
  image.function(symbol)(args, nullptr, 0);
  return result;
}

TEST(CpuBuild, FilesAndFieldsOfThePlan) {
  const codegen::BuiltKernels built = build(two_kernels(), "");
  ASSERT_EQ(built.kernels.size(), 2u);
  EXPECT_EQ(built.kernels[1].symbol, "four");
  EXPECT_EQ(built.kernels[1].image, "image.so");
  EXPECT_NE(built.files.at(built.kernels[1].source).find("void four("), std::string::npos);
  EXPECT_TRUE(built.files.contains("kernels/vocabulary.h"));
  EXPECT_FLOAT_EQ(call(built, "three"), 3);
  EXPECT_FLOAT_EQ(call(built, "four"), 4);
}

TEST(CpuBuild, ImagesAreTheSameEveryTimeAndShareObjectsUnderOtherNames) {
  const Scratch scratch;
  const codegen::BuiltKernels first = build(two_kernels(), scratch.path());
  EXPECT_EQ(scratch.files().size(), 3u);  // two objects and the image
  EXPECT_EQ(build(two_kernels(), "").files, first.files);
  EXPECT_EQ(build(two_kernels(), scratch.path()).files, first.files);
  const codegen::BuiltKernels renamed = build(two_kernels("_again"), scratch.path());
  EXPECT_EQ(scratch.files().size(), 4u);  // one more image, no more objects
  EXPECT_FLOAT_EQ(call(renamed, "four_again"), 4);
}

TEST(CpuBuild, KernelsOfEqualTextAreOneObject) {
  const codegen::KernelText a{
      "a", "extern \"C\" void a(void* const* args, const int64_t*, int64_t) { *static_cast<float*>(args[0]) = 5; }\n"};
  const codegen::KernelText b{
      "b", "extern \"C\" void b(void* const* args, const int64_t*, int64_t) { *static_cast<float*>(args[0]) = 5; }\n"};
  const codegen::BuiltKernels built = build({a, b}, "");
  EXPECT_FLOAT_EQ(call(built, "a"), 5);
  EXPECT_FLOAT_EQ(call(built, "b"), 5);
}

TEST(CpuBuild, NoKernelsAreAnEmptyImage) { EXPECT_TRUE(build({}, "").kernels.empty()); }

TEST(CpuBuild, EightProcessesRaceOnAColdCache) {
  for (int round = 0; round < 3; ++round) {
    const Scratch scratch;
    int start[2];
    ASSERT_EQ(pipe(start), 0);
    std::vector<pid_t> children;
    for (int n = 0; n < 8; ++n) {
      const pid_t child = fork();
      if (child == 0) {
        // All wait for the pipe to close, then build at once.
        char byte = 0;
        close(start[1]);
        const bool released = read(start[0], &byte, 1) == 0;
        bool good = false;
        try {
          const codegen::BuiltKernels built = build(two_kernels(), scratch.path());
          good = released && call(built, "three") == 3 && call(built, "four") == 4;
        } catch (const std::exception&) {
        }
        _exit(good ? 0 : 1);
      }
      children.push_back(child);
    }
    close(start[0]);
    close(start[1]);
    for (pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    EXPECT_EQ(scratch.files().size(), 3u) << "something was left behind";
  }
}

TEST(CpuBuild, DamagedEntriesAreMadeAgain) {
  const Scratch scratch;
  const codegen::BuiltKernels whole = build(two_kernels(), scratch.path());
  const auto damage = [](const std::string& text, int kind) -> std::string {
    std::string out = text;
    if (kind == 0) out.resize(out.size() / 2);
    if (kind == 1) out[out.size() - 9] = static_cast<char>(out[out.size() - 9] ^ 0x10);
    if (kind == 2) out.clear();
    if (kind == 3) out = "something else entirely";
    if (kind == 4) out += "more";
    return out;
  };
  for (int kind = 0; kind < 5; ++kind) {
    const std::vector<fs::path> files = scratch.files();
    std::vector<std::string> good;
    for (const fs::path& file : files) {
      good.push_back(text_of(file));
      overwrite(file, damage(good.back(), kind));
    }
    EXPECT_EQ(build(two_kernels(), scratch.path()).files, whole.files);
    for (size_t k = 0; k < files.size(); ++k) EXPECT_EQ(text_of(files[k]), good[k]) << "not repaired";
  }
}

TEST(CpuBuild, AnEntryUnderAnotherKeyIsNotTaken) {
  const Scratch scratch;
  const Cache cache(scratch.path());
  cache.store(Cache::key("a"), "content");
  fs::rename(scratch.files().front(), scratch.path() / (Cache::key("b") + ".bin"));
  EXPECT_FALSE(cache.find(Cache::key("b")).has_value());
  EXPECT_TRUE(scratch.files().empty());
}

TEST(CpuBuild, WorksWhereNothingCanBeStored) {
  const Scratch scratch;
  overwrite(scratch.path() / "file", "x");
  for (const std::string& directory :
       {std::string(), (scratch.path() / "file").string(), (scratch.path() / "file/below").string(), std::string("/proc/none")}) {
    EXPECT_FLOAT_EQ(call(build(two_kernels(), directory), "four"), 4) << directory;
  }
  const fs::path closed = scratch.path() / "closed";
  build(two_kernels(), closed);
  fs::permissions(closed, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_FLOAT_EQ(call(build(two_kernels(), closed), "four"), 4);
  EXPECT_FLOAT_EQ(call(build(two_kernels("_new"), closed), "four_new"), 4);
  fs::permissions(closed, fs::perms::owner_all);
}

TEST(CpuBuild, KeysDependOnEveryByte) {
  EXPECT_NE(Cache::key("a"), Cache::key("b"));
  EXPECT_NE(Cache::key(""), Cache::key(std::string(1, '\0')));
  EXPECT_EQ(Cache::key("a").size(), 32u);
}

TEST(CpuBuild, AMissingCompilerSaysWhatToInstall) {
  try {
    build(two_kernels(), "", "no-such-compiler");
    FAIL();
  } catch (const ir::MachineError& error) {
    EXPECT_NE(std::string(error.what()).find("apt install g++"), std::string::npos) << error.what();
  }
  EXPECT_THROW(build(two_kernels(), "", "false"), ir::MachineError);
}

TEST(CpuBuild, AKernelThatDoesNotCompileIsOurBugWithSourceAndLog) {
  try {
    build({{"broken", "extern \"C\" void broken(void* const*, const int64_t*, int64_t) { no_such_name(); }\n"}}, "");
    FAIL();
  } catch (const ir::InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("no_such_name();"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("not declared"), std::string::npos) << error.what();
  }
}

TEST(CpuBuild, FeaturesFollowTheArchitecture) {
  codegen::CpuTargetOptions options;
  options.arch = "x86-64-v3";
  EXPECT_EQ(codegen::make_cpu_target(options)->build({}).features.find("avx512"), std::string::npos);
  EXPECT_NE(codegen::make_cpu_target(options)->build({}).features.find("avx2"), std::string::npos);
}

}  // namespace
}  // namespace ingot
