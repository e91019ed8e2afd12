// `ingot bench --op NAME`: one op alone, forward and gradient: how fast, and how far from the interpreter in double.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/ingot/bench.h"
#include "tools/ingot/common.h"

namespace ingot::tools {

struct OpBenchReport {
  std::string op, precision, sizes;  ///< sizes: "batch=8 time=4096 ..."
  int threads = 0;
  Ceilings ceilings;
  std::vector<BenchRow> kernels;                       ///< the op's own, a gradient's after the forward's
  std::string checked_sizes;                           ///< those of the check; the interpreter is slow
  bool shrunk = false;                                 ///< do they differ from `sizes`?
  std::vector<std::pair<std::string, double>> errors;  ///< "out.y", "grad.r": |got - want| / |want|
};

/// `options.path` is not looked at; overrides, target and precision are. UserError for an op that has no model in models/ops/.
OpBenchReport bench_op(const std::string& op, const ModelOptions& options, const BenchOptions& bench);

std::string op_bench_text(const OpBenchReport& report);
nlohmann::ordered_json op_bench_json(const OpBenchReport& report);

}  // namespace ingot::tools
