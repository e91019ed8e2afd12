// What a person sees while training: one line that moves on a terminal, one plain line per interval anywhere else.
// The line is drawn here: Debian packages no C++ progress bar library.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace ingot::runtime {

enum class ProgressMode : uint8_t { plain, bar, none };
/// "auto" is a bar when `terminal`; UserError for another name than auto, plain, none.
ProgressMode progress_mode(const std::string& name, bool terminal);

struct StepReport {
  int64_t step = 0, steps = 0;
  double loss = 0, lr = 0, grad_norm = 0, tokens_per_s = 0;
};

class Progress {
 public:
  Progress(ProgressMode mode, std::FILE* out, int64_t every) : mode_(mode), out_(out), every_(every) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepReport& report);
  /// A line that stays ("val loss 4.31", "saved ..."). Printed in every mode but none.
  void say(const std::string& line);
  /// A line that must be seen: to stderr, in every mode.
  void warn(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const StepReport& report);
  void clear();

  ProgressMode mode_;
  std::FILE* out_;
  int64_t every_;
  bool drawn_ = false;
  int64_t first_step_ = 0;
  Clock::time_point start_ = Clock::now(), last_draw_{};
};

}  // namespace ingot::runtime
