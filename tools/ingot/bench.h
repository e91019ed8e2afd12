// `ingot bench` without its flags: runs a program of a plan on random data and says where the time went.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ir/plan/plan.h"

namespace ingot::tools {

struct BenchOptions {
  std::string program = "train";
  int64_t steps = 10, warmup = 2;
  int threads = 0;  ///< 0 = all cores
  uint64_t seed = 0;
  bool library = false;  ///< also time the library's own products of the same shapes
};

/// What the machine can do, measured at the start. flop/s by the dtype of a product's operands; bytes per second.
struct Ceilings {
  std::map<ir::DType, double> gemm;
  double copy = 0;
};

/// Calls that belong together: one call, one kernel, one kind. Seconds are those of one step, the least of the measured steps for
/// each call; flops and bytes are the plan's.
struct BenchRow {
  std::string name;   ///< "gemm", "rows_2380ce14feb7728d", "gemm 1024x512x512 TN f32"
  std::string label;  ///< what the first of them makes
  int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
  double least_seconds = 0;     ///< what the ceilings allow: products by flops, everything else by bytes
  double library_seconds = -1;  ///< products: what the library alone needs; -1 = not measured, or it has no such product
};

struct BenchReport {
  std::string model, target, program, precision;
  int threads = 0;
  std::vector<double> steps;  ///< seconds of each measured step, sorted
  // Where the device runs ahead of the host, medians: the host's part of a step, inputs included; between two steps of the
  // device.
  double host_seconds = 0, gap_seconds = 0;
  int64_t memory_bytes = 0;  ///< all arenas
  int64_t tokens = 0;        ///< a step; 0: the program has no input of tokens
  double gemm_flops = 0;     ///< a step
  Ceilings ceilings;
  std::vector<BenchRow> calls, kernels, kinds;  ///< the slowest first

  double median() const { return steps[steps.size() / 2]; }
  double total() const;  ///< seconds of all calls
  /// The products' flops as a share of what their ceiling would have done in the whole step: the CPU's MFU.
  double utilisation() const;
};

/// Opens the plan, initialises it, runs the program. UserError when there is no such program.
BenchReport bench(ir::Plan plan, const BenchOptions& options);

/// `most_calls`: single calls shown, beside the table of kernels.
std::string bench_text(const BenchReport& report, size_t most_calls);
nlohmann::ordered_json bench_json(const BenchReport& report);

/// "12.3 GB/s", "345 GFLOP/s"
std::string rate_text(double per_second, const std::string& unit);

}  // namespace ingot::tools
