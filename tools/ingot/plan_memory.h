// What a plan's memory holds: `ingot inspect --memory` and `--saved`.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/plan/plan.h"

namespace ingot::tools {

/// Bytes alive at each call of a program, persistent ones left out.
std::vector<int64_t> live_bytes(const ir::Plan& plan, int program);

/// A program's memory at the call where most is alive.
struct ProgramMemory {
  std::string program;
  int call = 0;
  int64_t bound = 0;                     ///< bytes alive there, inputs and outputs included: no placement needs less
  int64_t temps = 0;                     ///< of these, temps and workspaces, which are placed anew for every program
  int64_t placed = 0;                    ///< bytes from the first to the last that the program's temps and workspaces stand on
  std::vector<const ir::Buffer*> alive;  ///< the largest first
  std::map<ir::BufferRole, int64_t> by_role;             ///< of `alive`
  std::vector<std::pair<std::string, int64_t>> by_line;  ///< "models/rwkv7.yaml:104", the largest first; "" = no line
};
/// Of every program that has anything alive.
std::vector<ProgramMemory> program_memory(const ir::Plan& plan);

std::string plan_memory(const ir::Plan& plan);
nlohmann::ordered_json plan_memory_json(const ir::Plan& plan);

/// A value the forward makes and the backward reads.
struct SavedValue {
  std::string name, layer, line;  ///< layer: "blocks.3", "" outside the layers; line: "models/rwkv7.yaml:104"
  ir::Type type;
  double passes = 0;  ///< in reads or writes of [tokens, width] at 16 bits
};
struct SavedReport {
  std::vector<SavedValue> values;                         ///< in graph order
  std::vector<std::pair<std::string, double>> per_layer;  ///< passes, in order of appearance
  double pass_bytes = 0;                                  ///< of one pass; 0: no tokens or no width in the config
};
/// Of the training program's fused graph. UserError when the plan keeps none (it has no train program).
SavedReport saved_report(const ir::Plan& plan);
std::string saved_text(const SavedReport& report);
nlohmann::ordered_json saved_json(const SavedReport& report);

}  // namespace ingot::tools
