#include "codegen/sums.h"

#include <algorithm>
#include <utility>

#include "ir/plan/check.h"

namespace ingot::codegen {

void SumQueue::add(WaitingSum sum) {
  bytes_ += sum.sum.bytes();
  waiting_.push_back(std::move(sum));
}

bool SumQueue::touched(const ir::Plan& plan, const ir::Call& call) const {
  return std::any_of(call.args.begin(), call.args.end(), [&](const ir::Access& access) { return touched(plan, access.buffer); });
}

bool SumQueue::touched(const ir::Plan& plan, ir::BufferId buffer) const {
  const auto meets = [&](ir::BufferId own) {
    return buffer != ir::kNoBuffer && own != ir::kNoBuffer && ir::owner_of(plan, buffer) == ir::owner_of(plan, own) &&
           ir::bytes_of(plan.buffers[buffer]).overlaps(ir::bytes_of(plan.buffers[own]));
  };
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const WaitingSum& waiting) { return meets(waiting.result) || meets(waiting.plus); });
}

std::vector<WaitingSum> SumQueue::take() {
  bytes_ = 0;
  return std::exchange(waiting_, {});
}

WaitingSum* SumQueue::find(ir::ValueId value) {
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&](const WaitingSum& sum) { return sum.value == value; });
  return at == waiting_.end() ? nullptr : &*at;
}

ir::BufferId SumQueue::remove(ir::ValueId value) {
  const WaitingSum* sum = find(value);
  const ir::BufferId partials = sum->partials;
  bytes_ -= sum->sum.bytes();
  waiting_.erase(waiting_.begin() + (sum - waiting_.data()));
  return partials;
}

OpLaunches with_sums(OpLaunches launches, const Target& target) {
  if (launches.sums.empty()) return launches;
  std::vector<RowSum> sums;
  for (const PendingSum& pending : launches.sums) sums.push_back(pending.sum);
  Launch launch = target.add_sums(sums);
  for (LaunchArg& arg : launch.args) {
    const PendingSum& pending = launches.sums[static_cast<size_t>(arg.index)];
    arg.index = arg.kind == LaunchArg::Kind::workspace ? pending.workspace : pending.result;
  }
  launches.launches.push_back(std::move(launch));
  launches.sums.clear();
  return launches;
}

}  // namespace ingot::codegen
