// The CUDA target: which emitter lowers an op, decided by the op's lowering alone.
#include "codegen/cuda/build.h"
#include "codegen/cuda/emit.h"
#include "codegen/limits.h"
#include "ir/base/error.h"

namespace ingot::codegen {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

class CudaTarget final : public Target {
 public:
  explicit CudaTarget(CudaTargetOptions options) : options_(std::move(options)), arch_(cuda::parse_arch(options_.arch)) {}

  std::string name() const override { return "cuda:" + arch_.name(); }

  OpLaunches lower(const OpSite& op_site) const override {
    const cuda::Site site{op_site, arch_};
    return std::visit(Overloaded{[&](const ir::ScalarLowering& l) { return cuda::lower_scalar(site, l); },
                                 [&](const ir::GenerateLowering& l) { return cuda::lower_generate(site, l); },
                                 [&](const ir::ReduceLowering& l) { return cuda::lower_reduce(site, l); },
                                 [&](const ir::ScanLowering& l) { return cuda::lower_scan(site, l); },
                                 [&](const ir::ViewLowering& l) { return cuda::lower_view(site, l); },
                                 [&](const ir::PackLowering&) { return cuda::lower_pack(site); },
                                 [&](const ir::GatherLowering&) { return cuda::lower_gather(site); },
                                 [&](const ir::PutLowering&) { return cuda::lower_put(site); },
                                 [&](const ir::RegionLowering&) { return cuda::lower_row_region(site); },
                                 [&](const ir::KernelLowering& l) { return lower_kernel(site, l); },
                                 [&](const auto&) -> OpLaunches { throw cannot(site.op); }},
                      site.op.def->lowering);
  }

  Launch add_sums(const std::vector<RowSum>& sums) const override { return cuda::add_row_sums(sums); }

  std::string refuses(const ir::Graph& graph, const ir::Op& op) const override {
    const auto* lowering = ir::lowering_as<ir::KernelLowering>(op);
    if (lowering == nullptr) return exceeds_limits(graph, op);
    const cuda::HandKernel* kernel = cuda::find_hand_kernel(lowering->kernel);
    if (kernel == nullptr) return "the target " + name() + " has no kernel \"" + lowering->kernel + "\"";
    return kernel->refuses(graph, op, arch_);
  }

  bool adds_other_dtypes() const override { return false; }                    // cuBLASLt
  int64_t gemm_workspace_bytes() const override { return int64_t{32} << 20; }  // what cuBLAS's documentation advises for Hopper

  // An H200, 132 multiprocessors: 16384 x 2048 by 96 to 224 columns takes as long as 180 to 240 TFLOP/s in 16 bits would, 250 to
  // 280 with its tiles filled up; copies move 4.1 TB/s. Wide results are made in tiles of 128 x 256.
  GemmCosts gemm_costs() const override { return {65, 128, 128, 132, 256}; }

  ir::Attrs configure(const ir::Graph& graph, const ir::Op& op) const override {
    const auto* lowering = ir::lowering_as<ir::KernelLowering>(op);
    const cuda::HandKernel* kernel = lowering ? cuda::find_hand_kernel(lowering->kernel) : nullptr;
    return kernel && kernel->configure ? kernel->configure(graph, op, arch_) : op.attrs;
  }

  BuiltKernels build(const std::vector<KernelText>& kernels) const override {
    return cuda::build_kernels(kernels, arch_, options_);
  }

 private:
  ir::InternalError cannot(const ir::Op& op) const {
    return ir::InternalError("the target " + name() + " cannot lower " + std::string(op.name()) + " (" + op.loc.text() + ")");
  }

  OpLaunches lower_kernel(const cuda::Site& site, const ir::KernelLowering& lowering) const {
    const cuda::HandKernel* kernel = cuda::find_hand_kernel(lowering.kernel);
    if (kernel == nullptr || !kernel->refuses(site.graph, site.op, arch_).empty()) throw cannot(site.op);
    return kernel->lower(site);
  }

  CudaTargetOptions options_;
  cuda::Arch arch_;
};

}  // namespace

std::unique_ptr<Target> make_cuda_target(CudaTargetOptions options) { return std::make_unique<CudaTarget>(std::move(options)); }

}  // namespace ingot::codegen
