#include "tools/ingot/common.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/base/error.h"
#include "ir/base/lexer.h"
#include "ir/graph/op_def.h"
#include "ir/graph/text.h"
#include "passes/passes.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/tune.h"
#include "tools/shared/parse.h"

namespace ingot::tools {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool ends_with_any(const std::string& path, std::initializer_list<const char*> endings) {
  for (const char* ending : endings) {
    if (path.ends_with(ending)) return true;
  }
  return false;
}

[[noreturn]] void refuse(const std::string& message) { throw ir::UserError(ir::make_loc("<command line>", 0, 0), message); }

// A text that begins with a statement is a graph without a frame; everything else is a module.
bool is_bare(const std::string& text, const std::string& path) {
  ir::Lexer lexer(text, path);
  if (lexer.at(ir::TokenKind::value)) return true;
  for (const char* word : {"input", "output", "update", "forward", "recompute", "backward"}) {
    if (lexer.at(word)) return true;
  }
  return false;
}

void declare_reads(ir::Module& module) {
  for (const ir::Op& op : module.graphs.at(0).ops()) {
    if (op.name() != "variable" || module.find_variable(op.attrs.text("name"))) continue;
    ir::Variable variable;
    variable.name = op.attrs.text("name");
    for (ir::VariableRole role : {ir::VariableRole::state, ir::VariableRole::hyper, ir::VariableRole::compute}) {
      if (op.attrs.text("role") == ir::variable_role_name(role)) variable.role = role;
    }
    variable.type = module.graphs[0].type(op.results[0]);
    variable.loc = op.loc;
    module.variables.push_back(std::move(variable));
  }
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options, const std::string& what) {
  command.add_option("model", options.path, what)->required();
  command.add_option("overrides", options.overrides, "key=value: config and train keys, batch, time");
  command.add_option("--target", options.target, "cpu (default), cuda (the card present) or cuda:sm_XX, sm_75 and up");
  command.add_option("--arch", options.arch,
                     "what CPU kernels may use: native (default: this machine's), x86-64 (any), x86-64-v2, -v3, -v4");
  command.add_option("--precision", options.precision, "the dtype gemms compute in: f32 (default), bf16 or f16");
  command.add_option("--grads", options.grads, "the dtype parameter gradients are stored in: f32 (default) or bf16");
  command.add_option(
      "--recompute", options.recompute,
      "forward values made again for the backward: none, cheap (default), block, or as many as it takes to keep BYTES (20GiB)");
  command.add_option("--microbatches", options.microbatches, "batches accumulated into one update (1)")
      ->check(CLI::Range(1, 1 << 20));
  command.add_flag("--carry-state", options.carry_state,
                   "training reads each row of the batch as one text: its windows follow one another, and each begins with the "
                   "states that the one before left (no gradient goes back into it)");
  command.add_option("--lanes", options.lanes, "calls of a GPU that may run beside each other; results do not change (1)")
      ->check(CLI::Range(1, 16));
  command.add_option("--decode-batch", options.decode_batch, "sequences that @decode carries (1)")->check(CLI::Range(1, 1 << 20));
  command.add_flag("--no-tune", options.no_tune,
                   "--target cuda: take the library's first algorithm for every product, measure none");
  command.add_option("--keep", options.keep, "values to keep as outputs, by full name: a,b");
}

void add_seed_option(CLI::App& command, uint64_t& seed) {
  command.add_option("--seed", seed, "of initial values, data order and samples")->check(not_negative);
}

bool is_plan_file(const std::string& path) {
  if (ends_with_any(path, {".plan"})) return true;
  if (path == "-" || is_model_file(path) || ends_with_any(path, {".ir"})) return false;
  char head[4] = {};
  std::ifstream(path, std::ios::binary).read(head, 4);
  return std::string_view(head, 4) == "PK\x03\x04";  // a plan is a zip
}
bool is_model_file(const std::string& path) { return ends_with_any(path, {".yaml", ".yml"}); }

models::LoadedModel load_model(const ModelOptions& options) {
  models::LoadOptions load;
  load.overrides = assignments(options.overrides);
  load.outputs = comma_list(options.keep);
  load.decode_batch = options.decode_batch;
  return models::load_model(options.path, load);
}

codegen::CompileOptions compile_options(const ModelOptions& options) {
  codegen::CompileOptions compile;
  compile.precision = one_of(options.precision, {"f32", "bf16", "f16"}, "--precision");
  compile.grads = one_of(options.grads, {"f32", "bf16"}, "--grads");
  passes::check_recompute(options.recompute);
  compile.recompute = options.recompute;
  compile.microbatches = options.microbatches;
  compile.lanes = options.lanes;
  compile.carry_state = options.carry_state;
  return compile;
}

std::unique_ptr<codegen::Target> make_target(const std::string& name, const std::string& arch) {
  if (name == "cuda") return make_target("cuda:" + runtime::cuda::present_architecture(), arch);
  if (name.starts_with("cuda:")) {
    codegen::CudaTargetOptions options;
    options.cache.directory = cache_directory();
    options.home = environment("CUDA_HOME");
    options.arch = name.substr(5);
    return codegen::make_cuda_target(options);
  }
  one_of(name, {"cpu", "cuda", "cuda:sm_80", "cuda:sm_90"}, "--target");
  codegen::CpuTargetOptions options;
  options.arch = one_of(arch, {"native", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"}, "--arch");
  options.cache.directory = cache_directory();
  if (const std::string compiler = environment("CXX"); !compiler.empty()) options.compiler = compiler;
  return codegen::make_cpu_target(options);
}

ir::Plan compile_model(const models::LoadedModel& model, const ModelOptions& options, const codegen::CompileOptions& compile) {
  codegen::CompileOptions made = compile;
  const bool wants_decode = std::find(made.programs.begin(), made.programs.end(), "decode") != made.programs.end();
  // A model without @decode still trains.
  if (wants_decode && !model.module.find_graph("decode")) std::erase(made.programs, "decode");
  const std::unique_ptr<codegen::Target> target = make_target(options.target, options.arch);
  ir::Plan plan = codegen::compile(model.module, *target, made, model.sources);
  if (options.target != "cuda") return plan;
  if (runtime::cuda::lacks_bias_kernels(plan)) {
    made.pipeline.disable.push_back("bias");  // then it is a kernel of ours
    plan = codegen::compile(model.module, *target, made, model.sources);
  }
  return options.no_tune ? plan : runtime::cuda::tune(std::move(plan));
}

ir::Plan compile_model(const ModelOptions& options, const std::vector<std::string>& programs) {
  codegen::CompileOptions compile = compile_options(options);
  compile.programs = programs;
  return compile_model(load_model(options), options, compile);
}

ir::Plan open_plan(const ModelOptions& options, const std::vector<std::string>& programs) {
  if (!is_plan_file(options.path)) return compile_model(options, programs);
  if (!options.overrides.empty()) {
    refuse(fmt::format("{} is compiled already, so '{}' cannot change it; compile the model again with it", options.path,
                       options.overrides.front()));
  }
  refuse_compile_flags(options);
  return ir::read_plan(options.path);
}

void refuse_compile_flags(const ModelOptions& options) {
  const ModelOptions plain;
  const std::pair<const char*, bool> flags[] = {{"--target", options.target != plain.target},
                                                {"--arch", options.arch != plain.arch},
                                                {"--precision", options.precision != plain.precision},
                                                {"--grads", options.grads != plain.grads},
                                                {"--recompute", options.recompute != plain.recompute},
                                                {"--microbatches", options.microbatches != plain.microbatches},
                                                {"--carry-state", options.carry_state},
                                                {"--lanes", options.lanes != plain.lanes},
                                                {"--decode-batch", options.decode_batch != plain.decode_batch},
                                                {"--keep", options.keep != plain.keep},
                                                {"--no-tune", options.no_tune}};
  for (const auto& [name, given] : flags) {
    if (given)
      refuse(fmt::format("{} is compiled already, so {} cannot change it; compile the model again with it", options.path, name));
  }
}

std::string cache_directory() {
  if (const std::string own = environment("INGOT_CACHE_DIR"); !own.empty()) return own;
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/ingot";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/ingot";
  return "";
}

ir::Module read_graph_file(const std::string& path) {
  const std::string text = read_file(path);
  if (!is_bare(text, path)) return ir::parse_module(text, path);
  ir::Module module;
  module.name = "main";
  module.graphs.push_back(ir::parse_graph(text, path, &module.ranges));
  declare_reads(module);
  return module;
}

std::string read_file(const std::string& path) {
  std::stringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  if (std::filesystem::is_directory(path)) throw ir::UserError(ir::make_loc(path, 0, 0), "this is a folder, not a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ir::UserError(ir::make_loc(path, 0, 0), "there is no such file, or it cannot be read");
  text << in.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  if (path.empty() || path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw ir::MachineError(fmt::format("cannot write '{}'", path));
}

void print_json(const nlohmann::ordered_json& json) {
  write_text("", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace ingot::tools
