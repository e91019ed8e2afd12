#include "tools/shared/exit.h"

#include <fmt/format.h>

#include <cstdio>
#include <new>
#include <system_error>

#include "ir/base/error.h"

namespace ingot::tools {
namespace {

// stderr may be closed: there is nobody left to tell.
void say(const std::string& text) { std::fputs((text + "\n").c_str(), stderr); }

int bug(const std::string& command, const std::string& what) {
  say(fmt::format("ingot: internal error: {}\nThis is a bug of ours. To reproduce it: {}", what, command));
  return kOurBug;
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    throw ir::MachineError("cannot write to the standard output (is the disk full?)");
  }
}

}  // namespace

int guarded(const std::string& command, const std::function<void()>& body) {
  try {
    body();
    flush_output();
    return 0;
  } catch (const Exit& exit) {
    std::fflush(stdout);
    return exit.code;
  } catch (const ir::UserError& error) {
    say(error.what());
    return kUserMistake;
  } catch (const ir::MachineError& error) {
    say(fmt::format("ingot: error: {}", error.what()));
    return kMachineLacks;
  } catch (const Stopped& error) {
    say(fmt::format("ingot: stopped: {}", error.what()));
    return kStopped;
  } catch (const std::bad_alloc&) {
    say("ingot: error: this machine has not enough memory");
    return kMachineLacks;
  } catch (const std::system_error& error) {
    say(fmt::format("ingot: error: {}", error.what()));
    return kMachineLacks;
  } catch (const std::exception& error) {
    return bug(command, error.what());
  }
}

std::string command_line(int argc, char** argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) {
    std::string word = argv[i];
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                            "_-./=,:+@%") == std::string::npos;
    if (!plain) {
      for (size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4) word.replace(at, 1, "'\\''");
      word = "'" + word + "'";
    }
    line += (i ? " " : "") + word;
  }
  return line;
}

}  // namespace ingot::tools
