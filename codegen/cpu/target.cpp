// The CPU target: which emitter lowers an op, decided by the op's lowering alone.
#include "codegen/cpu/build.h"
#include "codegen/cpu/emit.h"
#include "codegen/cpu/region.h"
#include "codegen/limits.h"

namespace ingot::codegen {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

class CpuTarget final : public Target {
 public:
  explicit CpuTarget(CpuTargetOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "cpu"; }

  OpLaunches lower(const OpSite& site) const override {
    return std::visit(Overloaded{[&](const ir::ScalarLowering& l) { return cpu::lower_scalar(site, l); },
                                 [&](const ir::GenerateLowering& l) { return cpu::lower_generate(site, l); },
                                 [&](const ir::ReduceLowering& l) { return cpu::lower_reduce(site, l); },
                                 [&](const ir::ScanLowering& l) { return cpu::lower_scan(site, l); },
                                 [&](const ir::ViewLowering& l) { return cpu::lower_view(site, l); },
                                 [&](const ir::PackLowering&) { return cpu::lower_pack(site); },
                                 [&](const ir::GatherLowering&) { return cpu::lower_gather(site); },
                                 [&](const ir::PutLowering&) { return cpu::lower_put(site); },
                                 [&](const ir::RegionLowering&) { return cpu::lower_row_region(site); },
                                 [&](const ir::KernelLowering& l) { return lower_kernel(site, l); },
                                 [&](const auto&) -> OpLaunches { throw cannot(site.op); }},
                      site.op.def->lowering);
  }

  Launch add_sums(const std::vector<RowSum>& sums) const override { return cpu::add_row_sums(sums); }

  std::string refuses(const ir::Graph& graph, const ir::Op& op) const override {
    const auto* lowering = ir::lowering_as<ir::KernelLowering>(op);
    if (lowering == nullptr) return exceeds_limits(graph, op);
    const cpu::HandKernel* kernel = cpu::find_hand_kernel(lowering->kernel);
    if (kernel == nullptr) return "the target cpu has no kernel \"" + lowering->kernel + "\"";
    return kernel->refuses(graph, op);
  }

  // Two cores with AVX-512: oneDNN reaches about 300 GFLOP/s, copies 15 GB/s.
  GemmCosts gemm_costs() const override { return {20}; }

  BuiltKernels build(const std::vector<KernelText>& kernels) const override { return cpu::build_kernels(kernels, options_); }

 private:
  static ir::InternalError cannot(const ir::Op& op) {
    return ir::InternalError("the target cpu cannot lower " + std::string(op.name()) + " (" + op.loc.text() + ")");
  }

  static OpLaunches lower_kernel(const OpSite& site, const ir::KernelLowering& lowering) {
    const cpu::HandKernel* kernel = cpu::find_hand_kernel(lowering.kernel);
    if (kernel == nullptr || !kernel->refuses(site.graph, site.op).empty()) throw cannot(site.op);
    return kernel->lower(site);
  }

  CpuTargetOptions options_;
};

}  // namespace

std::unique_ptr<Target> make_cpu_target(CpuTargetOptions options) { return std::make_unique<CpuTarget>(std::move(options)); }

}  // namespace ingot::codegen
