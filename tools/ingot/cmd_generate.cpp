// ingot generate DIR|MODEL.yaml|X.plan --prompt TEXT: sample from a trained model with the program `decode`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "ir/base/error.h"
#include "runtime/checkpoint.h"
#include "runtime/generate.h"
#include "runtime/weights.h"
#include "tools/ingot/commands.h"
#include "tools/ingot/common.h"
#include "tools/shared/parse.h"

namespace ingot::tools {
namespace {

struct GenerateFlags {
  ModelOptions model;
  std::string init, prompt = "\n";
  runtime::SampleOptions sample;
  int64_t count = 200;
  int threads = 0;
};

bool is_run_folder(const std::string& path) { return std::filesystem::is_directory(path); }

// A run folder holds the plan it was trained with.
ir::Plan plan_to_decode(const GenerateFlags& f) {
  if (!is_run_folder(f.model.path)) return open_plan(f.model, {"decode"});
  if (!f.model.overrides.empty()) {
    throw ir::UserError(ir::Loc{}, fmt::format("'{}': a trained run cannot be changed any more", f.model.overrides.front()));
  }
  refuse_compile_flags(f.model);
  return ir::read_plan(f.model.path + "/model.plan");
}

std::string weights_file(const GenerateFlags& f) {
  if (!f.init.empty() || !is_run_folder(f.model.path)) return f.init;
  if (!runtime::holds_run(f.model.path)) throw ir::UserError(ir::make_loc(f.model.path, 0, 0), "this folder holds no run");
  const auto warn = [](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); };
  return runtime::newest_checkpoint(f.model.path, "", warn).path + "/weights.safetensors";
}

void print_token(int64_t token) {
  if (token < 256) {
    std::fputc(static_cast<int>(token), stdout);
  } else {
    fmt::print("<{}>", token);
  }
  std::fflush(stdout);
}

void generate(const GenerateFlags& f) {
  runtime::SessionOptions options;
  options.threads = f.threads;
  const std::string weights = weights_file(f);
  const auto session = runtime::Session::open(plan_to_decode(f), options);
  session->initialise(f.sample.seed);
  if (weights.empty()) {
    fmt::print(stderr, "warning: no --init: these are untrained weights\n");
  } else {
    runtime::load_weights(*session, runtime::Safetensors(weights));
  }
  std::vector<int64_t> prompt;
  for (const char c : f.prompt) prompt.push_back(static_cast<unsigned char>(c));
  runtime::check_generate(*session, prompt, f.sample);
  std::fwrite(f.prompt.data(), 1, f.prompt.size(), stdout);
  runtime::generate(*session, prompt, f.count, f.sample, [](int64_t token) { return print_token(token), true; });
  std::fputc('\n', stdout);
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Sample text from a trained model");
  add_model_options(*command, flags->model, "the folder of a run, MODEL.yaml or X.plan");
  add_seed_option(*command, flags->sample.seed);
  command->add_option("--init", flags->init, "weights (safetensors); a run folder has its own");
  command->add_option("--prompt", flags->prompt, "text the sample begins with");
  command->add_option("-n,--count", flags->count, "tokens to draw (200)")->check(not_negative);
  command->add_option("--temperature", flags->sample.temperature, "0 = always the likeliest (1)");
  command->add_option("--top-p", flags->sample.top_p, "keep the likeliest tokens that reach this share (1)");
  command->add_option("--threads", flags->threads, "0 = all cores");
  command->callback([flags] { generate(*flags); });
}

}  // namespace ingot::tools
