#include "runtime/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/carried.h"
#include "runtime/metrics.h"
#include "runtime/run_config.h"
#include "runtime/timing.h"
#include "runtime/weights.h"

namespace ingot::runtime {
namespace {

double scalar(const HostTensor& tensor) { return tensor.to_doubles().at(0); }

/// The median of the last values.
class Recent {
 public:
  void add(double value) {
    values_.push_back(value);
    if (values_.size() > kKept) values_.pop_front();
  }
  size_t count() const { return values_.size(); }
  double median() const { return runtime::median({values_.begin(), values_.end()}); }

 private:
  static constexpr size_t kKept = 200;
  std::deque<double> values_;
};

class Trainer {
 public:
  Trainer(Session& session, const TokenData& data, const TrainOptions& options, Progress& progress, Signals& signals)
      : session_(session), data_(data), options_(options), progress_(progress), signals_(signals) {}

  TrainResult run() {
    begin();
    signals_.defer();
    try {
      return loop();
    } catch (const ir::InternalError& error) {
      throw ir::InternalError(error.what() + standing());
    } catch (const ir::MachineError& error) {
      throw ir::MachineError(error.what() + standing());
    }
  }

 private:
  // A card that is lost or a disk that is full ends the run where it is: what is left of it?
  std::string standing() const {
    if (options_.out.empty()) return fmt::format("; training was at step {}, nothing is saved (no --out)", state_.step);
    if (!saved_) return fmt::format("; training was at step {}, before the first checkpoint", state_.step);
    return fmt::format("; training was at step {}, --resume goes on from {}", state_.step, saved_->path);
  }

  TrainResult loop() {
    if (state_.step == 0) evaluate_when_due();
    TrainResult result;
    while (state_.step < options_.steps && result.end == TrainEnd::finished && signals_.caught() == 0) {
      result.end = step();
      if (result.end == TrainEnd::finished && (stands_still() || signals_.caught() != 0)) result.end = catch_up();
      if (result.end == TrainEnd::diverged || signals_.caught() != 0) break;
      evaluate_when_due();
      if (save_due()) save();
    }
    if (result.end == TrainEnd::finished) result.end = catch_up();  // a signal may come between a step and its report
    say_host_times();
    if (result.end != TrainEnd::diverged) save();
    if (state_.step < options_.steps && result.end == TrainEnd::finished) {
      result.end = TrainEnd::signal;
      result.signal = signals_.caught();
    }
    result.step = state_.step;
    result.checkpoint = saved_ ? saved_->path : "";
    result.reason = reason_;
    return result;
  }

  // Variables, then the run's state: from the seed, from a file of weights, or from a checkpoint.
  void begin() {
    session_.initialise(options_.seed);
    set_hypers(session_, options_.hypers, options_.steps);
    state_.seed = options_.seed;
    state_.config = run_config(session_, data_, options_.microbatches);
    if (options_.resume || !options_.resume_from.empty()) {
      resume();
    } else {
      if (!options_.init.empty()) load_init();
      if (!options_.out.empty()) start_folder();
    }
    if (options_.out.empty()) return;
    ir::write_plan(session_.plan(), options_.out + "/model.plan");
    metrics_ = std::make_unique<Metrics>(options_.out + "/metrics.jsonl", state_.step);
  }

  void load_init() {
    const LoadReport report = load_weights(session_, Safetensors(options_.init), options_.partial);
    progress_.say(fmt::format("loaded {} tensors from {}{}", report.loaded, options_.init,
                              options_.partial ? fmt::format(" ({} missing, {} of another shape, {} extra)", report.missing,
                                                             report.mismatched, report.extra)
                                               : ""));
  }

  void start_folder() {
    make_folders(options_.out);
    state_.run = new_run_id();
    write_run_id(options_.out, state_.run);
  }

  void resume() {
    const bool exact = !options_.resume_from.empty();
    const auto warn = [this](const std::string& text) { progress_.warn(text); };
    const Checkpoint found =
        exact ? open_checkpoint(options_.resume_from) : newest_checkpoint(options_.out, read_run_id(options_.out), warn);
    const auto changes = compare_configs(found.state.config, state_.config);
    for (const ConfigChange& change : changes) progress_.say("changed: " + change.text());
    check_allowed(options_.allow_change, found.state.config, state_.config);
    refuse_changes(changes, options_.allow_change);
    if (carries_ && window_length(found.state.config) != window_length(state_.config)) {
      throw ir::UserError(ir::Loc{}, fmt::format("with --carry-state `time` cannot change ({} -> {}): the states saved belong to "
                                                 "where windows of that length ended",
                                                 window_length(found.state.config), window_length(state_.config)));
    }
    restore_checkpoint(session_, found);
    const auto config = std::move(state_.config);
    state_ = found.state;
    state_.config = config;
    state_.position = state_.position * window_length(found.state.config) / window_length(config);
    saved_ = found;
    progress_.say(fmt::format("resumed {} at step {}", found.path, state_.step));
    if (options_.out.empty()) return;
    make_folders(options_.out);
    write_run_id(options_.out, state_.run);
    set_aside_later(options_.out, found);
  }

  // The position counts windows; where their length may change it stays at the same token.
  static int64_t window_length(const std::map<std::string, std::string>& config) {
    const auto time = config.find("time");
    return time == config.end() ? 1 : std::max<int64_t>(1, std::atoll(time->second.c_str()));
  }

  /// A step that was launched and whose outputs nobody has read yet.
  struct Launched {
    std::string program;
    int64_t step = 0, tokens = 0, step_tokens = 0;
  };

  // Launches a step. Where the device works on while the host goes on, it is the step before this one that is reported.
  TrainEnd step() {
    const auto begin = Clock::now();
    const int64_t count = options_.microbatches;
    Launched now;
    for (int64_t i = 0; i < count; ++i) {
      now.program = count == 1 ? "train" : i == 0 ? "first" : i + 1 == count ? "last" : "next";
      const Batch batch = next_batch();
      session_.set_input(now.program, "tokens", batch.tokens);
      session_.set_input(now.program, "targets", batch.targets);
      session_.run(now.program);
      state_.position += batch.tokens.type.shape[0];
      now.step_tokens += batch.tokens.type.elements();
    }
    state_.tokens += now.step_tokens;
    now.tokens = state_.tokens;
    now.step = ++state_.step;
    if (!session_.runs_ahead()) return report(now, false);
    const std::optional<Launched> before = std::exchange(launched_, now);
    if (!before) return TrainEnd::finished;
    const TrainEnd end = report(*before, true);
    host_.add(seconds_since(begin) - waited_);
    if (const double gap = session_.previous_gap(); gap >= 0) gaps_.add(gap);
    return end;
  }

  // Of a device that runs ahead: is the host quick enough to keep it busy?
  void say_host_times() {
    if (host_.count() == 0 || gaps_.count() == 0) return;
    progress_.say(
        fmt::format("host {:.2f} ms a step beside the device's work, {:.3f} ms between two steps: medians of the last {}",
                    host_.median() * 1e3, gaps_.median() * 1e3, gaps_.count()));
  }

  // Where states are carried, each row reads on in its stretch of the data; at its first window all begin anew.
  Batch next_batch() {
    if (!carries_) return data_.train_batch(state_.position);
    if (data_.begins_stretch(state_.position)) zero_carried_states(session_, "train.carry.");
    return data_.stretch_batch(state_.position);
  }

  // Reports the step that is still running.
  TrainEnd catch_up() {
    const std::optional<Launched> last = std::exchange(launched_, std::nullopt);
    return last ? report(*last, false) : TrainEnd::finished;
  }

  bool save_due() const { return options_.save_every > 0 && state_.step % options_.save_every == 0; }
  bool evaluation_due() const {
    return options_.eval_every > 0 && (state_.step % options_.eval_every == 0 || state_.step == options_.steps);
  }
  bool stands_still() const { return state_.step == options_.steps || save_due() || evaluation_due(); }

  // Tokens per second since the last report, or since the last pause ended.
  double pace(int64_t tokens) {
    const double seconds = seconds_since(last_report_);
    last_report_ = Clock::now();
    return static_cast<double>(tokens) / seconds;
  }

  TrainEnd report(const Launched& done, bool previous) {
    const auto read = [&](const char* name) {
      return scalar(previous ? session_.previous_output(done.program, name) : session_.output(done.program, name));
    };
    const auto begin = Clock::now();
    const double sum = read("loss");
    waited_ = seconds_since(begin);  // for the device to be done
    const double count = read("count"), norm = read("grad_norm"), lr = read("lr");
    const double tokens_per_s = pace(done.step_tokens);
    const double loss = count == 0 ? 0 : sum / count;
    const std::optional<double> scale = has_output(done.program, "loss_scale") ? std::optional(read("loss_scale")) : std::nullopt;
    const bool fell = scale && *scale < std::exchange(loss_scale_, *scale);
    if (metrics_) {
      std::vector<std::pair<std::string, double>> line{{"step", static_cast<double>(done.step)},
                                                       {"tokens", static_cast<double>(done.tokens)},
                                                       {"loss", loss},
                                                       {"lr", lr},
                                                       {"grad_norm", norm},
                                                       {"tokens_per_s", tokens_per_s}};
      if (scale) line.emplace_back("loss_scale", *scale);
      metrics_->write(line);
    }
    progress_.step({done.step, options_.steps, loss, lr, norm, tokens_per_s});
    // In f16 gradients may overflow until the loss scale has come down; it shows by falling.
    if (std::isfinite(loss) && (std::isfinite(norm) || fell)) {
      bad_steps_ = 0;
      return TrainEnd::finished;
    }
    if (++bad_steps_ < options_.patience) return TrainEnd::finished;
    const std::string saved = saved_ ? fmt::format(", the last checkpoint is {}", saved_->path) : "";
    reason_ =
        fmt::format("loss or gradient norm was not finite for {} steps in a row, {} to {}; the weights are those of step {}{}",
                    bad_steps_, done.step - bad_steps_ + 1, done.step, done.step - bad_steps_, saved);
    return TrainEnd::diverged;
  }

  bool has_output(const std::string& program, const char* name) const {
    const std::vector<ir::Port>& outputs = session_.plan().find_program(program)->outputs;
    return std::any_of(outputs.begin(), outputs.end(), [&](const ir::Port& port) { return port.name == name; });
  }

  void evaluate_when_due() {
    if (!evaluation_due() || data_.held_windows() == 0 || !session_.plan().find_program("eval")) return;
    const auto ignore = ignore_id(session_.plan());
    const int64_t batch = session_.plan().buffers[session_.plan().find_program("eval")->inputs.at(0).buffer].type.shape.at(0);
    const int64_t whole = data_.held_windows() / batch, all = whole + (data_.held_windows() % batch != 0 && ignore ? 1 : 0);
    const int64_t batches = options_.eval_batches > 0 ? std::min(options_.eval_batches, all) : all;
    double sum = 0, count = 0;
    for (int64_t i = 0; i < batches; ++i) {
      if (signals_.caught() != 0) return;
      const Batch held = data_.held_batch(i * batch, ignore.value_or(0));
      session_.set_input("eval", "tokens", held.tokens);
      session_.set_input("eval", "targets", held.targets);
      session_.run("eval");
      sum += scalar(session_.output("eval", "loss"));
      count += scalar(session_.output("eval", "count"));
    }
    if (count == 0) return;
    if (metrics_) metrics_->write({{"step", static_cast<double>(state_.step)}, {"val_loss", sum / count}, {"val_tokens", count}});
    progress_.say(fmt::format("step {}  val loss {:.4f}", state_.step, sum / count));
    last_report_ = Clock::now();
  }

  // The id that targets may hold to be left out of the loss.
  static std::optional<int64_t> ignore_id(const ir::Plan& plan) {
    for (const ir::InputRange& range : plan.ranges) {
      if (range.input == "targets" && !range.also.empty()) return range.also.front();
    }
    return std::nullopt;
  }

  void save() {
    if (options_.out.empty() || (saved_ && saved_->state.step == state_.step && saved_->state == state_)) return;
    saved_ = save_checkpoint(options_.out, session_, state_);
    prune_checkpoints(options_.out, *saved_, options_.keep);
    last_report_ = Clock::now();
  }

  Session& session_;
  const bool carries_ = plan_carries_state(session_.plan());
  const TokenData& data_;
  const TrainOptions& options_;
  Progress& progress_;
  Signals& signals_;
  RunState state_;
  std::optional<Checkpoint> saved_;
  std::unique_ptr<Metrics> metrics_;
  std::string reason_;
  int64_t bad_steps_ = 0;
  double loss_scale_ = std::numeric_limits<double>::infinity();  ///< after the step reported last
  std::optional<Launched> launched_;
  Clock::time_point last_report_ = Clock::now();
  // Seconds: the host's part of a step without waiting for the device; from one step of the device to the next.
  Recent host_, gaps_;
  double waited_ = 0;  ///< of the last report
};

void check_options(const Session& session, const TrainOptions& o) {
  const auto at_least = [](int64_t value, int64_t least, const char* what) {
    if (value < least) throw ir::UserError(ir::Loc{}, fmt::format("{} is {}; it must be at least {}", what, value, least));
  };
  at_least(o.steps, 1, "the number of steps");
  at_least(o.microbatches, 1, "the number of microbatches");
  at_least(o.keep, 1, "the number of checkpoints to keep");
  at_least(o.patience, 1, "the number of bad steps to bear");
  at_least(o.save_every, 0, "the number of steps between checkpoints");
  at_least(o.eval_every, 0, "the number of steps between validations");
  at_least(o.eval_batches, 0, "the number of batches a validation reads");
  if (o.steps > std::numeric_limits<int32_t>::max()) {
    throw ir::UserError(ir::Loc{}, fmt::format("the number of steps is {}; the step counter, an i32, ends at {}", o.steps,
                                               std::numeric_limits<int32_t>::max()));
  }
  const bool single = session.plan().find_program("train") != nullptr, several = session.plan().find_program("last") != nullptr;
  if (o.microbatches == 1 ? !single : !several) {
    throw ir::UserError(ir::Loc{}, fmt::format("the plan was compiled for {} and cannot take {} a step",
                                               several  ? "several microbatches"
                                               : single ? "one microbatch"
                                                        : "no training",
                                               o.microbatches));
  }
}

}  // namespace

void check_run_folder(const TrainOptions& o) {
  const bool resume = o.resume || !o.resume_from.empty();
  if (resume && !o.init.empty())
    throw ir::UserError(ir::Loc{}, "--init and --resume both say where the weights come from; give one");
  if (o.resume && o.out.empty()) throw ir::UserError(ir::Loc{}, "--resume needs --out, the folder of the run");
  if (o.resume && o.resume_from.empty() && !holds_run(o.out))
    throw ir::UserError(ir::make_loc(o.out, 0, 0), "no run to resume here");
  if (!resume && !o.out.empty() && holds_run(o.out)) {
    throw ir::UserError(ir::make_loc(o.out, 0, 0),
                        "the folder already holds a run; --resume continues it, or choose another --out");
  }
}

TrainResult train(Session& session, const TokenData& data, const TrainOptions& options, Progress& progress, Signals& signals) {
  check_options(session, options);
  check_run_folder(options);
  data.check_ids();  // before the folder is made, and not hours into the run
  return Trainer(session, data, options, progress, signals).run();
}

}  // namespace ingot::runtime
