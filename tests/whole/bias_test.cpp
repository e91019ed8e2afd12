// A model with biases from end to end: which of them gemms add, that values and gradients stay, on sizes that nothing divides.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/compile.h"
#include "ir/graph/interpret.h"
#include "runtime/session.h"
#include "tests/whole/biased_model.h"

namespace ingot::tests {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const codegen::Target& cpu() {
  static const std::unique_ptr<codegen::Target> target = [] {
    codegen::CpuTargetOptions options;
    options.cache.directory = build_file("test-cache");
    return codegen::make_cpu_target(options);
  }();
  return *target;
}

codegen::CompileOptions verify_program(const std::string& precision) {
  codegen::CompileOptions options;
  options.precision = precision;
  options.programs = {"verify"};
  return options;
}

TEST(Bias, IsAddedByTheGemmWhereTheSumWouldBeACallOfItsOwn) {
  const models::LoadedModel model = biased_model();
  for (const std::string precision : {"f32", "bf16", "f16"}) {
    SCOPED_TRACE(precision);
    codegen::CompileOptions options = verify_program(precision), kernels = options, without = options;
    kernels.biases_of_kernels = true;
    without.pipeline.disable = {"bias"};
    const auto compiled = [&](const codegen::CompileOptions& o) { return codegen::compile(model.module, cpu(), o); };
    const ir::Plan plan = compiled(options), all = compiled(kernels), none = compiled(without);
    const auto named = [&](const char* sum) { return fmt::format("{}{}.rows", sum, precision == "f32" ? "" : "." + precision); };
    EXPECT_THAT(biased_products(plan, "verify"), ElementsAre(named("a"), named("shown")));
    EXPECT_THAT(biased_products(none, "verify"), IsEmpty());
    const auto calls = [](const ir::Plan& p) { return p.find_program("verify")->calls.size(); };
    EXPECT_EQ(calls(plan) + 2, calls(none));
    // In f16 that kernel reads f32, and the backward makes the sum again from the product, which is half as long.
    if (precision == "f16") {
      EXPECT_EQ(calls(all), calls(plan));
    } else {
      EXPECT_THAT(biased_products(all, "verify"), ElementsAre(named("a"), named("w"), named("shown")));
      EXPECT_EQ(calls(all) + 3, calls(none));
    }
  }
}

// In double, where no rounding can tell them apart.
TEST(Bias, MeansWhatTheSumMeant) {
  const models::LoadedModel model = biased_model();
  const tools::Golden golden = biased_golden(model);
  const auto run = [&](const codegen::CompileOptions& options) {
    ir::Module module = model.module;
    const ir::Graph graph = codegen::build_program(module, "verify", options);
    return ir::interpret(graph, golden.inputs, golden.params).outputs;
  };
  codegen::CompileOptions with = verify_program("f32"), without = with;
  with.biases_of_kernels = true;
  without.pipeline.disable = {"bias"};
  const auto a = run(with), b = run(without);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(a.contains("grad.one.bias"));
  for (const auto& [name, value] : b) EXPECT_LE(tools::relative_error(a.at(name), value), 1e-12) << name;
}

TEST(Bias, ModelsGiveTheirValuesAndGradientsOnTheCpu) {
  for (const Overrides& sizes : {Overrides{},
                                 {{"batch", "1"}, {"time", "1"}},
                                 {{"width", "64"}, {"inner", "1"}, {"batch", "40"}},
                                 {{"width", "64"}, {"inner", "128"}, {"vocab", "32"}, {"batch", "8"}, {"time", "4"}}}) {
    const models::LoadedModel model = biased_model(sizes);
    const tools::Golden golden = biased_golden(model);
    for (const std::string precision : {"f32", "bf16", "f16"}) {
      tools::VerifyOptions options;
      options.target = &cpu();
      options.precision = precision;
      const tools::VerifyReport report = tools::verify(model, golden, options);
      for (const tools::VerifyRow& row : report.rows) {
        EXPECT_TRUE(row.passed()) << fmt::format("{} {}: error {:.3g}, limit {:.3g}", precision, row.name, row.error, row.limit);
      }
      EXPECT_TRUE(report.unchecked.empty());
    }
  }
}

/// What a session makes of the golden inputs and parameters.
tools::Tensors outputs(const ir::Plan& plan, const tools::Golden& golden) {
  const auto session = runtime::Session::open(plan);
  session->initialise(0);
  const auto host = [](const ir::Tensor& t) { return runtime::HostTensor::from_doubles(t.type, t.data); };
  for (const auto& [name, value] : golden.params) session->write_variable(name, host(value));
  session->run("prepare");
  for (const auto& [name, value] : golden.inputs) session->set_input("verify", name, host(value));
  session->run("verify");
  tools::Tensors all;
  for (const ir::Port& port : session->plan().find_program("verify")->outputs) {
    const runtime::HostTensor value = session->output("verify", port.name);
    all[port.name] = ir::Tensor(value.type);
    all[port.name].data = value.to_doubles();
  }
  return all;
}

// A product that is looked at is made once more, and no number of another output changes.
TEST(Bias, LookingAtTheProductOrTheSumChangesNothing) {
  const models::LoadedModel model = biased_model();
  const tools::Golden golden = biased_golden(model);
  for (const std::string precision : {"f32", "bf16"}) {
    ir::Module tapped = model.module;
    ir::Graph graph = tapped.graph("loss");
    for (const char* name : {"a", "w", "a.linear", "shown.linear"}) {
      ASSERT_NE(graph.find(name), ir::kNone) << name;
      graph.add_output({name, graph.find(name), {}});
    }
    tapped.set_graph(graph);
    const codegen::CompileOptions options = verify_program(precision);
    const tools::Tensors plain = outputs(codegen::compile(model.module, cpu(), options), golden),
                         looked = outputs(codegen::compile(tapped, cpu(), options), golden);
    EXPECT_TRUE(looked.contains("a.linear"));
    for (const auto& [name, value] : plain) EXPECT_EQ(looked.at(name).data, value.data) << precision << " " << name;
  }
}

}  // namespace
}  // namespace ingot::tests
