#include "runtime/trace.h"

#include <nlohmann/json.hpp>

namespace ingot::runtime {
namespace {

double microseconds(Trace::Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

}  // namespace

void Trace::add(const ir::Program& program, const ir::Call& call, Clock::time_point begin, Clock::time_point end) {
  events_.push_back({&program, &call, microseconds(begin - start_), microseconds(end - begin)});
}

std::string Trace::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Event& e : events_) {
    const ir::Call& call = *e.call;
    nlohmann::ordered_json args{{"program", e.program->name}};
    if (!call.kernel.empty()) args["kernel"] = call.kernel;
    if (call.flops > 0) args["gflops_per_s"] = call.flops / e.duration / 1e3;
    if (call.bytes > 0) args["gb_per_s"] = call.bytes / e.duration / 1e3;
    list.push_back({{"name", call.label.empty() ? call.kernel : call.label},
                    {"cat", ir::call_kind_name(call.kind)},
                    {"ph", "X"},
                    {"ts", e.begin},
                    {"dur", e.duration},
                    {"pid", 0},
                    {"tid", call.lane},
                    {"args", std::move(args)}});
  }
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  return nlohmann::ordered_json{{"traceEvents", std::move(list)}}.dump(1, ' ', false, replace);
}

}  // namespace ingot::runtime
