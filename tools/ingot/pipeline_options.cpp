#include "tools/ingot/pipeline_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "ir/base/error.h"
#include "tools/shared/parse.h"
#include "tools/shared/units.h"

namespace ingot::tools {

void add_pipeline_flags(CLI::App& command, PipelineFlags& flags) {
  command.add_option("--dump-after", flags.dump_after, "PASS,.. or all: write the module after these passes");
  command.add_option("--dump-dir", flags.dump_dir, "where dumps and reproducers go (default: here)");
  command.add_option("--stop-after", flags.stop_after, "stop behind this pass");
  command.add_option("--disable", flags.disable, "PASS,..: passes to leave out");
  command.add_flag("--time-passes", flags.time_passes, "print the time each pass took");
  command.add_flag("--verify-roundtrip", flags.verify_roundtrip, "after each pass print, parse and compare");
}

passes::PipelineOptions PipelineFlags::options() {
  passes::PipelineOptions options;
  options.dump_after = comma_list(dump_after);
  options.dump_dir = dump_dir;
  options.stop_after = stop_after;
  options.disable = comma_list(disable);
  options.verify_roundtrip = verify_roundtrip;
  options.times = &times;
  options.remarks = &remarks;
  if (dump_dir.empty()) return options;
  std::error_code error;
  std::filesystem::create_directories(dump_dir, error);
  if (error) throw ir::MachineError(fmt::format("cannot make the folder '{}': {}", dump_dir, error.message()));
  return options;
}

std::string PipelineFlags::times_text() const {
  struct Row {
    std::string pass;
    double milliseconds = 0;
    size_t before = 0, after = 0, runs = 0;
  };
  std::vector<Row> rows;
  double total = 0;
  for (const passes::PassTime& time : times) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.pass == time.pass; });
    if (row == rows.end()) row = rows.insert(row, {time.pass});
    row->milliseconds += time.milliseconds;
    row->before += time.ops_before;
    row->after += time.ops_after;
    ++row->runs;
    total += time.milliseconds;
  }
  std::string text = fmt::format("{:<16}{:>10}{:>6}{:>10}{:>10}\n", "pass", "time", "runs", "ops in", "ops out");
  for (const Row& row : rows) {
    text += fmt::format("{:<16}{:>10}{:>6}{:>10}{:>10}\n", row.pass, seconds_text(row.milliseconds / 1e3), row.runs, row.before,
                        row.after);
  }
  return text + fmt::format("{:<16}{:>10}\n", "all", seconds_text(total / 1e3));
}

}  // namespace ingot::tools
