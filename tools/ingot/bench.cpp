#include "tools/ingot/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/arena.h"
#include "runtime/ceilings.h"
#include "runtime/cuda/ceilings.h"
#include "runtime/random_input.h"
#include "runtime/threads.h"
#include "runtime/timing.h"
#include "tools/shared/units.h"

namespace ingot::tools {
namespace {

using ir::Call;
using ir::CallKind;
using ir::Plan;
using ir::Program;

constexpr int kLibraryRepeats = 5;

runtime::GemmTypes types_of(const Plan& plan, const Call& call) {
  const auto dtype = [&](size_t arg) { return plan.buffers[call.args[arg].buffer].type.dtype; };
  return {dtype(0), dtype(1), dtype(2), dtype(call.gemm.result())};
}

std::string gemm_name(const Plan& plan, const Call& call) {
  const ir::Gemm& g = call.gemm;
  return fmt::format("gemm {}x{}x{}{} {}{}{} {}", g.m, g.n, g.k, g.batch > 1 ? fmt::format(" x{}", g.batch) : "",
                     g.ta ? "T" : "N", g.tb ? "T" : "N",
                     g.has_bias()  ? " + bias"
                     : g.beta != 0 ? " +"
                                   : "",
                     ir::dtype_name(types_of(plan, call).a));
}

std::string kernel_name(const Plan& plan, const Call& call) {
  if (call.kind == CallKind::gemm) return gemm_name(plan, call);
  return call.kernel.empty() ? std::string(ir::call_kind_name(call.kind)) : call.kernel;
}

const Program& find_program(const Plan& plan, const std::string& name) {
  if (const Program* program = plan.find_program(name)) return *program;
  std::vector<std::string> names;
  for (const Program& p : plan.programs) names.push_back(p.name);
  const std::string nearest = ir::nearest_name(name, names);
  throw ir::UserError({}, fmt::format("the plan has no program '{}' (it has {}){}", name, fmt::join(names, ", "),
                                      nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

int64_t tokens_of(const Plan& plan, const Program& program) {
  for (const ir::Port& port : program.inputs) {
    if (port.name == "tokens") return plan.buffers[port.buffer].type.elements();
  }
  return 0;
}

std::string precision_of(const Plan& plan) {
  for (const auto& [key, value] : plan.info) {
    if (key == "options.precision") return value;
  }
  return "";
}

Ceilings measure_ceilings(const Plan& plan, const Program& program, int threads) {
  const bool gpu = plan.target.starts_with("cuda");
  Ceilings ceilings;
  ceilings.copy = gpu ? runtime::cuda::copy_ceiling() : runtime::copy_ceiling(threads);
  for (const Call& call : program.calls) {
    if (call.kind != CallKind::gemm) continue;
    const ir::DType dtype = types_of(plan, call).a;
    if (!ceilings.gemm.contains(dtype))
      ceilings.gemm[dtype] = gpu ? runtime::cuda::gemm_ceiling(dtype) : runtime::gemm_ceiling(dtype, threads);
  }
  return ceilings;
}

/// Seconds that a call would take at the ceilings; 0 where nothing is known of it.
double at_ceiling(const Plan& plan, const Call& call, const Ceilings& ceilings) {
  if (call.kind != CallKind::gemm) return call.bytes / ceilings.copy;
  const double rate = ceilings.gemm.at(types_of(plan, call).a);
  return rate > 0 ? call.flops / rate : 0;
}

constexpr int64_t kTracedSteps = 3;  // of a device that runs ahead, for the times of its calls

/// Reads what the run left, or the run before it: then that run has finished.
void wait_for(const runtime::Session& session, const Program& program, bool previous) {
  const std::string& name = program.outputs.at(0).name;
  previous ? session.previous_output(program.name, name) : session.output(program.name, name);
}

using Inputs = std::vector<std::pair<std::string, runtime::HostTensor>>;  // by port

void set_inputs(runtime::Session& session, const Program& program, const Inputs& inputs) {
  for (const auto& [name, value] : inputs) session.set_input(program.name, name, value);
}

/// A device that works on while the host goes on is kept busy, as the training loop keeps it: inputs are written anew for every
/// step, and a step's time is from the end of one to the end of the next.
void measure_ahead(runtime::Session& session, const Program& program, const Inputs& inputs, const BenchOptions& options,
                   BenchReport& report) {
  session.record(false);
  for (int64_t i = 0; i < options.warmup + 1; ++i) session.run(program.name);
  wait_for(session, program, false);
  session.run(program.name);
  std::vector<double> host, gaps;
  auto begin = runtime::Clock::now();
  for (int64_t i = 0; i < options.steps + 1; ++i) {
    const auto launched = runtime::Clock::now();
    set_inputs(session, program, inputs);
    session.run(program.name);
    host.push_back(runtime::seconds_since(launched));
    wait_for(session, program, true);
    if (i > 0) {
      report.steps.push_back(runtime::seconds_since(begin));
      gaps.push_back(session.previous_gap());
    }
    begin = runtime::Clock::now();
  }
  wait_for(session, program, false);
  report.host_seconds = runtime::median(std::move(host));
  report.gap_seconds = runtime::median(std::move(gaps));
  session.record(true);
  for (int64_t i = 0; i < kTracedSteps; ++i) session.run(program.name);
}

void measure_steps(runtime::Session& session, const Program& program, const BenchOptions& options, BenchReport& report) {
  Inputs inputs;
  for (const ir::Port& port : program.inputs)
    inputs.emplace_back(port.name, runtime::random_input(session.plan(), port, options.seed));
  set_inputs(session, program, inputs);
  if (session.runs_ahead() && !program.outputs.empty()) {
    measure_ahead(session, program, inputs, options, report);
  } else {
    for (int64_t i = 0; i < options.warmup; ++i) session.run(program.name);
    for (int64_t i = 0; i < options.steps; ++i) {
      const auto begin = runtime::Clock::now();
      session.run(program.name);
      report.steps.push_back(runtime::seconds_since(begin));
    }
  }
  std::sort(report.steps.begin(), report.steps.end());
}

/// Per call of the program, the least seconds of the last `steps` runs.
std::vector<double> least_times(const runtime::Trace& trace, const Program& program, int64_t steps) {
  std::vector<double> least(program.calls.size(), std::numeric_limits<double>::infinity());
  const std::vector<runtime::Trace::Event>& events = trace.events();
  const size_t measured = least.size() * static_cast<size_t>(steps);
  ir::check(events.size() >= measured, "bench: the trace is shorter than the steps");
  for (size_t i = events.size() - measured; i < events.size(); ++i) {
    double& best = least[static_cast<size_t>(events[i].call - program.calls.data())];
    best = std::min(best, events[i].duration / 1e6);
  }
  return least;
}

void sort_slowest_first(std::vector<BenchRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const BenchRow& a, const BenchRow& b) { return a.seconds > b.seconds; });
}

void add(BenchRow& sum, const BenchRow& part) {
  if (sum.calls == 0) sum.label = part.label;
  sum.calls += part.calls;
  sum.seconds += part.seconds;
  sum.flops += part.flops;
  sum.bytes += part.bytes;
  sum.least_seconds += part.least_seconds;
  // A sum is known when all its parts are.
  if (sum.calls == part.calls)
    sum.library_seconds = part.library_seconds;
  else if (sum.library_seconds >= 0)
    sum.library_seconds = part.library_seconds < 0 ? -1 : sum.library_seconds + part.library_seconds;
}

std::vector<BenchRow> grouped(const std::vector<BenchRow>& calls, const std::vector<std::string>& names) {
  std::vector<BenchRow> rows;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto [place, fresh] = places.try_emplace(names[i], rows.size());
    if (fresh) rows.push_back({names[i], "", 0, 0, 0, 0, 0, -1});
    add(rows[place->second], calls[i]);
  }
  sort_slowest_first(rows);
  return rows;
}

void fill_rows(const Plan& plan, const Program& program, const std::vector<double>& seconds, const BenchOptions& options,
               BenchReport& report) {
  std::vector<std::string> kernels, kinds;
  std::map<std::string, double> library;  // by the product's name
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const Call& call = program.calls[i];
    const bool product = call.kind == CallKind::gemm;
    kernels.push_back(kernel_name(plan, call));
    kinds.emplace_back(ir::call_kind_name(call.kind));
    BenchRow row{kernels.back(), call.label, 1, seconds[i], call.flops, call.bytes, at_ceiling(plan, call, report.ceilings), -1};
    if (product) report.gemm_flops += call.flops;
    if (product && options.library) {
      const auto [known, fresh] = library.try_emplace(kernels.back(), 0);
      if (fresh) known->second = runtime::library_gemm_seconds(call.gemm, types_of(plan, call), options.threads, kLibraryRepeats);
      if (known->second > 0) row.library_seconds = known->second;
    }
    report.calls.push_back(std::move(row));
  }
  report.kernels = grouped(report.calls, kernels);
  report.kinds = grouped(report.calls, kinds);
  sort_slowest_first(report.calls);
}

// ---------------------------------------------------------------- showing

std::string percent(double part, double whole) { return whole > 0 ? fmt::format("{:.1f}%", 100 * part / whole) : "-"; }

std::string table_line(const BenchRow& row, double total, bool library) {
  std::string text =
      fmt::format("{:<34} {:>5} {:>10} {:>6} {:>8} {:>8} {:>7}", row.name, row.calls, seconds_text(row.seconds),
                  percent(row.seconds, total), row.flops > 0 ? fmt::format("{:.1f}", row.flops / row.seconds / 1e9) : "-",
                  row.bytes > 0 ? fmt::format("{:.1f}", row.bytes / row.seconds / 1e9) : "-",
                  row.least_seconds > 0 ? percent(row.least_seconds, row.seconds) : "-");
  if (library) text += fmt::format(" {:>8}", row.library_seconds > 0 ? percent(row.library_seconds, row.seconds) : "-");
  return text + "  " + row.label + "\n";
}

std::string table(const std::string& title, const std::vector<BenchRow>& rows, size_t most, const BenchReport& report) {
  const bool library =
      std::any_of(report.kinds.begin(), report.kinds.end(), [](const BenchRow& row) { return row.library_seconds >= 0; });
  std::string text = fmt::format("{:<34} {:>5} {:>10} {:>6} {:>8} {:>8} {:>7}{}  {}\n", title, "calls", "time", "share",
                                 "GFLOP/s", "GB/s", "ceiling", library ? "  library" : "", "first makes");
  for (size_t i = 0; i < rows.size() && i < most; ++i) text += table_line(rows[i], report.total(), library);
  if (rows.size() <= most) return text;
  BenchRow rest{fmt::format("{} more", rows.size() - most), "", 0, 0, 0, 0, 0, -1};
  for (size_t i = most; i < rows.size(); ++i) add(rest, rows[i]);
  rest.label.clear();
  return text + table_line(rest, report.total(), library);
}

nlohmann::ordered_json row_json(const BenchRow& row) {
  nlohmann::ordered_json json{{"name", row.name},
                              {"label", row.label},
                              {"calls", row.calls},
                              {"seconds", row.seconds},
                              {"flops", row.flops},
                              {"bytes", row.bytes},
                              {"ceiling_seconds", row.least_seconds}};
  if (row.library_seconds >= 0) json["library_seconds"] = row.library_seconds;
  return json;
}

}  // namespace

double BenchReport::total() const {
  double sum = 0;
  for (const BenchRow& row : kinds) sum += row.seconds;
  return sum;
}

double BenchReport::utilisation() const {
  for (const BenchRow& row : kinds) {
    if (row.name == ir::call_kind_name(CallKind::gemm)) return row.least_seconds / median();
  }
  return 0;
}

std::string rate_text(double per_second, const std::string& unit) {
  return per_second >= 1e12 ? fmt::format("{:.2f} T{}/s", per_second / 1e12, unit)
                            : fmt::format("{:.1f} G{}/s", per_second / 1e9, unit);
}

BenchReport bench(Plan plan, const BenchOptions& options) {
  find_program(plan, options.program);  // before ceilings are measured and memory is filled
  runtime::SessionOptions session_options;
  session_options.threads = options.threads;
  session_options.trace = true;
  BenchReport report;
  const auto session = runtime::Session::open(std::move(plan), session_options);
  const Program& program = find_program(session->plan(), options.program);
  report.model = session->plan().name;
  report.target = session->plan().target;
  report.program = program.name;
  report.precision = precision_of(session->plan());
  report.threads = runtime::thread_count(options.threads);
  for (const ir::Arena& arena : session->plan().arenas) report.memory_bytes += arena.bytes;
  report.tokens = tokens_of(session->plan(), program);
  report.ceilings = measure_ceilings(session->plan(), program, options.threads);
  session->initialise(options.seed);
  measure_steps(*session, program, options, report);
  fill_rows(session->plan(), program,
            least_times(session->trace(), program, session->runs_ahead() ? kTracedSteps : options.steps), options, report);
  return report;
}

std::string bench_text(const BenchReport& report, size_t most_calls) {
  constexpr size_t kKernels = 25;
  const double median = report.median(), least = report.steps.front();
  std::string text = fmt::format("{} @{} on {}, {}, {}: {}\n", report.model, report.program, report.target, report.precision,
                                 plural(report.threads, "thread"), plural(static_cast<int64_t>(report.steps.size()), "step"));
  text += fmt::format("  step       median {}, least {}, spread {} (longest less least)\n", seconds_text(median),
                      seconds_text(least), percent(report.steps.back() - least, median));
  if (report.host_seconds > 0)
    text += fmt::format("  host       {} for inputs and launch of a step, {} between two steps, medians\n",
                        seconds_text(report.host_seconds), seconds_text(report.gap_seconds));
  if (report.memory_bytes > 0) text += fmt::format("  memory     {} in all arenas\n", runtime::bytes_text(report.memory_bytes));
  if (report.tokens > 0) text += fmt::format("  tokens     {}/s\n", count_text(static_cast<double>(report.tokens) / median));
  if (report.gemm_flops > 0)
    text += fmt::format("  products   {} a step, {} over the whole step, {} of the ceiling\n", flops_text(report.gemm_flops),
                        rate_text(report.gemm_flops / median, "FLOP"), percent(report.utilisation(), 1));
  std::string ceilings = fmt::format("copy {}", rate_text(report.ceilings.copy, "B"));
  for (const auto& [dtype, rate] : report.ceilings.gemm)
    ceilings += fmt::format(", {} product {}", ir::dtype_name(dtype), rate > 0 ? rate_text(rate, "FLOP") : "none in the library");
  text += fmt::format("  ceilings   {}, measured now\n", ceilings);
  text += fmt::format("  calls      {} together: each call's least time of all steps\n\n", seconds_text(report.total()));
  text += table("kind", report.kinds, report.kinds.size(), report) + "\n";
  text += table("kernel", report.kernels, kKernels, report);
  if (most_calls > 0) text += "\n" + table("call", report.calls, most_calls, report);
  return text;
}

nlohmann::ordered_json bench_json(const BenchReport& report) {
  nlohmann::ordered_json json{{"model", report.model},
                              {"program", report.program},
                              {"target", report.target},
                              {"precision", report.precision},
                              {"threads", report.threads},
                              {"memory_bytes", report.memory_bytes},
                              {"host_seconds", report.host_seconds},
                              {"gap_seconds", report.gap_seconds},
                              {"step_seconds", report.steps},
                              {"median_seconds", report.median()},
                              {"tokens", report.tokens},
                              {"gemm_flops", report.gemm_flops},
                              {"utilisation", report.utilisation()},
                              {"calls_seconds", report.total()}};
  json["ceilings"]["copy_bytes_per_second"] = report.ceilings.copy;
  for (const auto& [dtype, rate] : report.ceilings.gemm)
    json["ceilings"]["gemm_flops_per_second"][std::string(ir::dtype_name(dtype))] = rate;
  for (const auto& [name, rows] : {std::pair{"kinds", &report.kinds}, {"kernels", &report.kernels}, {"calls", &report.calls}}) {
    json[name] = nlohmann::ordered_json::array();
    for (const BenchRow& row : *rows) json[name].push_back(row_json(row));
  }
  return json;
}

}  // namespace ingot::tools
