// A plan under construction: arenas that grow, buffers that find their place, one program after another.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codegen/kernels.h"
#include "codegen/layout.h"
#include "codegen/memory.h"
#include "ir/graph/graph.h"
#include "ir/plan/plan.h"

namespace ingot::codegen {

/// How the temps of one program were placed.
struct MemoryReport {
  std::string program;
  int64_t temps = 0;         ///< how many
  int64_t total_bytes = 0;   ///< if none shared bytes
  int64_t bound_bytes = 0;   ///< the most live at once
  int64_t placed_bytes = 0;  ///< what the work arena needs for it
};

/// How the calls of a program stand beside each other and its temps share bytes.
struct Arrangement {
  bool reuse = true;           ///< false: no temp shares bytes with another
  int lanes = 1;               ///< calls are spread over (lanes.h)
  int64_t gemm_workspace = 0;  ///< bytes of scratch for the products of each lane
};

class PlanDraft {
 public:
  /// Binds every variable of the module to a buffer: one arena per role, in the module's order, segments in one piece.
  PlanDraft(const ir::Module& module, Layout layout);

  const ir::Plan& plan() const { return plan_; }
  const Layout& layout() const { return layout_; }
  KernelPool& kernels() { return kernels_; }
  const std::vector<MemoryReport>& memory() const { return memory_; }

  /// Begins a program; what follows belongs to it until end_program.
  int begin_program(std::string name);
  /// Spreads its calls over lanes, gives products their scratch and places the temps.
  void end_program(const Arrangement& arrangement);

  ir::BufferId variable(std::string_view name) const;
  /// What stands between variables and is read as zeros.
  std::vector<ir::BufferId> zero_gaps();
  /// A buffer of the current program: input and output keep their bytes, temp and workspace are placed by the calls that touch
  /// them.
  ir::BufferId add_buffer(std::string_view name, const ir::Type& type, ir::BufferRole role, ir::Loc loc);
  /// Part of a buffer, from `offset` bytes on; the buffer itself when it is all of it with the same type.
  ir::BufferId view(ir::BufferId of, std::string_view name, const ir::Type& type, int64_t offset, ir::Loc loc);
  void add_input(std::string name, ir::BufferId buffer) { current().inputs.push_back({std::move(name), buffer}); }
  void add_output(std::string name, ir::BufferId buffer) { current().outputs.push_back({std::move(name), buffer}); }
  /// Appends a call; temps it touches live at least until it.
  void add_call(ir::Call call);

  /// Compiles the kernels and hands the plan over.
  ir::Plan finish(const Target& target);

 private:
  ir::Program& current() { return plan_.programs.back(); }
  int arena(std::string_view name);
  int64_t allocate(int arena, int64_t bytes);
  void add_gemm_workspaces(int64_t bytes);
  void touch(ir::BufferId id, int call);
  void lengthen_lives();
  ir::BufferId push(ir::Buffer buffer);
  std::string local_name(std::string_view name) const;

  ir::BufferId add_segment(const Segment& segment, ir::Buffer like);

  const Layout layout_;
  ir::Plan plan_;
  KernelPool kernels_;
  std::map<std::string, ir::BufferId, std::less<>> variables_, views_;
  std::vector<ir::BufferId> segments_;  ///< the owners of the layout's segments
  size_t first_local_ = 0;              ///< buffers from here on belong to the current program
  std::vector<MemoryReport> memory_;
};

}  // namespace ingot::codegen
