// Fused row regions: which of the two ways to emit one.
#include <fmt/format.h>

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

OpLaunches lower_row_region(const Site& site) {
  std::string why;
  const int64_t rows = site.op.attrs.has("rows") ? site.op.attrs.integer("rows") : 0;
  const auto plan = passes::plan_region(*site.op.region, rows, &why);
  ir::check(plan.has_value(), "a fused region is no row region: " + why);
  const RowLayout layout = choose_layout(*plan, Survey(site, *plan).demand(), site.arch);
  return layout.looped ? emit_looped(site, *plan, layout) : emit_resident(site, *plan, layout);
}

}  // namespace ingot::codegen::cuda
