// Sums of partial rows that wait for each other, so that one launch adds those of several ops. Most are gradients of vectors,
// which nobody reads before the end of a step; each by itself would be a launch whose work is done before it has begun.
#pragma once
#include <string>
#include <vector>

#include "codegen/target.h"
#include "ir/plan/plan.h"

namespace ingot::codegen {

struct WaitingSum {
  RowSum sum;
  ir::BufferId partials = ir::kNoBuffer;
  ir::BufferId plus = ir::kNoBuffer;    ///< of a RowSum with one
  ir::BufferId result = ir::kNoBuffer;  ///< none: nobody but `value`'s one reader asks for it, which may add the sum itself
  ir::ValueId value = ir::kNone;        ///< what the sum makes
  std::string label;                    ///< its name
  ir::Loc loc;
};

/// Sums in the order in which their partials were made.
class SumQueue {
 public:
  explicit SumQueue(SumLimits limits) : limits_(limits) {}
  void add(WaitingSum sum);
  /// Nothing more should wait: they are as many, or keep as many bytes, as the target allows.
  bool full() const { return waiting_.size() >= limits_.sums || bytes_ >= limits_.bytes; }
  /// Does the call read or write bytes of a result, or of what is added to it? The sums have to be added before it then. Nobody
  /// else touches the partials of those that wait.
  bool touched(const ir::Plan& plan, const ir::Call& call) const;
  bool touched(const ir::Plan& plan, ir::BufferId buffer) const;
  /// All of them; none waits afterwards.
  std::vector<WaitingSum> take();
  /// The one that makes this value; nullptr: none does.
  WaitingSum* find(ir::ValueId value);
  /// Takes it out: its reader adds it. The buffer of its partials.
  ir::BufferId remove(ir::ValueId value);

 private:
  SumLimits limits_;
  std::vector<WaitingSum> waiting_;
  int64_t bytes_ = 0;
};

/// An op's launches with one that adds its sums, for whoever runs them alone.
OpLaunches with_sums(OpLaunches launches, const Target& target);

}  // namespace ingot::codegen
