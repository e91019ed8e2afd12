// Running the host compiler.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace ingot::codegen::cpu {

struct ProcessResult {
  int status = 0;      ///< exit code; 128 + n for a signal; -1 when the program could not be started
  std::string output;  ///< standard output and standard error, in the order written
};

/// Runs several commands, at most `jobs` at a time, in `directory`; results stand in the order of the commands.
std::vector<ProcessResult> run_processes(const std::vector<std::vector<std::string>>& commands,
                                         const std::filesystem::path& directory, int jobs);
ProcessResult run_process(const std::vector<std::string>& command, const std::filesystem::path& directory);

/// A directory of this process alone, removed with everything in it at the end of the object's life.
class PrivateDirectory {
 public:
  /// MachineError when neither `preferred` ("" = none) nor the system's temporary directory can be written.
  explicit PrivateDirectory(const std::string& preferred);
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ingot::codegen::cpu
