// What several commands share: the options that name a model and how it is compiled, and the way from a file to a plan.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "codegen/compile.h"
#include "ir/graph/graph.h"
#include "models/loader.h"

namespace CLI {
class App;
}

namespace ingot::tools {

/// MODEL key=value ... --target --arch --precision --grads --recompute --microbatches --carry-state --lanes --decode-batch --keep
struct ModelOptions {
  std::string path;                    ///< MODEL.yaml, or where a command takes it X.plan
  std::vector<std::string> overrides;  ///< "key=value"
  std::string target = "cpu";
  std::string arch = "native";  ///< CPU kernels: the instruction sets they may use, as the host compiler names them
  std::string precision = "f32";
  std::string grads = "f32";
  std::string recompute = "cheap";
  int microbatches = 1;
  int lanes = 0;  ///< 0: as many as suit the target
  bool carry_state = false;  ///< windows of training follow one another, states carried
  int64_t decode_batch = 1;
  bool no_tune = false;  ///< --target cuda: products keep the library's first suggestion
  std::string keep;  ///< values to keep as outputs, "a,b"
};

/// Adds the positional argument (called `what`), the overrides and the flags above to a command.
void add_model_options(CLI::App& command, ModelOptions& options, const std::string& what = "MODEL.yaml");
void add_seed_option(CLI::App& command, uint64_t& seed);

bool is_plan_file(const std::string& path);   ///< by its ending, or by how it begins
bool is_model_file(const std::string& path);  ///< .yaml or .yml

models::LoadedModel load_model(const ModelOptions& options);
/// Precision, grads, recompute, microbatches, carried states and lanes, checked; the programs and the pipeline are the caller's.
codegen::CompileOptions compile_options(const ModelOptions& options);
/// UserError when a flag asks for what only compiling could do; for a path that is a plan, or a run with one.
void refuse_compile_flags(const ModelOptions& options);
/// With the kernel cache of this user.
std::unique_ptr<codegen::Target> make_target(const std::string& name, const std::string& arch = "native");
/// The whole way from a model, sources included.
ir::Plan compile_model(const models::LoadedModel& model, const ModelOptions& options, const codegen::CompileOptions& compile);
ir::Plan compile_model(const ModelOptions& options, const std::vector<std::string>& programs = {"train", "eval", "decode"});
/// A plan from a file of either kind. Overrides given for a compiled plan are an error that says so.
ir::Plan open_plan(const ModelOptions& options, const std::vector<std::string>& programs = {"train", "eval", "decode"});

/// $INGOT_CACHE_DIR, else $XDG_CACHE_HOME/ingot, else ~/.cache/ingot, else "" (no cache).
std::string cache_directory();

/// A module, a lone graph or bare op lines ("-" reads the standard input). Variables a lone graph reads are declared from
/// their reads.
ir::Module read_graph_file(const std::string& path);
/// UserError when the file cannot be read.
std::string read_file(const std::string& path);
/// "" or "-" writes to the standard output. MachineError when it cannot be written.
void write_text(const std::string& path, const std::string& text);
void print_json(const nlohmann::ordered_json& json);

}  // namespace ingot::tools
