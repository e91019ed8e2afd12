#include "models/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/error.h"
#include "models/build.h"
#include "models/check.h"
#include "models/config.h"
#include "models/groups.h"
#include "models/merge.h"
#include "models/read.h"

namespace ingot::models {
namespace {

class Loader {
 public:
  Loader(const LoadOptions& options, LoadedModel& out) : options_(options), out_(out) {}

  void run(const std::string& text, const std::string& file, Report& report) {
    const NodePtr root = load_merged(text, file, out_.sources, report);
    model_ = read_description(*root, file, report);
    if (model_.incomplete) report.throw_if_any();
    apply_overrides(model_, options_.overrides, report);
    check_model(model_, report);
    const Config config = configure({}, report);
    out_.train = train_values(model_, config, report);
    Built built = build_graph(model_, config, out_.train, {"loss", true, options_.outputs}, report);
    apply_groups(model_, built.variables, report);
    if (report.empty()) check_patterns(model_, model_.stack ? static_cast<size_t>(config.find("layers")->number()) : 0, report);
    if (report.empty()) unread_params(built, report);
    if (report.empty()) finish(config, std::move(built), report);
    report.throw_if_any();
    decode();
  }

 private:
  /// Config with `layers` set to the stack's length: a list of blocks on the command line may say how many there are.
  Config configure(const std::map<std::string, double>& forced, Report& report) const {
    Config config(model_, forced, report);
    if (!model_.stack || !report.empty()) return config;
    const auto count = static_cast<double>(stack_blocks(model_, config, report).size());
    const Setting* layers = model_.find_config("layers");
    if (layers && report.empty() && config.find("layers")->is_number() && config.find("layers")->number() != count) {
      if (layers->overridden) {
        report.error(layers->value->loc,
                     fmt::format("layers is {}, but the stack has {} blocks", config.find("layers")->number(), count));
      } else {
        std::map<std::string, double> again = forced;
        again["layers"] = count;
        config = Config(model_, again, report);
      }
    }
    config.set("layers", count);
    return config;
  }

  static void unread_params(const Built& built, Report& report) {
    for (const ir::Variable& variable : built.variables) {
      if (variable.role != ir::VariableRole::param || built.graph.find(variable.name) != ir::kNone) continue;
      report.error(variable.loc, fmt::format("the parameter {} exists, but no statement that is taken reads it; give it a `when`",
                                             variable.name));
    }
  }

  void finish(const Config& config, Built built, Report& report) {
    ir::Module& module = out_.module;
    module.name = model_.name;
    out_.config = config.values();
    for (const Setting& setting : model_.config) {
      module.info.emplace_back(setting.name.text, ir::constant_text(out_.config.at(setting.name.text)));
    }
    ranges(config, report);
    check_document_end(report);
    if (model_.optimizer) {
      const OptimizerText& o = *model_.optimizer;
      module.optimizer = {o.rule.text, o.schedule.text, o.clip.text, o.rule.loc, o.schedule.loc, o.clip.loc};
    }
    module.precision = precision_spec(model_, built);
    module.checkpoint_ignore = model_.checkpoint_ignore;
    module.variables = std::move(built.variables);
    module.set_graph(std::move(built.graph));
  }

  void ranges(const Config& config, Report& report) {
    const ir::ConstantScope scope{[&](const std::string& name) { return config.find(name); }, [&] { return config.names(); }};
    for (const InputText& input : model_.inputs) {
      if (!input.lo) continue;
      report.attempt([&] {
        ir::InputRange range{input.name.text, bound(*input.lo, scope), bound(*input.hi, scope), {}, input.name.loc};
        for (const ir::ExprPtr& value : input.also) range.also.push_back(bound(*value, scope));
        if (range.lo > range.hi)
          throw ir::UserError(input.hi->loc, fmt::format("the range {} .. {} is empty", range.lo, range.hi));
        out_.module.ranges.push_back(std::move(range));
      });
    }
  }

  /// The pass `carry` makes document starts of it; here only what it may be.
  void check_document_end(Report& report) const {
    const Setting* setting = model_.find_config(kDocumentEnd);
    if (!setting || !report.empty()) return;
    const ir::Constant& value = out_.config.at(setting->name.text);
    const auto tokens = std::find_if(out_.module.ranges.begin(), out_.module.ranges.end(),
                                     [](const ir::InputRange& range) { return range.input == "tokens"; });
    if (tokens == out_.module.ranges.end()) {
      return report.error(setting->name.loc,
                          fmt::format("`{}` is the id of a token, and no input `tokens` has a range of ids", kDocumentEnd));
    }
    const double id = value.is_number() ? value.number() : 0.5;
    if (id != std::floor(id) || id < static_cast<double>(tokens->lo) || id > static_cast<double>(tokens->hi)) {
      report.error(ir::expr_start(*setting->value),
                   fmt::format("`{}` is the id of the token that ends a document, one of {} .. {}, not {}", kDocumentEnd,
                               tokens->lo, tokens->hi, ir::constant_text(value)));
    }
  }

  static int64_t bound(const ir::Expr& expr, const ir::ConstantScope& scope) {
    const ir::Constant value = ir::evaluate(expr, scope);
    const double n = value.is_number() ? value.number() : 0.5;
    if (n != static_cast<double>(static_cast<int64_t>(std::clamp(n, -9e18, 9e18)))) {
      throw ir::UserError(
          expr.loc, fmt::format("a range is between whole numbers, `{}` is {}", ir::expr_text(expr), ir::constant_text(value)));
    }
    return static_cast<int64_t>(n);
  }

  /// The same model one token at a time. Models that cannot be built so have no @decode; `no_decode` says why.
  void decode() {
    if (model_.outputs.empty() || !model_.find_config("batch") || !model_.find_config("time") || !has_tokens()) {
      out_.no_decode = "the model has no `outputs`, no input `tokens`, or no config keys `batch` and `time`";
      return;
    }
    Report report;
    try {
      const Config config = configure({{"batch", static_cast<double>(options_.decode_batch)}, {"time", 1.0}}, report);
      Built built = build_graph(model_, config, out_.train, {"decode", false, {}}, report);
      report.throw_if_any();
      for (const ir::Variable& variable : built.variables) {
        const ir::Variable* trained = out_.module.find_variable(variable.name);
        if (trained && trained->type == variable.type) continue;
        throw ir::UserError(variable.loc, fmt::format("{} depends on batch or time", variable.name));
      }
      out_.module.set_graph(needed(built.graph));
    } catch (const ir::UserError& e) {
      out_.no_decode = e.what();
    } catch (const Report::Full&) {
      out_.no_decode = "it cannot be built for one token at a time";
    }
  }

  bool has_tokens() const {
    for (const InputText& input : model_.inputs) {
      if (input.name.text == "tokens") return true;
    }
    return false;
  }

  /// The graph without what its outputs do not need (values computed from targets).
  static ir::Graph needed(const ir::Graph& graph) {
    std::vector<bool> live(graph.ops().size());
    for (const ir::Output& output : graph.outputs()) live[graph.value(output.value).op] = true;
    for (size_t i = live.size(); i-- > 0;) {
      if (!live[i]) continue;
      for (ir::ValueId operand : graph.ops()[i].operands) {
        if (operand != ir::kNone) live[graph.value(operand).op] = true;
      }
    }
    ir::Graph out(graph.name(), graph.level());
    ir::Rewriter rewriter(graph, out);
    for (size_t i = 0; i < live.size(); ++i) {
      if (live[i]) rewriter.copy(graph.ops()[i]);
    }
    rewriter.finish();
    return out;
  }

  const LoadOptions& options_;
  LoadedModel& out_;
  Description model_;
};

}  // namespace

LoadedModel load_model_text(const std::string& text, const std::string& file, const LoadOptions& options) {
  LoadedModel out;
  Report report;
  try {
    Loader(options, out).run(text, file, report);
  } catch (const Report::Full&) {
  } catch (const ir::UserError& e) {
    // A mistake that ends reading at once (a file that is not YAML) stands beside those found before it.
    if (report.empty()) throw;
    try {
      report.error(e);
    } catch (const Report::Full&) {
    }
  }
  report.throw_if_any();
  return out;
}

LoadedModel load_model(const std::string& path, const LoadOptions& options) {
  return load_model_text(read_file(path, {}), path, options);
}

}  // namespace ingot::models
