#include "runtime/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/base/error.h"

namespace ingot::runtime {
namespace {

std::string rate(double tokens_per_s) {
  return tokens_per_s >= 1e4 ? fmt::format("{:.1f}k tok/s", tokens_per_s / 1e3) : fmt::format("{:.0f} tok/s", tokens_per_s);
}

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60) : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

ProgressMode progress_mode(const std::string& name, bool terminal) {
  if (name == "auto") return terminal ? ProgressMode::bar : ProgressMode::plain;
  if (name == "plain") return ProgressMode::plain;
  if (name == "none") return ProgressMode::none;
  throw ir::UserError(ir::Loc{}, fmt::format("--progress={}; it is auto, plain or none", name));
}

void Progress::step(const StepReport& r) {
  if (mode_ == ProgressMode::bar) return draw(r);
  const bool due = r.step % std::max<int64_t>(every_, 1) == 0 || r.step == 1 || r.step == r.steps;
  if (mode_ == ProgressMode::none || !due) return;
  fmt::print(out_, "step {}/{}  loss {:.4f}  lr {:.3g}  norm {:.3g}  {}\n", r.step, r.steps, r.loss, r.lr, r.grad_norm,
             rate(r.tokens_per_s));
  std::fflush(out_);
}

void Progress::draw(const StepReport& r) {
  const auto now = Clock::now();
  if (first_step_ == 0) first_step_ = r.step, start_ = now;
  if (r.step != r.steps && now - last_draw_ < std::chrono::milliseconds(100)) return;  // more often only flickers
  last_draw_ = now;
  constexpr int64_t kWidth = 24;
  const int64_t full = kWidth * r.step / std::max<int64_t>(r.steps, 1);
  const double spent = std::chrono::duration<double>(now - start_).count();
  const double left =
      r.step > first_step_ ? spent / static_cast<double>(r.step - first_step_) * static_cast<double>(r.steps - r.step) : 0;
  fmt::print(out_, "\r[{:=<{}}{: <{}}] {}/{}  loss {:.4f}  lr {:.3g}  {}  {} left\x1b[K", "", full, "", kWidth - full, r.step,
             r.steps, r.loss, r.lr, rate(r.tokens_per_s), clock_text(left));
  std::fflush(out_);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(out_, "\n");
  std::fflush(out_);
  drawn_ = false;
}

void Progress::say(const std::string& line) {
  if (mode_ == ProgressMode::none) return;
  if (drawn_) fmt::print(out_, "\r\x1b[K");
  drawn_ = false;
  last_draw_ = {};
  fmt::print(out_, "{}\n", line);
  std::fflush(out_);
}

void Progress::warn(const std::string& line) {
  clear();
  fmt::print(stderr, "warning: {}\n", line);
}

}  // namespace ingot::runtime
