// A region that no team can hold: its ops one after the other, what passes between them in workspaces. Slow and always possible.
#include <map>

#include "codegen/cuda/region_text.h"
#include "ir/base/error.h"

namespace ingot::codegen::cuda {
namespace {

using ir::AccessMode;
using ir::Op;
using ir::ValueId;

class ApartRegion {
 public:
  ApartRegion(const Site& site, const passes::RegionPlan& plan) : site_(site), body_(*site.op.region) {
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      const int output = static_cast<int>(i);
      if (site.is_dead(output)) continue;
      // What stands on an operand is brought there after all ops: some may read the operand after the one that makes it.
      const bool made_there = !site.stands_on_operand(output) && places_.emplace(plan.outputs[i], result_arg(output)).second;
      if (!made_there) copies_.emplace_back(plan.outputs[i], output);
    }
  }

  OpLaunches run() {
    int inputs = 0;
    for (const Op& op : body_.ops()) {
      if (std::holds_alternative<ir::SourceLowering>(op.def->lowering)) {
        places_.emplace(op.results[0], operand_arg(inputs++));
      } else if (!same_elements(op)) {
        add(op);
      }
    }
    for (const auto& [value, output] : copies_) copy(value, output);
    return std::move(out_);
  }

 private:
  /// A view that shows its operand's elements in their order.
  bool same_elements(const Op& op) const {
    const auto* lowering = std::get_if<ir::ViewLowering>(&op.def->lowering);
    if (lowering == nullptr) return false;
    const ir::View view = lowering->map(body_.type(op.operands[0]), body_.type(op.results[0]), op.attrs);
    return view.contiguous() && view.offset == 0 && body_.type(op.operands[0]).elements() == body_.type(op.results[0]).elements();
  }

  LaunchArg place(ValueId value) {
    while (same_elements(body_.maker(value))) value = body_.maker(value).operands[0];
    const auto known = places_.find(value);
    if (known != places_.end()) return known->second;
    const LaunchArg made = workspace_arg(static_cast<int>(out_.workspace_bytes.size()), AccessMode::write);
    out_.workspace_bytes.push_back(body_.type(value).bytes());
    places_.emplace(value, made);
    return made;
  }

  OpLaunches lower(const Site& site) const {
    const ir::Lowering& lowering = site.op.def->lowering;
    if (const auto* scalar = std::get_if<ir::ScalarLowering>(&lowering)) return lower_scalar(site, *scalar);
    if (const auto* reduce = std::get_if<ir::ReduceLowering>(&lowering)) return lower_reduce(site, *reduce);
    if (const auto* generate = std::get_if<ir::GenerateLowering>(&lowering)) return lower_generate(site, *generate);
    if (const auto* view = std::get_if<ir::ViewLowering>(&lowering)) return lower_view(site, *view);
    throw ir::InternalError("a region holds " + std::string(site.op.name()));
  }

  void add(const Op& op) {
    const OpLaunches made = lower({{body_, op, std::vector<bool>(op.results.size(), false)}, site_.arch});
    const int first = static_cast<int>(out_.workspace_bytes.size());
    out_.workspace_bytes.insert(out_.workspace_bytes.end(), made.workspace_bytes.begin(), made.workspace_bytes.end());
    for (Launch launch : made.launches) {
      for (LaunchArg& arg : launch.args) {
        const AccessMode mode = arg.mode;
        if (arg.kind == LaunchArg::Kind::workspace) {
          arg.index += first;
        } else {
          arg = place(arg.kind == LaunchArg::Kind::operand ? op.operands[static_cast<size_t>(arg.index)]
                                                           : op.results[static_cast<size_t>(arg.index)]);
          arg.mode = mode;
        }
      }
      out_.launches.push_back(std::move(launch));
    }
  }

  /// One value under a second name.
  void copy(ValueId value, int output) {
    const ir::Type& type = body_.type(value);
    KernelBuilder kernel("copy");
    kernel.include("copy_cuda.inc");
    LaunchArg from = place(value);
    from.mode = AccessMode::read;
    kernel.argument(from, bits_type(type.dtype), "x");
    kernel.argument(result_arg(output), bits_type(type.dtype), "y");
    kernel.size(type.elements(), "n");
    kernel.blocks(blocks_for(site_.arch, type.elements(), kBlock * 4));
    out_.launches.push_back(kernel.finish("  ig_pack_bits(x, y, 1, n, n, 0);\n"));
  }

  const Site& site_;
  const ir::Graph& body_;
  std::map<ValueId, LaunchArg> places_;
  std::vector<std::pair<ValueId, int>> copies_;
  OpLaunches out_;
};

}  // namespace

OpLaunches emit_apart(const Site& site, const passes::RegionPlan& plan) { return ApartRegion(site, plan).run(); }

}  // namespace ingot::codegen::cuda
