#include <string>

#include "ir/base/lexer.h"
#include "ir/base/text.h"
#include "ir/graph/op_def.h"
#include "ir/graph/text.h"
#include "ir/graph/text_form.h"

namespace ingot::ir {

bool is_declaration_form(const Graph& graph, const Op& op) {
  if (!lowering_as<SourceLowering>(op) || !op.operands.empty() || op.results.size() != 1 || op.region) return false;
  const std::string& name = graph.value(op.results[0]).name;
  if (op.def->name == "input") return op.attrs.empty();
  if (op.def->name != "variable") return false;
  const Attr* variable = op.attrs.find("name");
  const Attr* role = op.attrs.find("role");
  if (op.attrs.end() - op.attrs.begin() != 2 || !variable || !role) return false;
  const std::string* variable_text = std::get_if<std::string>(variable);
  const std::string* role_text = std::get_if<std::string>(role);
  return variable_text && role_text && *variable_text == name && role_from_name(*role_text);
}

std::optional<VariableRole> role_from_name(std::string_view name) {
  for (VariableRole role : {VariableRole::param, VariableRole::state, VariableRole::hyper, VariableRole::compute}) {
    if (name == variable_role_name(role)) return role;
  }
  return std::nullopt;
}

namespace {

class Printer {
 public:
  explicit Printer(PrintOptions options) : options_(options) {}
  std::string take() { return std::move(out_); }

  void module(const Module& module) {
    line("module ", name_text(module.name));
    for (const auto& [key, value] : module.info) line("info ", name_text(key), " = ", quoted(value));
    for (const Variable& variable : module.variables) declare(variable);
    for (const InputRange& range : module.ranges) declare(range);
    optimizer("rule", module.optimizer.rule, module.optimizer.rule_loc);
    optimizer("schedule", module.optimizer.schedule, module.optimizer.schedule_loc);
    optimizer("clip", module.optimizer.clip, module.optimizer.clip_loc);
    for (const std::string& pattern : module.precision.pin) line("pin ", quoted(pattern));
    for (const std::string& pattern : module.checkpoint_ignore) line("checkpoint_ignore ", quoted(pattern));
    for (const Graph& g : module.graphs) {
      out_ += '\n';
      graph(g);
    }
  }

  void graph(const Graph& graph) {
    line("graph @", name_text(graph.name()), " at ", level_name(graph.level()), " {");
    ++depth_;
    for (const Op& op : graph.ops()) print_op(graph, op);
    for (const Output& output : graph.outputs()) {
      begin("output ", name_text(output.name), " = ", value_text(graph.value(output.value).name));
      end(output.loc);
    }
    for (const Update& update : graph.updates()) {
      begin("update ", value_text(update.variable), " = ", value_text(graph.value(update.value).name));
      end(update.loc);
    }
    --depth_;
    line("}");
  }

 private:
  template <class... Parts>
  void add(const Parts&... parts) {
    (out_.append(parts), ...);
  }
  template <class... Parts>
  void begin(const Parts&... parts) {
    out_.append(static_cast<size_t>(depth_) * 2, ' ');
    add(parts...);
  }
  template <class... Parts>
  void line(const Parts&... parts) {
    begin(parts...);
    out_ += '\n';
  }
  void end(const Loc& loc) {
    location(loc);
    out_ += '\n';
  }

  /// loc("file":line:col from "origin"); loc(unknown) keeps an unknown place unknown when it is read back.
  void location(const Loc& loc) {
    if (!options_.locations) return;
    add(" loc(", loc.file ? quoted(*loc.file) : std::string("unknown"));
    if (loc.file || loc.line != 0 || loc.col != 0) add(":", std::to_string(loc.line), ":", std::to_string(loc.col));
    if (loc.origin) add(" from ", quoted(*loc.origin));
    out_ += ')';
  }

  void declare(const Variable& variable) {
    begin(variable_role_name(variable.role), " ", value_text(variable.name), ": ", variable.type.text(), " = ",
          quoted(variable.init));
    std::string fields;
    auto field = [&](std::string_view name, const std::string& value) {
      fields.append(fields.empty() ? "" : ", ").append(name).append(": ").append(value);
    };
    if (variable.lr_factor != 1) field("lr", real_text(variable.lr_factor));
    if (variable.decay_factor != 1) field("decay", real_text(variable.decay_factor));
    if (!variable.trainable) field("trainable", "false");
    if (!variable.saved) field("saved", "false");
    if (!fields.empty()) add(" {", fields, "}");
    end(variable.loc);
  }

  void declare(const InputRange& range) {
    begin("range ", name_text(range.input), " ", std::to_string(range.lo), "..", std::to_string(range.hi));
    if (!range.also.empty()) add(" or ", attr_text(Attr(range.also)));
    end(range.loc);
  }

  void optimizer(std::string_view field, const std::string& text, const Loc& loc) {
    if (text.empty() && loc == Loc{}) return;
    begin("optimizer ", field, " ", quoted(text));
    end(loc);
  }

  void print_op(const Graph& graph, const Op& op) {
    begin(phase_prefix(op.phase));
    if (is_declaration_form(graph, op)) {
      declaration(graph, op);
      out_ += '\n';
      return;
    }
    for (size_t i = 0; i < op.results.size(); ++i) add(i ? ", " : "", value_text(graph.value(op.results[i]).name));
    add(" = ", op.def->name, "(");
    for (size_t i = 0; i < op.operands.size(); ++i) {
      add(i ? ", " : "", op.operands[i] == kNone ? std::string("none") : value_text(graph.value(op.operands[i]).name));
    }
    out_ += ')';
    attributes(op.attrs);
    if (op.region) region(*op.region, graph.level());
    for (size_t i = 0; i < op.results.size(); ++i) add(i ? ", " : ": ", graph.type(op.results[i]).text());
    end(op.loc);
  }

  void declaration(const Graph& graph, const Op& op) {
    const Value& value = graph.value(op.results[0]);
    const bool is_input = op.def->name == "input";
    add(is_input ? std::string_view("input") : std::string_view(op.attrs.text("role")));
    add(" ", value_text(value.name), ": ", value.type.text());
    location(op.loc);
  }

  void attributes(const Attrs& attrs) {
    if (attrs.empty()) return;
    std::string_view separator = " {";
    for (const auto& [name, value] : attrs) {
      add(separator, name_text(name), ": ", attr_text(value));
      separator = ", ";
    }
    out_ += '}';
  }

  /// The leading inputs stand in the parameter list; the name and level are written when they are not the usual ones.
  void region(const Graph& region, Level outer) {
    if (region.name() != "main" || region.level() != outer) {
      add(" @", name_text(region.name()), " at ", level_name(region.level()));
    }
    out_ += " (";
    size_t first = 0;
    while (first < region.ops().size() && is_declaration_form(region, region.ops()[first]) &&
           region.ops()[first].def->name == "input") {
      const Op& op = region.ops()[first];
      const Value& value = region.value(op.results[0]);
      add(first ? ", " : "", phase_prefix(op.phase), value_text(value.name), ": ", value.type.text());
      location(op.loc);
      ++first;
    }
    out_ += ") {\n";
    ++depth_;
    for (size_t i = first; i < region.ops().size(); ++i) print_op(region, region.ops()[i]);
    begin("yield");
    for (size_t i = 0; i < region.outputs().size(); ++i) {
      add(i ? ", " : " ", value_text(region.value(region.outputs()[i].value).name));
      location(region.outputs()[i].loc);
    }
    out_ += '\n';
    --depth_;
    begin("}");
  }

  static std::string phase_prefix(Phase phase) {
    return phase == Phase::forward ? std::string() : std::string(phase_name(phase)) + " ";
  }

  PrintOptions options_;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

std::string print(const Module& module, PrintOptions options) {
  Printer printer(options);
  printer.module(module);
  return printer.take();
}

std::string print(const Graph& graph, PrintOptions options) {
  Printer printer(options);
  printer.graph(graph);
  return printer.take();
}

}  // namespace ingot::ir
