// The parts of verify_plan. Each throws UserError with one sentence; later parts rely on what earlier ones established.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "ir/plan/plan.h"

namespace ingot::ir {

/// Throws UserError "bad plan: ...".
[[noreturn]] void bad_plan(const std::string& sentence);
/// "%blocks.0.att.xr"
std::string show(const Plan& plan, BufferId id);
/// "program train, call 12 (launch \"xr\")"
std::string show(const Program& program, size_t call);

/// The buffer that owns the bytes.
inline BufferId owner_of(const Plan& plan, BufferId id) {
  return plan.buffers[id].view_of == kNoBuffer ? id : plan.buffers[id].view_of;
}
/// Does the call need / change what the buffer held? `inout` does both, but on a workspace it needs nothing.
bool needs_contents(const Plan& plan, const Access& access);
inline bool writes(const Access& access) { return access.mode != AccessMode::read; }
/// Bytes an access may touch: [begin, end) in the buffer's arena.
struct ByteRange {
  int64_t begin = 0, end = 0;
  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const ByteRange&) const = default;
};
ByteRange bytes_of(const Buffer& buffer);
/// Bytes of the buffer's type: a buffer may be longer.
ByteRange contents_of(const Buffer& buffer);

/// Which bytes have been written: disjoint runs.
class Written {
 public:
  void add(ByteRange range);
  bool covers(const ByteRange& range) const;

 private:
  std::map<int64_t, int64_t> runs_;  ///< begin -> end
};

void check_files(const Plan& plan);     ///< files, kernels
void check_buffers(const Plan& plan);   ///< arenas, buffers, views, bindings, names
void check_overlap(const Plan& plan);   ///< no two owners share bytes while both live
void check_programs(const Plan& plan);  ///< ports and calls: kinds, counts, sizes, live ranges, aliases within a call
void check_order(const Plan& plan);     ///< nothing read before it was written, outputs written
void check_lanes(const Plan& plan);     ///< happens-before between lanes

}  // namespace ingot::ir
