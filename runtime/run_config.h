// What makes two runs the same run: config, hypers, data. Compared when a run is resumed.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data.h"
#include "runtime/session.h"

namespace ingot::runtime {

/// Sets hyper variables from text; `steps` too where the plan has it. UserError for a name that is no hyper (says the nearest), a
/// value that is no finite number, or a warm-up longer than the run.
void set_hypers(Session& session, const std::vector<std::pair<std::string, std::string>>& values, int64_t steps);

/// Batches a step the plan was compiled for (1 where it does not say).
int64_t plan_microbatches(const ir::Plan& plan);
/// Does training begin each window with the states that the one before left?
bool plan_carries_state(const ir::Plan& plan);
/// Window length, batch and vocabulary as the plan's training inputs have them; UserError when it has no training program, or its
/// inputs are not tokens and targets of two axes.
DataOptions plan_data_options(const ir::Plan& plan, int64_t microbatches);

/// Everything a resumed run must agree with, as text: the plan's config, every hyper's value, microbatches, and the data (its
/// size and a fingerprint of its ends; the path may change).
std::map<std::string, std::string> run_config(const Session& session, const TokenData& data, int64_t microbatches);

struct ConfigChange {
  std::string key, before, after;  ///< "(absent)" when one side has no such key
  bool safe = false;               ///< changes nothing but where or how fast the run happens
  std::string text() const;        ///< "lr: 0.001 -> 0.0005"
};
std::vector<ConfigChange> compare_configs(const std::map<std::string, std::string>& before,
                                          const std::map<std::string, std::string>& after);
/// UserError for an allowed key that neither configuration has.
void check_allowed(const std::vector<std::string>& allowed, const std::map<std::string, std::string>& before,
                   const std::map<std::string, std::string>& after);
/// UserError naming every unsafe change that is not allowed.
void refuse_changes(const std::vector<ConfigChange>& changes, const std::vector<std::string>& allowed);

/// A run's id: 16 random hexadecimal digits, kept in OUT/run.json.
std::string new_run_id();
void write_run_id(const std::string& out, const std::string& id);
std::string read_run_id(const std::string& out);  ///< "" when there is none

}  // namespace ingot::runtime
