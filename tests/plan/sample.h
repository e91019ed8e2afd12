// A small plan that holds one of everything, and plans made at random.
#pragma once
#include <cstdint>
#include <string>

#include "ir/plan/plan.h"

namespace ingot::ir {

Plan sample_plan();
/// Any field may hold anything its text can say; it need not verify.
Plan random_plan(uint64_t seed);

/// Builds plans by name.
class PlanMaker {
 public:
  int arena(std::string name, int64_t bytes);
  BufferId variable(std::string name, VariableRole role, Type type, int arena, int64_t offset, std::string init = "0");
  int program(std::string name);
  BufferId local(int program, std::string name, Type type, BufferRole role, int arena, int64_t offset, int first = -1,
                 int last = -1);
  BufferId view(std::string name, Type type, BufferId owner, int64_t offset = 0);
  void kernel(std::string name, int args, int sizes);
  Call& call(int program, CallKind kind, std::string label, std::vector<Access> args);
  void input(int program, std::string name, BufferId id) { plan.programs[program].inputs.push_back({std::move(name), id}); }
  void output(int program, std::string name, BufferId id) { plan.programs[program].outputs.push_back({std::move(name), id}); }

  Plan plan;
};

inline Access read(BufferId id) { return {id, AccessMode::read}; }
inline Access write(BufferId id) { return {id, AccessMode::write}; }
inline Access inout(BufferId id) { return {id, AccessMode::inout}; }

}  // namespace ingot::ir
