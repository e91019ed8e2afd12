#include "tools/ingot/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/compile.h"
#include "ir/base/text.h"
#include "ir/graph/interpret.h"
#include "runtime/safetensors.h"
#include "runtime/session.h"

namespace ingot::tools {
namespace {

using ir::Tensor;

// Error limits where none is given: what each target's arithmetic is held to.
constexpr double kReferenceLimit = 1e-9;
constexpr double kF32Limit = 2e-5, kGpuF32Limit = 1e-4;
// 16 bits: a tensor may be twice as far from float64 as its graph's own roundings put it, and a little more.
constexpr double kOwnFactor = 2, kOwnSlack = 2e-3;

struct NarrowLimits {
  double median, worst;
};
NarrowLimits narrow_limits(const std::string& precision) {
  return precision == "f16" ? NarrowLimits{2.5e-3, 1e-2} : NarrowLimits{2.5e-2, 8e-2};
}

codegen::CompileOptions verify_program(const std::string& precision) {
  codegen::CompileOptions options;
  options.precision = precision;
  options.programs = {"verify"};
  return options;
}

// ---------------------------------------------------------------- does the file fit the model?

struct Expected {
  std::string name;
  ir::Type type;
  ir::Loc loc;
};

std::vector<Expected> expected_params(const ir::Module& module) {
  std::vector<Expected> list;
  for (const ir::Variable& v : module.variables) {
    if (v.role == ir::VariableRole::param) list.push_back({v.name, v.type, v.loc});
  }
  return list;
}

std::vector<Expected> expected_inputs(const ir::Graph& loss) {
  std::vector<Expected> list;
  for (const ir::Op& op : loss.ops()) {
    if (op.name() != "input") continue;
    const ir::Value& value = loss.value(op.results[0]);
    list.push_back({value.name, value.type, op.loc});
  }
  return list;
}

void check_names(ir::Diagnostics& errors, const Golden& golden, const std::string& kind, const std::vector<Expected>& expected,
                 const Tensors& given, const std::vector<std::string>& ignored) {
  std::vector<std::string> names;
  for (const Expected& e : expected) {
    names.push_back(e.name);
    const auto at = given.find(e.name);
    if (at == given.end()) {
      errors.error(e.loc, fmt::format("{} holds no {}.{}, which the model needs ({})", golden.path, kind, e.name, e.type.text()));
    } else if (at->second.type.shape != e.type.shape) {
      errors.error(e.loc, fmt::format("{}.{} in {} has shape {}, the model's is {}", kind, e.name, golden.path,
                                      ir::shape_text(at->second.type.shape), ir::shape_text(e.type.shape)));
    }
  }
  for (const auto& [name, tensor] : given) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (std::any_of(ignored.begin(), ignored.end(), [&](const std::string& glob) { return ir::glob_match(glob, name); }))
      continue;
    const std::string nearest = ir::nearest_name(name, names);
    errors.error({}, fmt::format("{} holds {}.{}, which the model does not have{}", golden.path, kind, name,
                                 nearest.empty() ? "" : fmt::format(" (nearest: {})", nearest)));
  }
}

void check_ranges(ir::Diagnostics& errors, const Golden& golden, const ir::Module& module) {
  for (const ir::InputRange& range : module.ranges) {
    const auto at = golden.inputs.find(range.input);
    if (at == golden.inputs.end()) continue;
    const auto bad = std::find_if(at->second.data.begin(), at->second.data.end(), [&](double x) {
      const auto id = static_cast<int64_t>(x);
      return (id < range.lo || id > range.hi) && std::find(range.also.begin(), range.also.end(), id) == range.also.end();
    });
    if (bad == at->second.data.end()) continue;
    errors.error(range.loc, fmt::format("in.{} in {} holds {} at position {}, outside {}..{}", range.input, golden.path, *bad,
                                        bad - at->second.data.begin(), range.lo, range.hi));
  }
}

void check_fit(const models::LoadedModel& model, const Golden& golden) {
  ir::Diagnostics errors;
  const ir::Graph& loss = model.module.graph("loss");
  check_names(errors, golden, "param", expected_params(model.module), golden.params, model.module.checkpoint_ignore);
  check_names(errors, golden, "in", expected_inputs(loss), golden.inputs, {});
  check_ranges(errors, golden, model.module);
  errors.throw_if_any();
}

// ---------------------------------------------------------------- running

/// The program yields the sum of the loss and its gradients; the files hold those of the mean.
Tensors of_mean_loss(std::map<std::string, Tensor> raw) {
  const auto count = raw.find("count");
  // None counted: the sums are zero, and zero they stay.
  const double n = count == raw.end() || count->second.data[0] == 0 ? 1 : count->second.data[0];
  Tensors results;
  for (auto& [name, tensor] : raw) {
    const bool gradient = name.starts_with("grad.");
    if (gradient || name == "loss") {
      for (double& x : tensor.data) x /= n;
    }
    results[gradient ? name : "out." + name] = std::move(tensor);
  }
  return results;
}

runtime::HostTensor to_host(const Tensor& tensor, const ir::Type& type) {
  return runtime::HostTensor::from_doubles(type, tensor.data);
}

Tensor from_host(const runtime::HostTensor& host) {
  Tensor tensor(host.type);
  tensor.data = host.to_doubles();
  return tensor;
}

}  // namespace

Golden read_golden(const std::string& path) {
  Golden golden{path, {}, {}, {}, {}};
  const std::pair<const char*, Tensors*> kinds[] = {
      {"param.", &golden.params}, {"in.", &golden.inputs}, {"out.", &golden.outputs}, {"grad.", &golden.gradients}};
  const runtime::Safetensors file(path);
  for (const auto& [key, info] : file.tensors()) {
    const auto kind = std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& k) { return key.starts_with(k.first); });
    if (kind == std::end(kinds)) {
      throw ir::UserError(
          {}, fmt::format("{}: '{}' is no key of a golden file (param.NAME, in.NAME, out.NAME, grad.NAME)", path, key));
    }
    // The numbers stay double; only the shape counts.
    Tensor tensor(ir::Type{ir::DType::f32, info.shape});
    tensor.data = file.read_doubles(key);
    (*kind->second)[key.substr(std::string(kind->first).size())] = std::move(tensor);
  }
  return golden;
}

Tensors run_reference(const models::LoadedModel& model, const Golden& golden, const std::string& precision, bool rounded) {
  ir::Module module = model.module;
  const ir::Graph graph = codegen::build_program(module, "verify", verify_program(precision));
  std::map<std::string, Tensor> variables = golden.params;
  for (const ir::Variable& v : module.variables) {
    if (v.role != ir::VariableRole::hyper || !model.train.contains(v.name)) continue;
    variables[v.name] = Tensor(v.type, model.train.at(v.name));
  }
  ir::InterpretOptions options;
  options.round = rounded;
  options.round_f32 = rounded && precision == "f32";
  if (const ir::Graph* prepare = module.find_graph("prepare")) {
    for (auto& [name, value] : ir::interpret(*prepare, {}, variables, options).updates) variables[name] = std::move(value);
  }
  return of_mean_loss(ir::interpret(graph, golden.inputs, variables, options).outputs);
}

Tensors run_target(const models::LoadedModel& model, const Golden& golden, const VerifyOptions& options) {
  ir::Plan plan = codegen::compile(model.module, *options.target, verify_program(options.precision), model.sources);
  runtime::SessionOptions session_options;
  session_options.threads = options.threads;
  const auto session = runtime::Session::open(std::move(plan), session_options);
  session->initialise(0);
  for (const ir::Variable& v : model.module.variables) {
    if (v.role == ir::VariableRole::param) session->write_variable(v.name, to_host(golden.params.at(v.name), v.type));
  }
  session->run("prepare");
  for (const Expected& input : expected_inputs(model.module.graph("loss"))) {
    session->set_input("verify", input.name, to_host(golden.inputs.at(input.name), input.type));
  }
  session->run("verify");
  std::map<std::string, Tensor> raw;
  for (const ir::Port& port : session->plan().find_program("verify")->outputs) {
    raw[port.name] = from_host(session->output("verify", port.name));
  }
  return of_mean_loss(std::move(raw));
}

double relative_error(const Tensor& got, const Tensor& want) {
  ir::check(got.data.size() == want.data.size(), "relative_error: sizes differ");
  double distance = 0, norm = 0;
  for (size_t i = 0; i < got.data.size(); ++i) {
    distance += (got.data[i] - want.data[i]) * (got.data[i] - want.data[i]);
    norm += want.data[i] * want.data[i];
  }
  return norm > 0 ? std::sqrt(distance / norm) : std::sqrt(distance);
}

// ---------------------------------------------------------------- judging

namespace {

/// The golden results, keyed as in the file.
Tensors wanted(const Golden& golden) {
  Tensors all;
  for (const auto& [name, tensor] : golden.outputs) all["out." + name] = tensor;
  for (const auto& [name, tensor] : golden.gradients) all["grad." + name] = tensor;
  return all;
}

void check_results(const Golden& golden, const Tensors& want, const Tensors& got) {
  ir::Diagnostics errors;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : got) names.push_back(name);
  for (const auto& [name, tensor] : want) {
    const auto at = got.find(name);
    if (at == got.end()) {
      const std::string nearest = ir::nearest_name(name, names);
      errors.error({}, fmt::format("{} holds {}, which the model does not give{}", golden.path, name,
                                   nearest.empty() ? "" : fmt::format(" (nearest: {})", nearest)));
    } else if (at->second.data.size() != tensor.data.size()) {
      errors.error({}, fmt::format("{} in {} has shape {}, the model's is {}", name, golden.path,
                                   ir::shape_text(tensor.type.shape), ir::shape_text(at->second.type.shape)));
    }
  }
  errors.throw_if_any();
}

bool larger(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

double median_error(const std::vector<VerifyRow>& rows) {
  std::vector<double> errors;
  for (const VerifyRow& row : rows) {
    if (row.name.starts_with("grad.")) errors.push_back(row.error);
  }
  if (errors.empty()) {
    for (const VerifyRow& row : rows) errors.push_back(row.error);
  }
  if (errors.empty()) return 0;
  std::sort(errors.begin(), errors.end(), [](double a, double b) { return larger(b, a); });
  return errors[errors.size() / 2];
}

/// Fills limits; in 16 bits on a real target also each tensor's own error.
void set_limits(VerifyReport& report, const models::LoadedModel& model, const Golden& golden, const VerifyOptions& options) {
  const bool narrow = options.precision != "f32", reference = options.target == nullptr;
  const bool gpu = options.target != nullptr && options.target->name().starts_with("cuda");
  if (options.tolerance || !narrow) {
    for (VerifyRow& row : report.rows)
      row.limit = options.tolerance.value_or(reference ? kReferenceLimit : gpu ? kGpuF32Limit : kF32Limit);
    return;
  }
  const NarrowLimits limits = narrow_limits(options.precision);
  report.median_limit = limits.median;
  for (VerifyRow& row : report.rows) row.limit = limits.worst;
  if (reference) return;
  const Tensors own = run_reference(model, golden, options.precision, true), want = wanted(golden);
  for (VerifyRow& row : report.rows) {
    row.own = relative_error(own.at(row.name), want.at(row.name));
    row.limit = std::min(limits.worst, kOwnFactor * row.own + kOwnSlack);
  }
}

}  // namespace

bool VerifyReport::passed() const {
  const bool rows_pass = std::all_of(rows.begin(), rows.end(), [](const VerifyRow& row) { return row.passed(); });
  return rows_pass && (median_limit == 0 || median <= median_limit);
}

VerifyReport verify(const models::LoadedModel& model, const Golden& golden, const VerifyOptions& options) {
  check_fit(model, golden);
  if (golden.outputs.empty() && golden.gradients.empty())
    throw ir::UserError(ir::make_loc(golden.path, 0, 0), "holds no out.NAME and no grad.NAME, so there is nothing to compare");
  const bool reference = options.target == nullptr;
  const Tensors got = reference ? run_reference(model, golden, options.precision, options.precision != "f32")
                                : run_target(model, golden, options);
  const Tensors want = wanted(golden);
  check_results(golden, want, got);
  VerifyReport report;
  for (const auto& [name, tensor] : want) {
    VerifyRow row;
    row.name = name;
    row.shape = tensor.type.shape;
    row.error = relative_error(got.at(name), tensor);
    report.rows.push_back(std::move(row));
  }
  for (const auto& [name, tensor] : got) {
    if (!want.contains(name) && name != "out.count") report.unchecked.push_back(name);
  }
  for (size_t i = 1; i < report.rows.size(); ++i) {
    if (larger(report.rows[i].error, report.rows[report.worst].error)) report.worst = i;
  }
  report.median = median_error(report.rows);
  set_limits(report, model, golden, options);
  return report;
}

}  // namespace ingot::tools
