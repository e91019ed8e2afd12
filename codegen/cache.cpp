#include "codegen/cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "ir/base/text.h"

namespace ingot::codegen {
namespace {

/// First line of an entry: magic with the format's version, the key, the content's size and hash.
std::string header(const std::string& key, std::string_view content) {
  return fmt::format("ingot-cache-1 {} {} {:016x}\n", key, content.size(), ir::hash64(content));
}

void warn_once(const std::string& path) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) fmt::print(stderr, "warning: damaged cache entry {} deleted; its kernel is compiled again\n", path);
}

}  // namespace

std::string Cache::key(std::string_view material) {
  // Two hashes of 64 bits over texts that differ in their first byte.
  return fmt::format("{:016x}{:016x}", ir::hash64(fmt::format("a{}", material)), ir::hash64(fmt::format("b{}", material)));
}

std::string Cache::path_of(const std::string& key) const { return (std::filesystem::path(directory_) / (key + ".bin")).string(); }

std::optional<std::string> Cache::find(const std::string& key) const {
  if (directory_.empty()) return std::nullopt;
  const std::string path = path_of(key);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string entry((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t end = entry.find('\n');
  if (end != std::string::npos) {
    std::string content = entry.substr(end + 1);
    if (entry.compare(0, end + 1, header(key, content)) == 0) return content;
  }
  warn_once(path);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return std::nullopt;
}

std::string Cache::writable_directory() const {
  if (directory_.empty()) return "";
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  return access(directory_.c_str(), W_OK | X_OK) == 0 ? directory_ : "";
}

void Cache::store(const std::string& key, std::string_view content) const {
  if (writable_directory().empty()) return;
  static std::atomic<uint64_t> serial{0};
  const std::string path = path_of(key);
  const std::string aside = fmt::format("{}.{}.{}.tmp", path, getpid(), serial++);
  std::error_code error;
  {
    std::ofstream file(aside, std::ios::binary);
    file << header(key, content) << content;
    file.close();
    if (!file) {
      std::filesystem::remove(aside, error);
      return;
    }
  }
  // Several processes may get here with the same content: the last rename stands, each has its own result already.
  std::filesystem::rename(aside, path, error);
  if (error) std::filesystem::remove(aside, error);
}

}  // namespace ingot::codegen
