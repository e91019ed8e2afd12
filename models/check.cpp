#include "models/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/base/error.h"
#include "models/call.h"
#include "models/initial.h"
#include "models/pieces.h"

namespace ingot::models {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::ExprPtr;

using Words = std::set<std::string>;

bool silenced(const std::string& name) { return name.starts_with("_"); }

/// What is mentioned anywhere in the model: what stays out is unused.
struct Usage {
  Words config, train, blocks;
  bool unsure = false;  ///< something could not be read, so nothing is called unused
};

bool is_compile_time(const std::string& name) { return name == "layer" || name == "nth" || name == "layers"; }

class BlockChecker {
 public:
  BlockChecker(const Description& model, const BlockText& block, Usage& usage, Report& report)
      : model_(model), block_(block), main_(&block == &model.main), usage_(usage), report_(report) {}

  void run() {
    for (const Word& name : block_.in) declare(name, main_ ? "input" : "name in `in`");
    for (const UseText& use : block_.use) {
      declare(use.prefix, "prefix");
      const BlockText* used = model_.find_block(use.block.text);
      if (!used)
        report_.error(use.block.loc,
                      fmt::format("unknown block `{}`{}", use.block.text, did_you_mean(use.block.text, block_names())));
    }
    for (const ParamText& param : block_.params) declare(param.name, "parameter");
    lets();
    for (const ParamText& param : block_.params) parameter(param);
    for (const Statement& statement : block_.graph) {
      for (const Word& name : statement.names) later_.emplace(name.text, name.loc);
    }
    for (const Statement& statement : block_.graph) this->statement(statement);
    for (const Word& name : block_.out) result(name, "out");
    if (main_) model_ends();
    unused();
  }

  /// Names an expression over config keys mentions, checked.
  void constant(const Expr& e, bool initial = false) {
    if (e.kind == ExprKind::name) return constant_name(e, initial);
    if (e.kind == ExprKind::call) function(e, initial);
    for (const ExprPtr& arg : e.args) constant(*arg, initial);
    for (const auto& [key, value] : e.keywords) constant(*value, initial);
  }

 private:
  std::vector<std::string> block_names() const {
    std::vector<std::string> out;
    for (const BlockText& block : model_.blocks) out.push_back(block.name.text);
    return out;
  }

  /// One name has one meaning in a block.
  void declare(const Word& name, std::string_view what) {
    const auto [it, fresh] = declared_.emplace(name.text, name.loc);
    if (!fresh) {
      report_.error(name.loc, fmt::format("`{}` is given already", name.text), {{it->second, "first given here"}});
    } else if (const Setting* setting = model_.find_config(name.text); setting && what != "prefix") {
      report_.error(name.loc, fmt::format("the {} `{}` has the name of a config key", what, name.text),
                    {{setting->name.loc, "the key is here"}});
    } else if (what == "parameter" && main_ && model_.find_train(name.text)) {
      report_.error(name.loc, fmt::format("the parameter `{}` has the name of a train scalar", name.text));
    }
  }

  void lets() {
    for (const LetText& let : block_.lets) {
      if (const Setting* setting = model_.find_config(let.name.text)) {
        report_.error(let.name.loc, fmt::format("`{}` has the name of a config key", let.name.text),
                      {{setting->name.loc, "the key is here"}});
      }
      if (let.value) constant(*let.value, true);
    }
  }

  void parameter(const ParamText& param) {
    for (const ExprPtr& size : param.type.sizes) constant(*size);
    if (param.init) constant(*param.init, true);
    if (param.when) constant(*param.when);
  }

  void constant_name(const Expr& e, bool initial) {
    const std::string& name = e.text;
    if (initial && (name == "i" || name == "j")) return;
    if (initial && block_.find_let(name)) {
      used_lets_.insert(name);
    } else if (model_.find_config(name)) {
      usage_.config.insert(name);
    } else if (model_.find_train(name)) {
      usage_.train.insert(name);
      report_.error(
          e.loc,
          fmt::format("`{}` is a train scalar, which may change while training; put it into config to build with it", name));
    } else if (name == "layers" ? !model_.stack : is_compile_time(name) && main_) {
      report_.error(e.loc, fmt::format("`{}` is known only inside the blocks of the stack", name));
    } else if (!is_compile_time(name)) {
      unknown_constant(e, initial);
    }
  }

  void unknown_constant(const Expr& e, bool initial) {
    const std::string& name = e.text;
    if (name == "i" || name == "j")
      return report_.error(e.loc, fmt::format("`{}` counts the elements of an initial value; there are none here", name));
    if (block_.find_let(name)) return report_.error(e.loc, fmt::format("`{}` is a `let` name, for initial values only", name));
    if (declared_.contains(name) || later_.contains(name)) {
      return report_.error(e.loc,
                           fmt::format("`{}` is computed when the model runs; a number known before is needed here", name));
    }
    std::vector<std::string> known = config_names();
    if (initial) {
      for (const LetText& let : block_.lets) known.push_back(let.name.text);
    }
    if (name == "True" || name == "False" || name == "yes" || name == "no" || name == "on" || name == "off") {
      return report_.error(e.loc, fmt::format("`{}` is not a boolean here; write true or false", name));
    }
    report_.error(e.loc, fmt::format("unknown name `{}`{}", name, did_you_mean(name, known)));
  }

  std::vector<std::string> config_names() const {
    std::vector<std::string> out;
    for (const Setting& setting : model_.config) out.push_back(setting.name.text);
    if (!main_) out.insert(out.end(), {"layer", "nth", "layers"});
    return out;
  }

  void function(const Expr& e, bool initial) {
    const std::vector<std::string> known = initial ? initial_functions() : ir::evaluator_functions();
    if (std::find(known.begin(), known.end(), e.text) != known.end()) return;
    if (is_draw(e.text))
      return report_.error(e.loc, fmt::format("{} draws initial values; a number known before is needed here", e.text));
    std::string hint = did_you_mean(e.text, known);
    if (hint.empty()) hint = fmt::format(" (known here: {})", fmt::join(known, ", "));
    report_.error(e.loc, fmt::format("unknown function `{}`{}", e.text, hint));
  }

  // ------------------------------------------------------------ statements

  void statement(const Statement& statement) {
    if (statement.when) constant(*statement.when);
    if (statement.expr) {
      count(*statement.expr, statement.names.size());
      value(*statement.expr, true);
    }
    const bool stack = statement.expr && statement.expr->kind == ExprKind::call && statement.expr->text == "stack";
    for (const Word& name : statement.names) {
      assign(name, statement.when != nullptr);
      // The stack's carried values may come back under their own names whether or not they are needed.
      if (stack && model_.stack && std::any_of(model_.stack->carry.begin(), model_.stack->carry.end(), [&](const Word& w) {
            return w.text == name.text;
          })) {
        used_.insert(name.text);
      }
    }
  }

  void assign(const Word& name, bool conditional) {
    const auto before = assigned_.find(name.text);
    if (before == assigned_.end()) {
      declare(name, "value");
      assigned_[name.text] = {name.loc, conditional};
    } else if (!conditional || !before->second.conditional) {
      report_.error(
          name.loc,
          fmt::format("`{}` has a value already; only statements whose conditions exclude one another share a name", name.text),
          {{before->second.loc, "first given here"}});
    }
  }

  /// As many names as values, where the number of values is known.
  void count(const Expr& e, size_t names) {
    if (e.kind != ExprKind::call || names == 0) return;
    size_t least = 1, most = 1;
    if (const UseText* use = block_.find_use(e.text)) {
      const BlockText* block = model_.find_block(use->block.text);
      if (!block) return;
      least = most = block->out.size();
    } else if (e.text == "split" || e.text == "stack") {
      return;  // counted when built
    } else if (const ir::OpDef* def = find_callable(e.text)) {
      least = visible_results(*def);
      most = def->results.size();
    }
    if (names >= least && names <= most) return;
    const std::string values =
        least == most ? std::to_string(least) : fmt::format("{} (or up to {} with its hidden ones)", least, most);
    report_.error(e.loc, fmt::format("{} gives {} value{}, but {} name{} on the left", e.text, values, values == "1" ? "" : "s",
                                     names, names == 1 ? " stands" : "s stand"));
  }

  void value(const Expr& e, bool whole = false) {
    if (e.kind == ExprKind::name) return name(e);
    if (e.kind != ExprKind::call) {
      for (const ExprPtr& arg : e.args) value(*arg);
      return;
    }
    if (const UseText* use = block_.find_use(e.text)) {
      used_.insert(e.text);
      const BlockText* block = model_.find_block(use->block.text);
      if (!whole && block) one(e, block->out.size());
      return arguments(e);
    }
    if (e.text == "stack" || e.text == "split") return form(e);
    const ir::OpDef* def = find_callable(e.text);
    if (!def) return not_an_op(e);
    if (!whole) one(e, visible_results(*def));
    if (constant_call(e)) return constant(e);
    if (!report_.attempt([&] { operands(bind_call(*def, e)); })) mention(e);
  }

  /// What a call that could not be read mentions counts as used.
  void mention(const Expr& e) {
    for (const std::string& n : ir::names_in(e)) {
      used_.insert(n);
      usage_.config.insert(n);
      usage_.train.insert(n);
    }
  }

  /// A call of constants alone is computed before the model runs.
  bool constant_call(const Expr& e) const {
    return is_constant(e, [&](const std::string& n) {
      return !declared_.contains(n) && !assigned_.contains(n) && (model_.find_config(n) || is_compile_time(n));
    });
  }

  void one(const Expr& e, size_t results) {
    if (results != 1)
      report_.error(e.loc, fmt::format("{} gives {} values; give them names in a statement of their own", e.text, results));
  }

  void operands(const BoundCall& call) {
    for (const ExprPtr& operand : call.operands) {
      if (operand && operand->kind != ExprKind::none) value(*operand);
    }
    for (const auto& [attr, expr] : call.attrs) {
      if (attr->kind != ir::AttrKind::dtype) constant(*expr);
    }
  }

  void arguments(const Expr& e) {
    for (const ExprPtr& arg : e.args) {
      if (arg->kind != ExprKind::none) value(*arg);
    }
    for (const auto& [key, arg] : e.keywords) value(*arg);
  }

  void form(const Expr& e) {
    if (e.text == "stack") {
      stack_used_ = true;
      if (!main_) report_.error(e.loc, "the stack runs in the model's own graph, not in a block");
      return arguments(e);
    }
    for (size_t i = 0; i < e.args.size(); ++i) {
      if (i == 0) {
        value(*e.args[i]);
      } else {
        constant(*e.args[i]);
      }
    }
    for (const auto& [key, arg] : e.keywords) constant(*arg);
  }

  void not_an_op(const Expr& e) {
    const std::vector<std::string>& functions = ir::evaluator_functions();
    if (constant_call(e)) return constant(e);
    arguments(e);
    if (model_.find_block(e.text)) {
      return report_.error(e.loc,
                           fmt::format("unknown op `{}`; a block that calls the block of that name lists it in `use`", e.text));
    }
    if (std::find(functions.begin(), functions.end(), e.text) != functions.end()) {
      return report_.error(e.loc, fmt::format("{} works on numbers known before the model runs, not on values", e.text));
    }
    if (is_draw(e.text)) return report_.error(e.loc, fmt::format("{} draws initial values; it is not an op", e.text));
    if (ir::op_table().find(e.text))
      return report_.error(e.loc, fmt::format("the op `{}` is made by the compiler; a model cannot call it", e.text));
    std::vector<std::string> known = callable_names();
    known.insert(known.end(), {"split", "stack"});
    for (const UseText& use : block_.use) known.push_back(use.prefix.text);
    report_.error(e.loc, fmt::format("unknown op `{}`{}", e.text, did_you_mean(e.text, known)));
  }

  void name(const Expr& e) {
    const std::string& n = e.text;
    const bool input = std::any_of(block_.in.begin(), block_.in.end(), [&](const Word& w) { return w.text == n; });
    if (assigned_.contains(n) || input || block_.find_param(n)) {
      used_.insert(n);
    } else if (later_.contains(n)) {
      report_.error(e.loc, fmt::format("`{}` is used before it has a value (it gets one at line {})", n, later_.at(n).line));
      used_.insert(n);
    } else if (model_.find_config(n)) {
      usage_.config.insert(n);
    } else if (model_.find_train(n)) {
      usage_.train.insert(n);
    } else if (block_.find_use(n)) {
      report_.error(e.loc, fmt::format("`{}` is a block; call it: {}(...)", n, n));
    } else if (is_compile_time(n)) {
      constant_name(e, false);
    } else {
      unknown_value(e);
    }
  }

  void unknown_value(const Expr& e) {
    if (e.text == "i" || e.text == "j" || block_.find_let(e.text)) return unknown_constant(e, false);
    std::vector<std::string> known = config_names();
    for (const auto& [n, loc] : later_) known.push_back(n);
    for (const Word& word : block_.in) known.push_back(word.text);
    for (const ParamText& param : block_.params) known.push_back(param.name.text);
    for (const Setting& setting : model_.train) known.push_back(setting.name.text);
    report_.error(e.loc, fmt::format("unknown name `{}`{}", e.text, did_you_mean(e.text, known)));
  }

  // ------------------------------------------------------------ ends

  void result(const Word& name, std::string_view where) {
    if (assigned_.contains(name.text)) {
      used_.insert(name.text);
      return;
    }
    if (std::any_of(block_.in.begin(), block_.in.end(), [&](const Word& w) { return w.text == name.text; })) {
      used_.insert(name.text);
      return;
    }
    std::vector<std::string> known;
    for (const auto& [n, loc] : later_) known.push_back(n);
    report_.error(name.loc, fmt::format("{}: no statement of the graph gives `{}` a value{}", where, name.text,
                                        did_you_mean(name.text, known)));
  }

  void model_ends() {
    if (model_.loss) value(*model_.loss, true);
    for (const Word& name : model_.outputs) result(name, "outputs");
    for (const InputText& input : model_.inputs) {
      for (const ExprPtr& size : input.type.sizes) constant(*size);
      for (const ExprPtr& bound : {input.lo, input.hi}) {
        if (bound) constant(*bound);
      }
      for (const ExprPtr& also : input.also) constant(*also);
    }
    if (model_.stack && !stack_used_)
      report_.error(model_.stack->loc, "the graph never runs the stack: NAME: stack(FIRST VALUE, ...)");
  }

  void unused() {
    if (usage_.unsure) return;
    const auto complain = [&](const Word& word, std::string_view what) {
      if (used_.contains(word.text) || silenced(word.text)) return;
      report_.error(word.loc,
                    fmt::format("the {} `{}` is never used (`_{}` would say so on purpose)", what, word.text, word.text));
    };
    for (const Word& name : block_.in) complain(name, "input");
    for (const UseText& use : block_.use) complain(use.prefix, "sub-block");
    for (const ParamText& param : block_.params) complain(param.name, "parameter");
    Words seen;
    for (const Statement& statement : block_.graph) {
      for (const Word& name : statement.names) {
        if (seen.insert(name.text).second && !declared_twice(name)) complain(name, "value");
      }
    }
    for (const LetText& let : block_.lets) {
      if (!used_lets_.contains(let.name.text)) complain(let.name, "`let` name");
    }
  }

  bool declared_twice(const Word& name) const { return declared_.at(name.text) != assigned_.at(name.text).loc; }

  struct Assigned {
    ir::Loc loc;
    bool conditional = false;
  };

  const Description& model_;
  const BlockText& block_;
  bool main_;
  Usage& usage_;
  Report& report_;
  std::map<std::string, ir::Loc> declared_;   // every name with a meaning, by where it got it first
  std::map<std::string, ir::Loc> later_;      // names of all statements
  std::map<std::string, Assigned> assigned_;  // names of the statements so far
  Words used_, used_lets_;
  bool stack_used_ = false;
};

/// Config keys that use keys, block names they mention, and the optimizer's lines.
class SettingsChecker {
 public:
  SettingsChecker(const Description& model, Usage& usage, Report& report) : model_(model), usage_(usage), report_(report) {}

  void run() {
    for (const Setting& setting : model_.config) mentions(setting);
    for (const Setting& setting : model_.train) mentions(setting);
    if (model_.stack) mention(*model_.stack->blocks);
    for (const ExprPtr& e : model_.replaced_stacks) mention(*e);
    if (model_.optimizer) {
      for (const Word* line : {&model_.optimizer->rule, &model_.optimizer->schedule, &model_.optimizer->clip})
        optimizer_line(*line);
    }
  }

 private:
  void mentions(const Setting& setting) {
    if (setting.value) mention(*setting.value);
    for (const ExprPtr& e : setting.mentioned) mention(*e);
  }

  void mention(const Expr& e) {
    for (const std::string& name : ir::names_in(e)) {
      if (model_.find_config(name)) {
        usage_.config.insert(name);
      } else if (model_.find_block(name)) {
        usage_.blocks.insert(name);
      }
    }
    texts(e);
  }

  /// Block names in quotes.
  void texts(const Expr& e) {
    if (e.kind == ExprKind::text && model_.find_block(e.text)) usage_.blocks.insert(e.text);
    for (const ExprPtr& arg : e.args) texts(*arg);
  }

  void optimizer_line(const Word& line) {
    if (!line.text.empty()) train_names(*ir::parse_expr(line.text, line.loc));
  }

  void train_names(const Expr& e) {
    if (e.kind == ExprKind::name) {
      if (model_.find_train(e.text)) {
        usage_.train.insert(e.text);
      } else if (e.text != "steps") {  // every run has it
        std::vector<std::string> known;
        for (const Setting& setting : model_.train) known.push_back(setting.name.text);
        const bool config = model_.find_config(e.text) != nullptr;
        report_.error(e.loc, config ? fmt::format("`{}` is a config key; the optimizer is written over train scalars", e.text)
                                    : fmt::format("unknown train scalar `{}`{}", e.text, did_you_mean(e.text, known)));
      }
    }
    for (const ExprPtr& arg : e.args) train_names(*arg);
    for (const auto& [key, arg] : e.keywords) train_names(*arg);
  }

  const Description& model_;
  Usage& usage_;
  Report& report_;
};

/// An unused key is often a misspelt one: the nearest of the others is named.
void unused_settings(const std::vector<Setting>& settings, const Words& used, std::string_view what, Report& report) {
  for (const Setting& setting : settings) {
    const std::string& name = setting.name.text;
    if (used.contains(name) || silenced(name)) continue;
    const std::string hint = did_you_mean(name, {used.begin(), used.end()});
    report.error(setting.name.loc, fmt::format("the {} `{}` is never used{}", what, name,
                                               hint.empty() ? fmt::format(" (`_{}` would say so on purpose)", name) : hint));
  }
}

/// A block is used when the stack's list may name it or a used block uses it.
void unused_blocks(const Description& model, Words used, Report& report) {
  std::vector<std::string> work(used.begin(), used.end());
  for (const BlockText& block : model.blocks) {
    if (silenced(block.name.text) && used.insert(block.name.text).second) work.push_back(block.name.text);
  }
  while (!work.empty()) {
    const BlockText* block = model.find_block(work.back());
    work.pop_back();
    for (const UseText& use : block->use) {
      if (model.find_block(use.block.text) && used.insert(use.block.text).second) work.push_back(use.block.text);
    }
  }
  for (const BlockText& block : model.blocks) {
    const std::string& name = block.name.text;
    if (!used.contains(name))
      report.error(block.name.loc, fmt::format("the block `{}` is never used (`_{}` would say so on purpose)", name, name));
  }
}

}  // namespace

void check_model(const Description& model, Report& report) {
  Usage usage;
  usage.unsure = !report.empty();
  SettingsChecker(model, usage, report).run();
  BlockChecker(model, model.main, usage, report).run();
  for (const BlockText& block : model.blocks) BlockChecker(model, block, usage, report).run();
  if (usage.unsure) return;
  usage.config.insert(std::string(kDocumentEnd));  // read by the loader
  unused_settings(model.config, usage.config, "config key", report);
  unused_settings(model.train, usage.train, "train scalar", report);
  unused_blocks(model, usage.blocks, report);
}

}  // namespace ingot::models
