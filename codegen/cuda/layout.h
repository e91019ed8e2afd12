// How the threads of a kernel share the rows and columns of a fused region.
#pragma once
#include <cstdint>

#include "codegen/cuda/emit.h"
#include "passes/region.h"

namespace ingot::codegen::cuda {

/// A team of whole warps takes a row at a time, and owns a range of neighbouring rows; a thread owns the same columns of all of
/// them: `chunks` runs of `at_once` neighbouring columns, a team's width apart. So parameters, sums over rows and the row before
/// stay in the thread's registers.
struct RowLayout {
  enum class Way : uint8_t {
    resident,  ///< a row's values stay in its threads' registers
    looped,    ///< rows too long for that: threads step through the columns, once per sweep
    apart,     ///< neither: the region's ops one by one, the rest of this says nothing
  } way = Way::resident;
  int at_once = 1;        ///< E: columns read and written together
  int chunks = 1;         ///< K
  int warps = 1;          ///< of a team
  int teams = 1;          ///< of a block; they share nothing but the sum of their sums
  int resident = 1;       ///< blocks a multiprocessor should hold at once
  int64_t slabs = 1;      ///< parts the columns are cut into, each by blocks of its own: where nothing runs along whole rows
  int64_t ranges = 1;     ///< blocks along the rows
  int64_t rows_each = 1;  ///< rows of a team
  /// Rows go round the teams, so that at any time a card works on neighbouring rows; else a team has a range of them, as it needs
  /// where it reads or computes rows beside its own.
  bool spread = false;
  int ahead = 0;  ///< rows copied to shared memory before their turn (ring.h); 0: rows go straight to registers
  int slots = 0;  ///< looped: chunks that shared memory holds, a row or more (held.h); 0: every sweep reads memory

  int lanes() const { return 32 * warps; }
  int threads() const { return lanes() * teams; }
  int64_t slab() const { return int64_t{1} * lanes() * at_once * chunks; }  ///< columns of one
  int64_t blocks() const { return ranges * slabs; }
  int64_t row_teams() const { return ranges * teams; }  ///< of all blocks, along the rows
};

/// What a thread holds per column it owns, in registers of 32 bits.
struct RowDemand {
  double registers = 0;
  double lasting = 0;       ///< of them: from loop to loop or from row to row; the others only while a chunk is worked on
  bool heads = false;       ///< something treats heads apart: the columns read together lie in one head
  bool whole_rows = false;  ///< something runs along whole rows
  bool sums = false;        ///< sums over the rows
  bool halo = false;        ///< rows of the neighbouring range are read or computed too
  // What may wait in shared memory instead.
  double waiting = 0;                         ///< registers of the above
  double row_bytes = 0, parameter_bytes = 0;  ///< per column: of a row, and once
  int small = 0;                              ///< streams of one word a head or a row
  int depth = 1;                              ///< rows that are held
  int64_t aligned = 8;                        ///< columns that may be copied together
  int narrowest = 8;                          ///< bytes of an element, the least
};

RowLayout choose_layout(const passes::RegionPlan& plan, const RowDemand& demand, const Arch& arch);

}  // namespace ingot::codegen::cuda
