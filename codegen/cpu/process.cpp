#include "codegen/cpu/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "ir/base/error.h"

namespace ingot::codegen::cpu {
namespace {

struct Running {
  pid_t pid = -1;
  int pipe = -1;
  size_t index = 0;
};

/// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become(char* const* argv, const char* directory, int output) {
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (chdir(directory) == 0) execvp(argv[0], argv);
  _exit(127);
}

Running start(const std::vector<std::string>& command, const std::filesystem::path& directory, size_t index) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::string where = directory.string();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw ir::MachineError(std::string("cannot start the host compiler: ") + std::strerror(errno));
  const pid_t pid = fork();
  if (pid == 0) become(argv.data(), where.c_str(), ends[1]);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    throw ir::MachineError(std::string("cannot start the host compiler: ") + std::strerror(errno));
  }
  return {pid, ends[0], index};
}

/// Reads what is there; false at the end of the output.
bool drain(int pipe, std::string& output) {
  char buffer[4096];
  const ssize_t n = read(pipe, buffer, sizeof buffer);
  if (n > 0) output.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::vector<ProcessResult> run_processes(const std::vector<std::vector<std::string>>& commands,
                                         const std::filesystem::path& directory, int jobs) {
  std::vector<ProcessResult> results(commands.size());
  std::vector<Running> running;
  size_t next = 0;
  while (next < commands.size() || !running.empty()) {
    while (next < commands.size() && running.size() < static_cast<size_t>(jobs)) {
      running.push_back(start(commands[next], directory, next));
      ++next;
    }
    std::vector<pollfd> waits;
    for (const Running& child : running) waits.push_back({child.pipe, POLLIN, 0});
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR)
      throw ir::MachineError(std::string("poll: ") + std::strerror(errno));
    for (size_t k = waits.size(); k-- > 0;) {
      if (waits[k].revents == 0 || drain(running[k].pipe, results[running[k].index].output)) continue;
      close(running[k].pipe);
      results[running[k].index].status = wait_for(running[k].pid);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  return results;
}

ProcessResult run_process(const std::vector<std::string>& command, const std::filesystem::path& directory) {
  return run_processes({command}, directory, 1).front();
}

PrivateDirectory::PrivateDirectory(const std::string& preferred) {
  std::error_code ignored;
  std::vector<std::filesystem::path> candidates;
  if (!preferred.empty()) candidates.emplace_back(preferred);
  candidates.push_back(std::filesystem::temp_directory_path(ignored));
  for (const std::filesystem::path& parent : candidates) {
    std::string name = (parent / "ingot-build-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) {
      path_ = name;
      return;
    }
  }
  throw ir::MachineError("cannot make a directory to compile kernels in under " + candidates.back().string() + ": " +
                         std::strerror(errno));
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ingot::codegen::cpu
