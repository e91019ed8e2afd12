// Files on disk by the hash of what they were made from. Safe under concurrent processes: an entry appears whole, by rename;
// every entry carries the hash of its content, and one that does not match is deleted and made again.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace ingot::codegen {

class Cache {
 public:
  /// "" = no cache. The directory is made when the first entry is stored; when it cannot be written, nothing is kept.
  explicit Cache(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }
  /// 32 hexadecimal digits for everything that decides the content.
  static std::string key(std::string_view material);
  /// The content stored under `key`; nothing when absent or damaged (a damaged entry is deleted and a warning printed once).
  std::optional<std::string> find(const std::string& key) const;
  /// Best effort: failing to store is not an error.
  void store(const std::string& key, std::string_view content) const;
  /// Makes the directory; "" when there is no cache or it cannot be written.
  std::string writable_directory() const;

 private:
  std::string path_of(const std::string& key) const;
  std::string directory_;
};

}  // namespace ingot::codegen
