// The planner's oracle: plans with memory reused, with bytes of their own for every temp, poisoned, and with another output,
// replayed on the CPU side by side through all programs, agree to the last bit.
#include <gtest/gtest.h>

#include <random>

#include "codegen/compile.h"
#include "models/loader.h"
#include "runtime/session.h"
#include "tests/common/places.h"

namespace ingot::codegen {
namespace {

using runtime::HostTensor;
using runtime::Session;

struct Variant {
  const char* name;
  bool reuse = true, poison = false;
  std::vector<std::string> outputs = {};
  int threads = 2;
};

class Replay : public testing::Test {
 protected:
  Replay() {
    cpu_.cache.directory = tests::build_file("kernel-cache");
    target_ = make_cpu_target(cpu_);
  }

  void open(const Variant& variant, CompileOptions options) {
    models::LoadOptions load;
    load.overrides = {{"layers", "2"}, {"width", "32"},  {"head", "16"},   {"vocab", "101"}, {"batch", "2"},  {"time", "19"},
                      {"ffn", "64"},   {"rank_w", "16"}, {"rank_a", "16"}, {"rank_v", "16"}, {"rank_g", "16"}};
    load.outputs = variant.outputs;
    const models::LoadedModel model = models::load_model(tests::source_file("models/rwkv7.yaml"), load);
    options.reuse_memory = variant.reuse;
    runtime::SessionOptions session;
    session.poison = variant.poison;
    session.threads = variant.threads;
    sessions_.push_back(Session::open(compile(model.module, *target_, options), session));
    sessions_.back()->initialise(3);
    variants_.push_back(variant.name);
  }

  void feed(const std::string& program) {
    const ir::Plan& plan = sessions_[0]->plan();
    for (const ir::Port& port : plan.find_program(program)->inputs) {
      const ir::Type& type = plan.buffers[port.buffer].type;
      std::vector<double> values(static_cast<size_t>(type.elements()));
      for (double& value : values) value = static_cast<double>(random_() % 101);
      for (auto& session : sessions_) session->set_input(program, port.name, HostTensor::from_doubles(type, values));
    }
  }

  void run_and_compare(const std::string& program) {
    feed(program);
    for (auto& session : sessions_) session->run(program);
    for (const ir::Port& port : sessions_[0]->plan().find_program(program)->outputs) {
      const HostTensor expected = sessions_[0]->output(program, port.name);
      for (size_t v = 1; v < sessions_.size(); ++v) {
        EXPECT_EQ(expected.bytes, sessions_[v]->output(program, port.name).bytes)
            << program << "." << port.name << " " << variants_[v];
      }
    }
  }

  void compare_variables() {
    for (const ir::Binding& b : sessions_[0]->plan().bindings) {
      const HostTensor expected = sessions_[0]->read_variable(b.variable.name);
      for (size_t v = 1; v < sessions_.size(); ++v) {
        EXPECT_EQ(expected.bytes, sessions_[v]->read_variable(b.variable.name).bytes) << b.variable.name << " " << variants_[v];
      }
    }
  }

  void replay(const CompileOptions& options, const std::vector<std::string>& update) {
    open({"plain"}, options);
    open({"no reuse", false, false}, options);
    open({"poisoned, with another output", true, true, {"blocks.0.att.xr"}, 1}, options);
    for (int step = 0; step < 5; ++step) {
      for (const std::string& program : update) run_and_compare(program);
      for (const char* program : {"eval", "decode", "verify"}) run_and_compare(program);
      compare_variables();
      if (HasFailure()) return;
    }
    EXPECT_GT(std::abs(sessions_[0]->output(update.back(), "grad_norm").to_doubles()[0]), 0);
  }

  CpuTargetOptions cpu_;
  std::unique_ptr<Target> target_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::string> variants_;
  std::mt19937 random_{5};
};

TEST_F(Replay, FiveStepsInF32) {
  CompileOptions options;
  options.programs = {"train", "eval", "decode", "verify"};
  replay(options, {"train"});
}

TEST_F(Replay, FiveStepsOfMicrobatchesInBf16) {
  CompileOptions options;
  options.precision = "bf16";
  options.microbatches = 3;
  options.programs = {"train", "eval", "decode", "verify"};
  replay(options, {"first", "next", "last"});
}

}  // namespace
}  // namespace ingot::codegen
