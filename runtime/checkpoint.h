// Checkpoints: one folder a step, whole or absent.
//
//   OUT/step-00000050/weights.safetensors     parameters
//                     optimizer.safetensors   every saved state: moments, step counter
//                     state.json              the manifest: what is below, hypers as text, sizes and checksums of the files
//
// A checkpoint is written into a hidden folder, each file synced, the manifest last; then the folder is renamed and OUT synced.
// So whatever the moment of a crash, a folder named step-* holds all its files or was never there. Folders are told apart and
// ordered by the manifest, never by their names.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/session.h"

namespace ingot::runtime {

/// Where a run stands, beside its tensors.
struct RunState {
  std::string run;       ///< id, made when the run began
  int64_t step = 0;      ///< steps taken
  int64_t position = 0;  ///< training windows taken
  int64_t tokens = 0;    ///< tokens taken
  uint64_t seed = 0;
  std::map<std::string, std::string> config;  ///< everything a resumed run must agree with
  bool operator==(const RunState&) const = default;
};

struct Checkpoint {
  std::string path;
  RunState state;
};

using Warn = std::function<void(const std::string&)>;

/// Writes OUT/step-N, replacing a folder of that name. Nothing appears there unless all of it is on disk.
Checkpoint save_checkpoint(const std::string& out, const Session& session, const RunState& state);

/// Checks the manifest, the sizes and the checksums; UserError with the reason when anything differs.
Checkpoint open_checkpoint(const std::string& path);
/// The complete checkpoint of this run (any run when `run` is "") with the highest step; `warn` hears of every damaged one passed
/// over, with the reason. UserError when there is none.
Checkpoint newest_checkpoint(const std::string& out, const std::string& run, const Warn& warn);

/// Writes parameters and states back, then runs `prepare`. A tensor that is missing or of another shape is a UserError listing
/// all.
void restore_checkpoint(Session& session, const Checkpoint& checkpoint);

/// Deletes all but the `keep` newest of the run that `newest` belongs to, never `newest` itself.
void prune_checkpoints(const std::string& out, const Checkpoint& newest, int64_t keep);
/// After going back to `kept`: removes what a killed save left, and renames this run's later checkpoints to set-aside-*, so
/// that no later resume takes them for a continuation.
void set_aside_later(const std::string& out, const Checkpoint& kept);
/// Does OUT hold any part of a run?
bool holds_run(const std::string& out);

}  // namespace ingot::runtime
