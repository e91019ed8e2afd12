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
  ir::BufferId partials = ir::kNoBuffer, result = ir::kNoBuffer;
  std::string label;  ///< the value that the sum makes
  ir::Loc loc;
};

/// Sums in the order in which their partials were made.
class SumQueue {
 public:
  explicit SumQueue(SumLimits limits) : limits_(limits) {}
  void add(WaitingSum sum);
  /// Nothing more should wait: they are as many, or keep as many bytes, as the target allows.
  bool full() const { return waiting_.size() >= limits_.sums || bytes_ >= limits_.bytes; }
  /// Does the call read or write bytes of a result? The sums have to be added before it then. Nobody else touches their partials.
  bool touched(const ir::Plan& plan, const ir::Call& call) const;
  /// All of them; none waits afterwards.
  std::vector<WaitingSum> take();

 private:
  SumLimits limits_;
  std::vector<WaitingSum> waiting_;
  int64_t bytes_ = 0;
};

/// An op's launches with one that adds its sums, for whoever runs them alone.
OpLaunches with_sums(OpLaunches launches, const Target& target);

}  // namespace ingot::codegen
