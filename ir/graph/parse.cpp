#include <fmt/format.h>

#include "ir/base/error.h"
#include "ir/graph/graph_parser.h"
#include "ir/graph/text.h"
#include "ir/graph/text_form.h"
#include "ir/graph/text_reads.h"
#include "ir/graph/verify.h"

namespace ingot::ir {
namespace {

class ModuleParser {
 public:
  explicit ModuleParser(Lexer& lexer) : lexer_(lexer) {}

  Module module() {
    if (lexer_.at("module")) {
      lexer_.take();
      module_.name = lexer_.name("the name of the module");
    }
    while (!lexer_.at_end()) item();
    return std::move(module_);
  }

 private:
  void item() {
    const Token token = lexer_.peek();
    const std::string keyword = lexer_.word("a declaration or a graph");
    if (std::optional<VariableRole> role = role_from_name(keyword)) return variable(*role, token);
    if (keyword == "graph") return graph(token);
    if (keyword == "range") return module_.ranges.push_back(read_range(lexer_, token));
    if (keyword == "optimizer") return optimizer();
    if (keyword == "info") return info();
    if (keyword == "pin") return module_.precision.pin.push_back(lexer_.quoted_text("a quoted pattern"));
    if (keyword == "checkpoint_ignore") return module_.checkpoint_ignore.push_back(lexer_.quoted_text("a quoted pattern"));
    lexer_.fail_unknown(
        token, fmt::format("expected a declaration or a graph, found '{}'", keyword),
        {"module", "info", "param", "state", "hyper", "compute", "range", "optimizer", "pin", "checkpoint_ignore", "graph"});
  }

  void variable(VariableRole role, const Token& keyword) {
    Variable variable;
    variable.role = role;
    const Token token = lexer_.peek();
    variable.name = lexer_.value_name("a %name");
    if (variable.name.empty()) lexer_.fail(token, "a variable needs a name");
    if (const Variable* other = module_.find_variable(variable.name)) {
      throw UserError(lexer_.loc(token), fmt::format("{} is declared twice", value_text(variable.name)),
                      {{other->loc, "declared here first"}});
    }
    lexer_.expect(":", "and the type");
    variable.type = read_type(lexer_);
    if (lexer_.accept("=")) variable.init = lexer_.quoted_text("a quoted initial value");
    if (lexer_.accept("{")) fields(variable);
    variable.loc = read_loc(lexer_, lexer_.loc(keyword));
    module_.variables.push_back(std::move(variable));
  }

  void fields(Variable& variable) {
    for (bool first = true; !lexer_.accept("}"); first = false) {
      if (!first) lexer_.expect(",", "or '}' in the fields");
      const Token token = lexer_.peek();
      const std::string field = lexer_.word("a field (lr, decay, trainable, saved)");
      lexer_.expect(":", "behind the field's name");
      if (field == "lr") {
        variable.lr_factor = lexer_.real("a number");
      } else if (field == "decay") {
        variable.decay_factor = lexer_.real("a number");
      } else if (field == "trainable") {
        variable.trainable = lexer_.boolean(field);
      } else if (field == "saved") {
        variable.saved = lexer_.boolean(field);
      } else {
        lexer_.fail_unknown(token, fmt::format("a variable has no field '{}'", field), {"lr", "decay", "trainable", "saved"});
      }
    }
  }

  void optimizer() {
    const Token token = lexer_.peek();
    const std::string field = lexer_.word("rule, schedule or clip");
    OptimizerSpec& spec = module_.optimizer;
    std::string* text = nullptr;
    Loc* loc = nullptr;
    if (field == "rule") {
      text = &spec.rule, loc = &spec.rule_loc;
    } else if (field == "schedule") {
      text = &spec.schedule, loc = &spec.schedule_loc;
    } else if (field == "clip") {
      text = &spec.clip, loc = &spec.clip_loc;
    } else {
      lexer_.fail_unknown(token, fmt::format("expected rule, schedule or clip, found '{}'", field), {"rule", "schedule", "clip"});
    }
    *text = lexer_.quoted_text("a quoted expression");
    *loc = read_loc(lexer_, lexer_.loc(token));
  }

  void info() {
    std::string key = lexer_.name("a key");
    lexer_.expect("=", "and a quoted value");
    module_.info.emplace_back(std::move(key), lexer_.quoted_text("a quoted value"));
  }

  void graph(const Token& keyword) {
    const Token token = lexer_.peek();
    Graph graph = GraphParser(lexer_, &module_).graph();
    if (module_.find_graph(graph.name())) lexer_.fail(token, fmt::format("there are two graphs @{}", name_text(graph.name())));
    check_verified(lexer_, keyword, [&] { verify(graph, &module_); });
    module_.graphs.push_back(std::move(graph));
  }

 public:
  /// What the parser cannot see, the verifier does; in a text it is the writer's mistake, not ours.
  template <class Verify>
  static void check_verified(const Lexer& lexer, const Token& at, Verify verify_it) {
    try {
      verify_it();
    } catch (const InternalError& error) {
      lexer.fail(at, error.what());
    }
  }

 private:
  Lexer& lexer_;
  Module module_;
};

}  // namespace

Module parse_module(std::string_view text, std::string_view file) {
  Lexer lexer(text, file);
  const Token first = lexer.peek();
  Module module = ModuleParser(lexer).module();
  ModuleParser::check_verified(lexer, first, [&] { verify(module); });
  return module;
}

namespace {

/// Bare lines do not say their level: the first at which every op is legal.
Graph parse_bare(Lexer& lexer) {
  const Lexer start = lexer;
  for (Level level : {Level::model, Level::train, Level::core, Level::fused}) {
    lexer = start;
    GraphParser parser(lexer, nullptr);
    try {
      return parser.bare(level);
    } catch (const UserError&) {
      if (!parser.refused_level() || level == Level::fused) throw;
    }
  }
  throw InternalError("unreachable: the last level returns or throws");
}

}  // namespace

Graph parse_graph(std::string_view text, std::string_view file, std::vector<InputRange>* ranges) {
  Lexer lexer(text, file);
  const Token first = lexer.peek();
  while (lexer.at("range")) {
    const Token keyword = lexer.take();
    InputRange range = read_range(lexer, keyword);
    if (ranges) ranges->push_back(std::move(range));
  }
  Graph graph = lexer.accept("graph") ? GraphParser(lexer, nullptr).graph() : parse_bare(lexer);
  if (!lexer.at_end()) lexer.fail_expected("the end of the text");
  ModuleParser::check_verified(lexer, first, [&] { verify(graph, nullptr); });
  return graph;
}

}  // namespace ingot::ir
