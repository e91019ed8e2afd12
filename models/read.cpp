#include "models/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ir/base/error.h"
#include "models/nodes.h"

namespace ingot::models {
namespace {

class Reader {
 public:
  Reader(const Node& root, Report& report) : root_(root), report_(report) {}

  Description run(const std::string& file) {
    check_keys(root_, "the model file",
               {"model", "extends", "config", "train", "inputs", "params", "blocks", "graph", "stack", "loss", "outputs",
                "optimizer", "precision", "checkpoint"},
               report_);
    out_.name = std::filesystem::path(file).stem().string();
    with("model", [&](const NodeEntry& e) { out_.name = text(*e.value, e.key->loc, "model").text; });
    settings();
    inputs();
    if (const Node* map = section("params", NodeKind::map, "a map NAME: TYPE = INITIAL VALUE")) params(*map, out_.main);
    if (const Node* list = section("graph", NodeKind::list, "a list of statements, each begun with `- `")) {
      statements(*list, out_.main);
    }
    if (const Node* map = section("blocks", NodeKind::map, "a map of blocks")) {
      for (const NodeEntry& entry : map->entries) block(entry);
    }
    stack();
    with("loss", [&](const NodeEntry& e) {
      out_.loss_loc = e.value->loc;
      out_.loss = expression(*e.value, e.key->loc, "loss");
    });
    with("outputs", [&](const NodeEntry& e) { out_.outputs = names(*e.value, e.key->loc, "outputs"); });
    optimizer();
    precision();
    checkpoint();
    missing_sections();
    return std::move(out_);
  }

 private:
  void missing_sections() {
    std::vector<std::string_view> missing;
    for (const std::string_view needed : {"inputs", "graph", "loss"}) {
      if (!root_.find(needed)) missing.push_back(needed);
    }
    if (missing.empty()) return;
    out_.incomplete = true;
    report_.error(root_.loc, fmt::format("the section{} {} {} missing", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                                         missing.size() == 1 ? "is" : "are"));
  }

  /// A root section. When it is something else, what refers to it cannot be judged.
  const Node* section(std::string_view key, NodeKind kind, std::string_view shape) {
    const Node* node = get(root_, key, kind, shape, report_);
    if (!node && root_.find(key)) out_.incomplete = true;
    return node;
  }

  template <class F>
  void with(std::string_view key, F&& read) {
    with(root_, key, read);
  }
  template <class F>
  void with(const Node& map, std::string_view key, F&& read) {
    if (const NodeEntry* entry = map.find(key)) report_.attempt([&] { read(*entry); });
  }

  // ------------------------------------------------------------ config, train

  void settings() {
    const Node* config = section("config", NodeKind::map, "a map of keys and values");
    const Node* train = section("train", NodeKind::map, "a map of keys and numbers");
    if (config) read_settings(*config, "config", out_.config);
    if (train) read_settings(*train, "train", out_.train);
    for (const Setting& setting : out_.train) {
      if (setting.name.text == "steps")
        report_.error(setting.name.loc, "`steps` is the number of updates of a run, given when it starts");
      const Setting* twin = out_.find_config(setting.name.text);
      if (!twin) continue;
      report_.error(setting.name.loc, fmt::format("`{}` is a config key already", setting.name.text),
                    {{twin->name.loc, "given here"}});
    }
    quoted_expressions();
  }

  void read_settings(const Node& map, std::string_view where, std::vector<Setting>& out) {
    for (const NodeEntry& entry : map.entries) {
      Setting setting{{entry.key->text, entry.key->loc}, nullptr, {}, false};
      report_.attempt([&] {
        check_name(setting.name, where);
        setting.value = setting_value(*entry.value, entry.key->loc, setting.name.text);
      });
      for (const NodePtr& old : entry.replaced) {
        try {
          setting.mentioned.push_back(setting_value(*old, entry.key->loc, setting.name.text));
        } catch (const ir::UserError&) {  // replaced, so it does no harm
        }
      }
      out.push_back(std::move(setting));
    }
  }

  static ir::ExprPtr setting_value(const Node& node, ir::Loc key, const std::string& name) {
    if (node.kind == NodeKind::list) {
      auto list = std::make_shared<ir::Expr>();
      list->kind = ir::ExprKind::list;
      list->loc = node.loc;
      for (const NodePtr& item : node.items) list->args.push_back(setting_value(*item, key, name));
      return list;
    }
    if (node.kind != NodeKind::scalar || node.plain || node.mark == '|' || node.mark == '>') return expression(node, key, name);
    refuse_quoted_number(node, name);
    auto text = std::make_shared<ir::Expr>();
    text->kind = ir::ExprKind::text;
    text->loc = node.loc;
    text->text = node.text;
    return text;
  }

  static void refuse_quoted_number(const Node& node, const std::string& name) {
    ir::ExprPtr inside;
    try {
      inside = ir::parse_expr(node.text, node.loc);
    } catch (const ir::UserError&) {
      return;
    }
    const ir::Expr& e = inside->kind == ir::ExprKind::unary ? *inside->args[0] : *inside;
    if (e.kind != ir::ExprKind::number && e.kind != ir::ExprKind::boolean) return;
    throw ir::UserError(node.loc, fmt::format("{}: \"{}\" in quotes is text; write {} without quotes", name, node.text,
                                              e.kind == ir::ExprKind::number ? "a number" : "a boolean"));
  }

  /// Text that is an expression over config keys was meant as one.
  void quoted_expressions() {
    for (Setting& setting : out_.config) {
      if (!setting.value || setting.value->kind != ir::ExprKind::text || !is_expression(setting.value->text)) continue;
      report_.error(setting.value->loc, fmt::format("{} is an expression; write it without quotes", setting.name.text));
      setting.value = nullptr;
    }
  }

  bool is_expression(const std::string& text) const {
    try {
      const ir::ExprPtr inside = ir::parse_expr(text, {});
      const std::vector<std::string> used = ir::names_in(*inside);
      const bool compound = inside->kind != ir::ExprKind::name && inside->kind != ir::ExprKind::text;
      return compound &&
             std::any_of(used.begin(), used.end(), [&](const std::string& name) { return out_.find_config(name) != nullptr; });
    } catch (const ir::UserError&) {
      return false;
    }
  }

  // ------------------------------------------------------------ inputs, params, graph

  void inputs() {
    const Node* map = section("inputs", NodeKind::map, "a map NAME: TYPE [in RANGE]");
    for (const NodeEntry& entry : map ? map->entries : std::vector<NodeEntry>()) {
      InputText input;
      input.name = {entry.key->text, entry.key->loc};
      const bool fine = report_.attempt([&] {
        check_name(input.name, "inputs");
        Piece rest;
        input.type = parse_type(expression_piece(*entry.value, entry.key->loc, input.name.text), rest);
        if (!rest.empty()) range(rest, input);
      });
      out_.main.in.push_back(input.name);
      if (fine) out_.inputs.push_back(std::move(input));
    }
  }

  static void range(Piece rest, InputText& input) {
    const size_t dots = find_outside(rest.text, "..");
    if (!rest.text.starts_with("in ") || dots == std::string_view::npos) {
      throw ir::UserError(rest.loc, "after the type `in LOW .. HIGH [or VALUE]` is expected");
    }
    if (input.type.dtype != ir::DType::i32 && input.type.dtype != ir::DType::i64) {
      throw ir::UserError(rest.loc, "only integer inputs have a range");
    }
    const Piece low = rest.sub(3, dots);
    input.lo = ir::parse_expr(low.text, low.loc);
    const std::vector<Piece> parts = split_outside(rest.sub(dots + 2), "or");
    for (size_t i = 0; i < parts.size(); ++i) {
      const ir::ExprPtr value = ir::parse_expr(parts[i].text, parts[i].loc);
      if (i == 0) {
        input.hi = value;
      } else {
        input.also.push_back(value);
      }
    }
  }

  void params(const Node& map, BlockText& block) {
    for (const NodeEntry& entry : map.entries) {
      ParamText param;
      param.name = {entry.key->text, entry.key->loc};
      report_.attempt([&] {
        if (!is_dotted_name(param.name.text)) {
          throw ir::UserError(param.name.loc,
                              fmt::format("`{}` is not a parameter's name (words joined by dots)", param.name.text));
        }
        if (is_reserved(param.name.text)) {
          throw ir::UserError(param.name.loc, fmt::format("`{}` has a meaning of its own in the language", param.name.text));
        }
        parameter(expression_piece(*entry.value, entry.key->loc, param.name.text), param);
      });
      block.params.push_back(std::move(param));
    }
  }

  static void parameter(Piece line, ParamText& param) {
    Piece rest;
    param.type = parse_type(line, rest);
    if (!ir::is_float(param.type.dtype)) throw ir::UserError(line.loc, "a parameter is trained, so it is f32 (or f16, bf16)");
    if (!rest.text.starts_with("=")) {
      const ir::Loc at = rest.empty() ? line.loc : rest.loc;
      throw ir::UserError(
          at, fmt::format("the initial value is missing: {}: TYPE = INITIAL VALUE [when CONDITION]", param.name.text));
    }
    const Piece value = split_when(rest.sub(1), param.when);
    param.init = ir::parse_expr(value.text, value.loc);
  }

  void statements(const Node& list, BlockText& block) {
    for (const NodePtr& item : list.items) {
      if (item->kind != NodeKind::map || item->entries.empty() || item->flow) {
        report_.error(item->loc, "a statement is written NAME[, NAME]: EXPRESSION [when CONDITION]");
        continue;
      }
      if (item->entries.size() > 1) report_.error(item->entries[1].key->loc, "each statement begins with its own `- `");
      for (const NodeEntry& entry : item->entries) block.graph.push_back(statement(entry));
    }
  }

  Statement statement(const NodeEntry& entry) {
    Statement statement;
    report_.attempt([&] { statement.names = names(*entry.key, entry.key->loc, "the names on the left"); });
    report_.attempt([&] {
      const Piece line = split_when(expression_piece(*entry.value, entry.key->loc, entry.key->text), statement.when);
      statement.expr = ir::parse_expr(line.text, line.loc);
    });
    return statement;
  }

  // ------------------------------------------------------------ blocks, stack

  void block(const NodeEntry& entry) {
    BlockText block;
    block.name = {entry.key->text, entry.key->loc};
    report_.attempt([&] { check_name(block.name, "blocks"); });
    const Node& node = *entry.value;
    if (node.kind != NodeKind::map) {
      report_.error(entry.key->loc, "a block is a map with in, out and graph");
      out_.blocks.push_back(std::move(block));
      return;
    }
    check_keys(node, fmt::format("the block {}", block.name.text), {"in", "out", "use", "let", "params", "graph"}, report_);
    with(node, "in", [&](const NodeEntry& e) { block.in = names(*e.value, e.key->loc, "in"); });
    with(node, "out", [&](const NodeEntry& e) { block.out = names(*e.value, e.key->loc, "out"); });
    if (const Node* map = get(node, "use", NodeKind::map, "a map PREFIX: BLOCK", report_)) {
      for (const NodeEntry& e : map->entries) {
        report_.attempt([&] {
          const Word prefix{e.key->text, e.key->loc};
          check_name(prefix, "use");
          block.use.push_back({prefix, text(*e.value, e.key->loc, "use")});
        });
      }
    }
    if (const Node* map = get(node, "let", NodeKind::map, "a map NAME: EXPRESSION", report_)) {
      for (const NodeEntry& e : map->entries) {
        LetText let{{e.key->text, e.key->loc}, nullptr};
        report_.attempt([&] {
          check_name(let.name, "let");
          let.value = expression(*e.value, e.key->loc, let.name.text);
        });
        block.lets.push_back(std::move(let));
      }
    }
    if (const Node* map = get(node, "params", NodeKind::map, "a map NAME: TYPE = INITIAL VALUE", report_)) params(*map, block);
    if (const Node* list = get(node, "graph", NodeKind::list, "a list of statements, each begun with `- `", report_)) {
      statements(*list, block);
    }
    for (const std::string_view needed : {"in", "out", "graph"}) {
      if (!node.find(needed)) report_.error(entry.key->loc, fmt::format("the block {} has no `{}`", block.name.text, needed));
    }
    out_.blocks.push_back(std::move(block));
  }

  void stack() {
    const Node* map = section("stack", NodeKind::map, "a map with blocks, prefix and carry");
    if (!map) return;
    check_keys(*map, "stack", {"blocks", "prefix", "carry"}, report_);
    StackText stack;
    stack.loc = root_.find("stack")->key->loc;
    with(*map, "blocks", [&](const NodeEntry& e) {
      for (const NodePtr& old : e.replaced) {
        if (old->exact) report_.attempt([&] { out_.replaced_stacks.push_back(ir::parse_expr(old->text, old->loc)); });
      }
      stack.blocks = expression(*e.value, e.key->loc, "stack.blocks");
    });
    with(*map, "carry", [&](const NodeEntry& e) { stack.carry = names(*e.value, e.key->loc, "carry"); });
    with(*map, "prefix", [&](const NodeEntry& e) {
      const Word prefix = models::text(*e.value, e.key->loc, "prefix");
      const size_t layer = prefix.text.find("{layer}");
      const std::string_view text = prefix.text;
      if (layer == std::string::npos || !is_dotted_name(fmt::format("{}0{}", text.substr(0, layer), text.substr(layer + 7)))) {
        throw ir::UserError(prefix.loc, "the prefix is a dotted name with {layer} in it, for example blocks.{layer}");
      }
      stack.prefix = prefix;
    });
    for (const std::string_view needed : {"blocks", "prefix", "carry"}) {
      if (!map->find(needed)) report_.error(stack.loc, fmt::format("stack has no `{}`", needed));
    }
    if (stack.blocks && !stack.prefix.text.empty() && !stack.carry.empty()) {
      out_.stack = std::move(stack);
    } else {
      out_.incomplete = true;
    }
  }

  // ------------------------------------------------------------ optimizer, precision, checkpoint

  void optimizer() {
    const Node* map = section("optimizer", NodeKind::map, "a map with rule, schedule, clip and groups");
    if (!map) return;
    check_keys(*map, "optimizer", {"rule", "schedule", "clip", "groups"}, report_);
    OptimizerText out;
    out.loc = root_.find("optimizer")->key->loc;
    const std::pair<std::string_view, Word*> lines[] = {{"rule", &out.rule}, {"schedule", &out.schedule}, {"clip", &out.clip}};
    for (const auto& [key, word] : lines) {
      with(*map, key, [&, target = word](const NodeEntry& e) {
        const Piece line = expression_piece(*e.value, e.key->loc, e.key->text);
        ir::parse_expr(line.text, line.loc);
        *target = {std::string(line.text), line.loc};
      });
    }
    if (!map->find("rule")) report_.error(out.loc, "optimizer has no `rule`, for example adamw(lr, beta1, beta2, eps, decay)");
    const Node* groups = get(*map, "groups", NodeKind::list, "a list of {match: PATTERN, lr: FACTOR, decay: FACTOR}", report_);
    for (const NodePtr& item : groups ? groups->items : std::vector<NodePtr>()) {
      if (!report_.attempt([&] { out.groups.push_back(group(*item)); })) out.groups_complete = false;
    }
    if (!map->find("groups"))
      report_.error(out.loc, "optimizer has no `groups`; one for all is - {match: \"*\", lr: 1, decay: 0}");
    out_.optimizer = std::move(out);
  }

  GroupText group(const Node& node) {
    if (node.kind != NodeKind::map) throw ir::UserError(node.loc, "a group is {match: PATTERN, lr: FACTOR, decay: FACTOR}");
    check_keys(node, "a group", {"match", "min_rank", "lr", "decay"}, report_);
    GroupText group;
    group.match = {"", node.loc};
    if (const NodeEntry* e = node.find("match")) group.match = text(*e->value, e->key->loc, "match");
    if (group.match.text.empty()) throw ir::UserError(node.loc, "this group has no `match`");
    const auto factor = [&](std::string_view key, double fallback) {
      const NodeEntry* e = node.find(key);
      if (!e) return fallback;
      const double value = number(*e->value, e->key->loc, key);
      if (value < 0) throw ir::UserError(e->value->loc, fmt::format("{} is a factor of at least 0, not {}", key, value));
      return value;
    };
    group.lr = factor("lr", 1);
    group.decay = factor("decay", 1);
    const double rank = factor("min_rank", 0);
    group.min_rank = static_cast<int64_t>(std::min(rank, 100.0));
    if (rank != static_cast<double>(group.min_rank))
      throw ir::UserError(node.find("min_rank")->value->loc, "min_rank is a whole number");
    return group;
  }

  void precision() {
    const Node* map = section("precision", NodeKind::map, "a map with residual and pin");
    if (!map) return;
    check_keys(*map, "precision", {"residual", "pin"}, report_);
    with(*map, "pin", [&](const NodeEntry& e) { out_.pin = texts(*e.value, e.key->loc, "pin"); });
    with(*map, "residual", [&](const NodeEntry& e) {
      const Word dtype = text(*e.value, e.key->loc, "residual");
      if (dtype.text != "f32") throw ir::UserError(dtype.loc, "residual is f32, or left out for the compute dtype");
      out_.residual_f32 = true;
    });
  }

  void checkpoint() {
    const Node* map = section("checkpoint", NodeKind::map, "a map with ignore");
    if (!map) return;
    check_keys(*map, "checkpoint", {"ignore"}, report_);
    with(*map, "ignore", [&](const NodeEntry& e) {
      for (const Word& word : texts(*e.value, e.key->loc, "ignore")) out_.checkpoint_ignore.push_back(word.text);
    });
  }

  const Node& root_;
  Report& report_;
  Description out_;
};

template <class List>
auto* find_in(List& list, std::string_view name) {
  const auto it = std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.name.text == name; });
  return it == list.end() ? nullptr : &*it;
}

}  // namespace

Description read_description(const Node& root, const std::string& file, Report& report) { return Reader(root, report).run(file); }

Setting* Description::find_setting(std::string_view key) {
  Setting* setting = find_in(config, key);
  return setting ? setting : find_in(train, key);
}
const Setting* Description::find_config(std::string_view key) const { return find_in(config, key); }
const Setting* Description::find_train(std::string_view key) const { return find_in(train, key); }
const BlockText* Description::find_block(std::string_view key) const { return find_in(blocks, key); }
const LetText* BlockText::find_let(std::string_view key) const { return find_in(lets, key); }
const ParamText* BlockText::find_param(std::string_view key) const { return find_in(params, key); }
const UseText* BlockText::find_use(std::string_view key) const {
  const auto it = std::find_if(use.begin(), use.end(), [&](const UseText& u) { return u.prefix.text == key; });
  return it == use.end() ? nullptr : &*it;
}

}  // namespace ingot::models
