#include "ir/graph/graph_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/base/error.h"
#include "ir/graph/builder.h"
#include "ir/graph/text_form.h"
#include "ir/graph/text_reads.h"

namespace ingot::ir {
namespace {

constexpr int kDeepestRegion = 16;
constexpr Level kLevels[] = {Level::model, Level::train, Level::core, Level::fused};
constexpr Phase kPhases[] = {Phase::forward, Phase::recompute, Phase::backward, Phase::optimizer};

const OpDef& find_op(const Lexer& lexer, const Token& token, const std::string& name) {
  const OpDef* def = op_table().find(name);
  if (!def) lexer.fail_unknown(token, fmt::format("unknown op '{}'", name), op_table().names());
  return *def;
}

/// Inference blames the place an op came from; a mistake in this text belongs here.
[[noreturn]] void rethrow_at(const UserError& error, const Loc& here) {
  std::vector<Diagnostic> list = error.diagnostics();
  for (Diagnostic& diagnostic : list) {
    if (diagnostic.loc.known() && !(diagnostic.loc == here)) diagnostic.notes.push_back({diagnostic.loc, "the op was made here"});
    diagnostic.loc = here;
  }
  throw UserError(std::move(list));
}

}  // namespace

GraphParser::Header GraphParser::header(std::string default_name, Level default_level) {
  Header header{std::move(default_name), default_level};
  if (lexer_.accept("@")) header.name = lexer_.name("the name of the graph");
  if (!lexer_.accept("at")) return header;
  const Token token = lexer_.peek();
  const std::string name = lexer_.word("a level (model, train, core, fused)");
  std::vector<std::string> names;
  for (Level level : kLevels) {
    names.emplace_back(level_name(level));
    if (name == level_name(level)) {
      header.level = level;
      return header;
    }
  }
  lexer_.fail_unknown(token, fmt::format("unknown level '{}' (model, train, core, fused)", name), names);
}

Graph GraphParser::graph() {
  Header head = header("main", Level::model);
  Graph graph(head.name, head.level);
  lexer_.expect("{", "to begin the graph");
  statements(graph);
  lexer_.expect("}", "to end the graph");
  return graph;
}

Graph GraphParser::bare(Level level) {
  Graph graph("main", level);
  statements(graph);
  if (!lexer_.at_end()) lexer_.fail_expected("a statement");
  return graph;
}

void GraphParser::statements(Graph& graph) {
  while (!lexer_.at("}") && !lexer_.at("yield") && !lexer_.at_end()) statement(graph);
}

void GraphParser::statement(Graph& graph) {
  if (lexer_.accept("output")) return output(graph);
  if (lexer_.accept("update")) return update(graph);
  const Phase in_phase = phase();
  if (lexer_.at(TokenKind::value)) return op(graph, in_phase);
  if (lexer_.at("input") || (lexer_.at(TokenKind::word) && role_from_name(lexer_.peek().text))) {
    return declaration(graph, in_phase);
  }
  if (!lexer_.at(TokenKind::word)) lexer_.fail_expected("a statement");
  lexer_.fail_unknown(lexer_.peek(), fmt::format("expected a statement, found '{}'", lexer_.peek().text),
                      {"input", "param", "state", "hyper", "compute", "output", "update", "backward", "recompute", "optimizer"});
}

Phase GraphParser::phase() {
  for (Phase phase : kPhases) {
    if (lexer_.accept(phase_name(phase))) return phase;
  }
  return Phase::forward;
}

void GraphParser::check_new(const Graph& graph, const Token& token, const std::string& name) const {
  if (name.empty()) lexer_.fail(token, "a value needs a name");
  const ValueId other = graph.find(name);
  if (other == kNone) return;
  throw UserError(lexer_.loc(token), fmt::format("{} is made twice; a name stands for one value", value_text(name)),
                  {{graph.maker(other).loc, fmt::format("{} is made here first", value_text(name))}});
}

void GraphParser::check_level(const Graph& graph, const OpDef& def, const Token& token) {
  if (def.levels.allows(graph.level())) return;
  refused_level_ = true;
  std::string legal;
  for (Level level : kLevels) {
    if (def.levels.allows(level)) legal.append(legal.empty() ? "" : ", ").append(level_name(level));
  }
  lexer_.fail(token, fmt::format("{} is not legal at level {} (legal at {})", def.name, level_name(graph.level()), legal));
}

const Variable* GraphParser::declared(const std::string& name, const Token& token) const {
  if (!module_) return nullptr;
  if (const Variable* variable = module_->find_variable(name)) return variable;
  std::vector<std::string> names;
  for (const Variable& variable : module_->variables) names.push_back(variable.name);
  lexer_.fail_unknown(token, fmt::format("variable {} is not declared before this graph", value_text(name)), names);
}

void GraphParser::check_read(const Attrs& attrs, const Type& type, const Token& token) const {
  const Variable* variable = declared(attrs.text("name"), token);
  if (!variable) return;
  const std::string name = value_text(variable->name);
  const std::vector<Note> notes = {{variable->loc, fmt::format("{} is declared here", name)}};
  if (variable->type != type) {
    throw UserError(lexer_.loc(token),
                    fmt::format("{} is read as {}, but it is declared as {}", name, type.text(), variable->type.text()), notes);
  }
  if (attrs.text("role") != variable_role_name(variable->role)) {
    throw UserError(lexer_.loc(token),
                    fmt::format("{} is read as a {}, but it is declared as a {}", name, attrs.text("role"),
                                variable_role_name(variable->role)),
                    notes);
  }
}

/// input %x: T, param %w: T, ...
void GraphParser::declaration(Graph& graph, Phase phase) {
  const Token keyword = lexer_.take();
  const Token token = lexer_.peek();
  std::string name = lexer_.value_name("a %name");
  check_new(graph, token, name);
  lexer_.expect(":", "and the type");
  Type type = read_type(lexer_);
  Op op;
  op.phase = phase;
  op.loc = read_loc(lexer_, lexer_.loc(keyword));
  if (keyword.text == "input") {
    op.def = &op_def("input");
  } else {
    op.def = &op_def("variable");
    op.attrs.set("name", name);
    op.attrs.set("role", std::string(keyword.text));
    check_read(op.attrs, type, token);
  }
  check_level(graph, *op.def, keyword);
  graph.append(std::move(op), {std::move(name)}, {std::move(type)});
}

GraphParser::Names GraphParser::result_names(Graph& graph) {
  Names names;
  do {
    names.tokens.push_back(lexer_.peek());
    names.names.push_back(lexer_.value_name("a %name"));
    check_new(graph, names.tokens.back(), names.names.back());
    if (std::count(names.names.begin(), names.names.end(), names.names.back()) > 1) {
      lexer_.fail(names.tokens.back(), fmt::format("{} is made twice by one op", value_text(names.names.back())));
    }
  } while (lexer_.accept(","));
  return names;
}

ValueId GraphParser::value(const Graph& graph) {
  const Token token = lexer_.peek();
  const std::string name = lexer_.value_name("a %value");
  const ValueId id = graph.find(name);
  if (id != kNone) return id;
  std::vector<std::string> names;
  for (const Value& known : graph.values()) names.push_back(known.name);
  lexer_.fail_unknown(token, fmt::format("{} is not made before it is used here", value_text(name)), names);
}

std::vector<ValueId> GraphParser::operands(const Graph& graph) {
  std::vector<ValueId> list;
  lexer_.expect("(", "and the operands");
  while (!lexer_.at(")")) {
    if (!list.empty()) lexer_.expect(",", "or ')' behind an operand");
    list.push_back(lexer_.accept("none") ? kNone : value(graph));
  }
  lexer_.expect(")", "to end the operands");
  return list;
}

std::vector<Type> GraphParser::types(size_t count) {
  std::vector<Type> list;
  lexer_.expect(":", count == 1 ? "and the type of the result" : "and the types of the results");
  do {
    list.push_back(read_type(lexer_));
  } while (lexer_.accept(","));
  if (list.size() != count)
    lexer_.fail_expected(fmt::format("{} types, one for each name on the left; {} are written", count, list.size()));
  return list;
}

/// %a, %b = name(%x, none) {attr: value} (%p: T) { region }: T, T loc(...)
void GraphParser::op(Graph& graph, Phase phase) {
  Names names = result_names(graph);
  lexer_.expect("=", "and the op");
  const Token op_token = lexer_.peek();
  const std::string op_name = lexer_.word("the name of an op");
  const OpDef& def = find_op(lexer_, op_token, op_name);
  check_level(graph, def, op_token);
  Op op;
  op.def = &def;
  op.phase = phase;
  op.operands = operands(graph);
  op.attrs = read_attrs(lexer_, def);
  const bool has_region = std::holds_alternative<RegionLowering>(def.lowering);
  if (has_region) op.region = region(graph, op.operands, op_token);
  std::vector<Type> written = types(names.names.size());
  op.loc = read_loc(lexer_, lexer_.loc(op_token));
  append(graph, std::move(op), std::move(names), std::move(written), op_token);
}

void GraphParser::append(Graph& graph, Op op, Names names, std::vector<Type> types, const Token& op_token) {
  const OpDef& def = *op.def;
  std::vector<Type> made;
  if (op.region) {
    for (const Output& output : op.region->outputs()) made.push_back(op.region->type(output.value));
  }
  const size_t count = op.region ? made.size() : def.results.size();
  if (names.names.size() != count) {
    lexer_.fail(names.tokens[0],
                fmt::format("{} has {} result{}, here {} name{} on the left", def.name, count, count == 1 ? "" : "s",
                            names.names.size(), names.names.size() == 1 ? " stands" : "s stand"));
  }
  auto check_types = [&](auto type_of) {
    for (size_t i = 0; i < count; ++i) {
      if (types[i] == type_of(i)) continue;
      lexer_.fail(names.tokens[i], fmt::format("{} is written as {}, but {} makes {}", value_text(names.names[i]),
                                               types[i].text(), def.name, type_of(i).text()));
    }
  };
  if (std::holds_alternative<SourceLowering>(def.lowering)) {
    if (op.attrs.has("name") && op.attrs.has("role")) check_read(op.attrs, types[0], op_token);
    graph.append(std::move(op), std::move(names.names), std::move(types));
  } else if (op.region) {
    check_types([&](size_t i) -> const Type& { return made[i]; });
    graph.append(std::move(op), std::move(names.names), std::move(made));
  } else {
    Builder builder(graph);
    builder.set_loc(op.loc);
    builder.set_phase(op.phase);
    try {
      builder.op(def, std::move(op.operands), std::move(op.attrs), names.names);
    } catch (const UserError& error) {
      rethrow_at(error, lexer_.loc(op_token));
    }
    check_types([&](size_t i) -> const Type& { return graph.type(graph.ops().back().results[i]); });
  }
}

/// (%a: T, ...) { statements; yield %x, ... }
std::shared_ptr<const Graph> GraphParser::region(const Graph& outer, const std::vector<ValueId>& operands,
                                                 const Token& op_token) {
  if (++depth_ > kDeepestRegion) lexer_.fail(op_token, fmt::format("regions are nested more than {} deep", kDeepestRegion));
  Header head = header("main", outer.level());
  auto region = std::make_shared<Graph>(head.name, head.level);
  lexer_.expect("(", "and the inputs of the region");
  while (!lexer_.at(")")) {
    if (!region->ops().empty()) lexer_.expect(",", "or ')' in the inputs of the region");
    const Phase in_phase = phase();
    const Token token = lexer_.peek();
    std::string name = lexer_.value_name("a %name");
    check_new(*region, token, name);
    lexer_.expect(":", "and the type");
    Type type = read_type(lexer_);
    Op input;
    input.def = &op_def("input");
    input.phase = in_phase;
    input.loc = read_loc(lexer_, lexer_.loc(token));
    region->append(std::move(input), {std::move(name)}, {std::move(type)});
  }
  lexer_.expect(")", "to end the inputs of the region");
  lexer_.expect("{", "to begin the region");
  statements(*region);
  yield(*region);
  lexer_.expect("}", "to end the region");
  --depth_;

  std::vector<const Value*> inputs;
  for (const Op& op : region->ops()) {
    if (op.def->name == "input") inputs.push_back(&region->value(op.results[0]));
  }
  if (inputs.size() != operands.size()) {
    lexer_.fail(op_token, fmt::format("the region has {} inputs for {} operands", inputs.size(), operands.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (operands[i] == kNone || outer.type(operands[i]) == inputs[i]->type) continue;
    lexer_.fail(op_token,
                fmt::format("input {} of the region is {}, but {} is {}", value_text(inputs[i]->name), inputs[i]->type.text(),
                            value_text(outer.value(operands[i]).name), outer.type(operands[i]).text()));
  }
  return region;
}

void GraphParser::yield(Graph& region) {
  lexer_.expect("yield", "as the last statement of the region");
  do {
    const Token token = lexer_.peek();
    const ValueId id = value(region);
    region.add_output({std::to_string(region.outputs().size()), id, read_loc(lexer_, lexer_.loc(token))});
  } while (lexer_.accept(","));
}

void GraphParser::output(Graph& graph) {
  const Token token = lexer_.peek();
  const std::string name = lexer_.name("the name of the output");
  if (graph.find_output(name)) lexer_.fail(token, fmt::format("output '{}' is named twice", name));
  lexer_.expect("=", "and a value");
  const ValueId id = value(graph);
  graph.add_output({name, id, read_loc(lexer_, lexer_.loc(token))});
}

void GraphParser::update(Graph& graph) {
  const Token token = lexer_.peek();
  const std::string name = lexer_.value_name("the %variable to update");
  const Variable* variable = declared(name, token);
  for (const Update& other : graph.updates()) {
    if (other.variable == name) lexer_.fail(token, fmt::format("{} is updated twice", value_text(name)));
  }
  lexer_.expect("=", "and a value");
  const ValueId id = value(graph);
  if (variable && variable->type != graph.type(id)) {
    lexer_.fail(token, fmt::format("{} is {}, but its new value {} is {}", value_text(name), variable->type.text(),
                                   value_text(graph.value(id).name), graph.type(id).text()));
  }
  graph.add_update({name, id, read_loc(lexer_, lexer_.loc(token))});
}

}  // namespace ingot::ir
