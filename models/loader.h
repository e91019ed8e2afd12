// YAML in, graph out: the only code that knows YAML and the model language (models/README.md).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/expr.h"
#include "ir/graph/graph.h"

namespace ingot::models {

struct LoadOptions {
  /// key=value overrides in order: config keys, train keys, batch, time. Located as "<command line>:1:col".
  std::vector<std::pair<std::string, std::string>> overrides;
  /// Extra values to keep as outputs of @loss, by full name ("blocks.0.att.xr"); unknown ones are errors.
  std::vector<std::string> outputs;
  int64_t decode_batch = 1;
};

struct LoadedModel {
  ir::Module module;                           ///< @loss and @decode (no @decode when there is no `tokens` input or when the
                                               ///< model cannot be built at time = 1)
  std::string no_decode;                       ///< why there is no @decode, else empty
  std::map<std::string, ir::Constant> config;  ///< every key's final value
  std::map<std::string, double> train;         ///< every train scalar's final value
  std::map<std::string, std::string> sources;  ///< file name -> text of every YAML file read
};

/// All mistakes at once (at most 20) as one UserError.
LoadedModel load_model(const std::string& path, const LoadOptions& options = {});
/// The same from text; `extends` is looked up beside `file`.
LoadedModel load_model_text(const std::string& text, const std::string& file, const LoadOptions& options = {});

}  // namespace ingot::models
