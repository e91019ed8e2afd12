// Which outputs of a row region may be stored over which of its inputs.
//
// A kernel walks tiles of rows at once, the loops (sweep, lead) of a row one after the other, and within a loop it reads a column
// before it stores it. What a loop needs of an earlier one may be made again from the inputs, so an input counts as read by every
// step that depends on it column by column.
#include <algorithm>
#include <tuple>

#include "ir/base/error.h"
#include "passes/region.h"

namespace ingot::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::ValueId;

class InPlace {
 public:
  InPlace(const Graph& body, const RegionPlan& plan) : body_(body), plan_(plan) {}

  std::vector<ir::Alias> run() const {
    std::vector<ir::Alias> out;
    if (reaches_neighbours()) return out;
    int input = 0;
    for (const ir::Op& op : body_.ops()) {
      if (!std::holds_alternative<ir::SourceLowering>(op.def->lowering)) continue;
      const ValueId value = op.results[0];
      for (size_t o = 0; o < plan_.outputs.size(); ++o) {
        if (fits(value, o) && read_in_own_order(value) && stored_last(value, plan_.outputs[o]))
          out.push_back({static_cast<int>(o), input});
      }
      ++input;
    }
    return out;
  }

 private:
  const RegionStep& step_of(ValueId value) const { return plan_.steps[static_cast<size_t>(plan_.step_of[value])]; }

  // Then the first rows of a tile are also read, or computed, for the tile before it.
  bool reaches_neighbours() const {
    return std::any_of(plan_.steps.begin(), plan_.steps.end(), [](const RegionStep& step) {
      return step.lead != 0 || step.low != 0 ||
             std::any_of(step.reads.begin(), step.reads.end(), [](const RowAccess& read) { return read.shift != 0; });
    });
  }

  bool fits(ValueId input, size_t output) const {
    const RegionStep& maker = step_of(plan_.outputs[output]);
    const ir::Type &in = body_.type(input), &out = body_.type(body_.outputs()[output].value);
    return maker.kind == StepKind::elementwise && maker.result == RowClass::full && maker.first_rows == 0 &&
           in.dtype == out.dtype && in.elements() == out.elements();
  }

  bool read_in_own_order(ValueId input) const {
    for (const RegionStep& step : plan_.steps) {
      const bool elementwise = step.kind == StepKind::elementwise || step.kind == StepKind::generate;
      for (const RowAccess& read : step.reads) {
        if (read.base != input) continue;
        const bool own = (elementwise ? step.result : step.over) == RowClass::full && read.offset == 0 &&
                         (plan_.rows == 1 || read.row == plan_.columns()) && (plan_.groups == 1 || read.head == plan_.n) &&
                         (plan_.n == 1 || read.unit == 1);
        if (!own) return false;
      }
    }
    return true;
  }

  bool stored_last(ValueId input, ValueId output) const {
    const int stored = step_of(output).sweep;
    std::vector<bool> touches(plan_.steps.size(), false);
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      const RegionStep& step = plan_.steps[s];
      for (const RowAccess& read : step.reads) {
        if (read.base == kNone) continue;
        const int maker = plan_.step_of[read.base];
        touches[s] = touches[s] || read.base == input ||
                     (maker >= 0 && touches[static_cast<size_t>(maker)] && step_of(read.base).result == RowClass::full);
      }
      if (touches[s] && step.sweep > stored) return false;
    }
    return true;
  }

  const Graph& body_;
  const RegionPlan& plan_;
};

}  // namespace

std::vector<ir::Alias> in_place(const Graph& body, const RegionPlan& plan) { return InPlace(body, plan).run(); }

}  // namespace ingot::passes
