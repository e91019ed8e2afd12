// Fused row regions: which of the three ways to emit one.
#include <optional>

#include "codegen/cuda/region_text.h"
#include "ir/base/error.h"

namespace ingot::codegen::cuda {
namespace {

/// Looks at a region only.
class Survey final : public RegionText {
 public:
  using RegionText::demand;
  using RegionText::RegionText;
};

}  // namespace

namespace {

/// A row by itself leaves all but one team without work: its heads are taken as rows where the body allows that.
passes::RegionPlan plan_of(const Site& site) {
  std::string why;
  const int64_t rows = site.op.attrs.has("rows") ? site.op.attrs.integer("rows") : 0;
  std::optional<passes::RegionPlan> plan = passes::plan_region(*site.op.region, rows, &why);
  ir::check(plan.has_value(), "a fused region is no row region: " + why);
  if (plan->rows > 1 || plan->groups == 1) return std::move(*plan);
  std::optional<passes::RegionPlan> heads = passes::plan_region(*site.op.region, plan->groups);
  return heads ? std::move(*heads) : std::move(*plan);
}

}  // namespace

OpLaunches lower_row_region(const Site& site) {
  const passes::RegionPlan plan = plan_of(site);
  const RowLayout layout = choose_layout(plan, Survey(site, plan).demand(), site.arch);
  switch (layout.way) {
    case RowLayout::Way::resident:
      return emit_resident(site, plan, layout);
    case RowLayout::Way::looped:
      return emit_looped(site, plan, layout);
    case RowLayout::Way::apart:
      break;
  }
  return emit_apart(site, plan);
}

}  // namespace ingot::codegen::cuda
