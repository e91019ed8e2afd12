// How a program of ours ends. Every main() runs its body inside guarded(), which says what went wrong and whose mistake it was.
#pragma once
#include <functional>
#include <stdexcept>
#include <string>

namespace ingot::tools {

inline constexpr int kUserMistake = 1;   ///< the user's mistake (the option parser's own codes become this, too)
inline constexpr int kMachineLacks = 2;  ///< the machine lacks something
inline constexpr int kOurBug = 3;        ///< a bug of ours
inline constexpr int kStopped = 4;       ///< a run stopped itself (NaN, watchdog)

/// A run that stopped itself: exit code 4.
class Stopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Ends the program with this code; what there was to say has been said (`verify` past its tolerance, 128 + n after a signal).
struct Exit {
  int code = 0;
};

/// Runs the body; turns what it throws into a message on stderr and an exit code. `command` is what the user typed, for bug
/// reports.
int guarded(const std::string& command, const std::function<void()>& body);

/// The words of main() as one line that a shell reads back.
std::string command_line(int argc, char** argv);

}  // namespace ingot::tools
