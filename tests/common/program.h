// Runs a program of ours as a user would: arguments in, exit code and texts out.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace ingot::tests {

struct ProgramResult {
  int code = -1;  ///< exit code, or 128 + n after signal n
  std::string out, err;
};

/// `words[0]` is the path of the program. `environment` adds to this process's own.
ProgramResult run_program(const std::vector<std::string>& words, const std::string& input = "",
                          const std::map<std::string, std::string>& environment = {});

/// A folder of its own below the system's temporary one, removed with everything in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file in it and gives its path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
};

std::string file_content(const std::string& path);

}  // namespace ingot::tests
