// The flags of a run of passes, shared by `opt` and `compile`.
#pragma once
#include <string>
#include <vector>

#include "passes/pass.h"

namespace CLI {
class App;
}

namespace ingot::tools {

struct PipelineFlags {
  std::string dump_after, dump_dir, stop_after, disable;
  bool time_passes = false, verify_roundtrip = false;
  std::vector<passes::PassTime> times;
  std::vector<std::string> remarks;

  /// Makes the dump folder. The result points into this object.
  passes::PipelineOptions options();
  /// What --time-passes prints: a row per pass, the sum over all graphs it ran on.
  std::string times_text() const;
};

void add_pipeline_flags(CLI::App& command, PipelineFlags& flags);

}  // namespace ingot::tools
