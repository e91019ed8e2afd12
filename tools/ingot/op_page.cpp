#include "tools/ingot/op_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ingot::tools {
namespace {

using ir::OpDef;

constexpr size_t kWidth = 100;

const char* combine_text(ir::Combine combine) {
  return combine == ir::Combine::sum ? "sum" : combine == ir::Combine::max ? "max" : "min";
}

struct LoweringText {
  std::string operator()(const std::monostate&) const { return "none"; }
  std::string operator()(const ir::SourceLowering&) const { return "source: comes from outside"; }
  std::string operator()(const ir::ScalarLowering& l) const { return fmt::format("scalar: {}", fmt::join(l.bodies, "; ")); }
  std::string operator()(const ir::ReduceLowering& l) const { return fmt::format("reduce ({})", combine_text(l.combine)); }
  std::string operator()(const ir::ScanLowering& l) const { return fmt::format("scan ({})", combine_text(l.combine)); }
  std::string operator()(const ir::ViewLowering&) const { return "view: renames elements, computes nothing"; }
  std::string operator()(const ir::PackLowering&) const { return "pack: operands written side by side"; }
  std::string operator()(const ir::GenerateLowering&) const { return "generate: made from attributes alone"; }
  std::string operator()(const ir::GatherLowering&) const { return "gather"; }
  std::string operator()(const ir::PutLowering&) const { return "put"; }
  std::string operator()(const ir::GemmLowering&) const { return "library gemm"; }
  std::string operator()(const ir::KernelLowering& l) const { return fmt::format("kernel \"{}\"", l.kernel); }
  std::string operator()(const ir::DecomposeLowering&) const { return "decompose: built from simpler ops"; }
  std::string operator()(const ir::RegionLowering&) const { return "region: its ops are one list of launches"; }
};

std::string lowering_text(const OpDef& def) { return std::visit(LoweringText{}, def.lowering); }

std::vector<std::string> level_names(const OpDef& def) {
  std::vector<std::string> names;
  for (ir::Level level : {ir::Level::model, ir::Level::train, ir::Level::core, ir::Level::fused}) {
    if (def.levels.allows(level)) names.emplace_back(ir::level_name(level));
  }
  return names;
}

std::string gradient_text(const OpDef& def) {
  if (def.gradient_is_zero) return "zero by definition";
  return def.gradient ? "yes" : "none: an error on the way to the loss";
}

std::string attr_value_text(const ir::AttrDef& attr) {
  if (attr.required) return "required";
  return attr.unset_ok ? "may be left out" : "default " + ir::attr_text(attr.fallback);
}

std::string operand_note(const ir::OperandDef& operand) {
  if (operand.port) return " (port, by keyword, optional)";
  if (operand.variadic) return " (any number)";
  return operand.optional ? " (optional)" : "";
}

/// Words of `text` in lines of kWidth, each begun with `indent` blanks; the first line stands behind what is there already.
std::string wrapped(const std::string& text, size_t indent, size_t used) {
  std::string out;
  size_t column = used;
  bool first = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!first && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    first = false;
  }
  return out;
}

/// Rows "name  text", the texts under each other.
class Rows {
 public:
  void add(std::string name, std::string text) { rows_.emplace_back(std::move(name), std::move(text)); }
  std::string text() const {
    size_t width = 0;
    for (const auto& [name, text] : rows_) width = std::max(width, std::min<size_t>(name.size(), 24));
    std::string out;
    for (const auto& [name, text] : rows_) {
      const std::string head = fmt::format("  {:<{}}  ", name, width);
      out += head + wrapped(text, width + 4, head.size()) + "\n";
    }
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

void section(std::string& page, const std::string& title, const Rows& rows) {
  const std::string text = rows.text();
  if (!text.empty()) page += fmt::format("\n{}\n{}", title, text);
}

std::string indented(const std::string& text, const std::string& indent) {
  std::string out = indent;
  for (char c : text) {
    out += c;
    if (c == '\n') out += indent;
  }
  while (!out.empty() && (out.back() == ' ' || out.back() == '\n')) out.pop_back();
  return out + "\n";
}

Rows facts(const OpDef& def) {
  Rows rows;
  rows.add("levels", fmt::format("{}", fmt::join(level_names(def), ", ")));
  rows.add("lowering", lowering_text(def));
  rows.add("gradient", gradient_text(def));
  for (const ir::CarryPort& port : def.carry) {
    rows.add("carries",
             fmt::format("`{}` in, `{}` out: a state that goes from one window or token to the next; absent means zeros",
                         port.operand, port.result));
  }
  if (!def.starts.empty())
    rows.add("starts", fmt::format("`{}` takes document starts: a start beats a carried state", def.starts));
  for (const ir::Alias& alias : def.aliases) {
    rows.add("in place", fmt::format("`{}` may be written over `{}`", def.results[static_cast<size_t>(alias.result)].name,
                                     def.operands[static_cast<size_t>(alias.operand)].name));
  }
  if (!def.binary_form.empty()) rows.add("two operands", fmt::format("{}(a, b) means {}(a, b)", def.name, def.binary_form));
  return rows;
}

}  // namespace

std::string op_signature(const OpDef& def) {
  std::vector<std::string> arguments;
  auto add_operand = [&](const ir::OperandDef& operand) {
    arguments.push_back(operand.variadic ? operand.name + "..." : operand.optional ? operand.name + "=none" : operand.name);
  };
  auto add_attr = [&](const ir::AttrDef& attr) {
    arguments.push_back(attr.required   ? attr.name
                        : attr.unset_ok ? attr.name + "=none"
                                        : attr.name + "=" + ir::attr_text(attr.fallback));
  };
  for (const std::string& name : def.positional) {
    const int index = def.operand_index(name);
    if (index >= 0) {
      add_operand(def.operands[static_cast<size_t>(index)]);
    } else if (const ir::AttrDef* attr = def.find_attr(name)) {
      add_attr(*attr);
    }
  }
  for (const ir::OperandDef& operand : def.operands) {
    if (std::find(def.positional.begin(), def.positional.end(), operand.name) == def.positional.end()) add_operand(operand);
  }
  std::vector<std::string> results;
  for (const ir::ResultDef& result : def.results) results.push_back(result.hidden ? "(" + result.name + ")" : result.name);
  return fmt::format("{}({}) -> {}", def.name, fmt::join(arguments, ", "), fmt::join(results, ", "));
}

std::string op_sentence(const OpDef& def) {
  const size_t end = def.summary.find(". ");
  std::string sentence = def.summary.substr(0, end == std::string::npos ? end : end + 1);
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  return sentence;
}

std::string op_page(const OpDef& def) {
  std::string page = op_signature(def) + "\n\n  " + wrapped(def.summary, 2, 2) + "\n";
  Rows operands, attrs, results;
  for (const ir::OperandDef& operand : def.operands) operands.add(operand.name, operand.doc + operand_note(operand));
  for (const ir::AttrDef& attr : def.attrs) {
    std::string note = fmt::format("{} ({}, {}", attr.doc, ir::attr_kind_text(attr.kind), attr_value_text(attr));
    if (!attr.alias.empty()) note += fmt::format("; also called `{}`", attr.alias);
    attrs.add(attr.name, note + ")");
  }
  for (const ir::ResultDef& result : def.results) {
    results.add(result.name, result.doc + (result.hidden ? " (only when as many names stand on the left)" : ""));
  }
  section(page, "operands", operands);
  section(page, "attributes", attrs);
  section(page, "results", results);
  section(page, "facts", facts(def));
  if (!def.examples.empty()) page += "\nexamples\n";
  for (size_t i = 0; i < def.examples.size(); ++i) page += (i ? "\n" : "") + indented(def.examples[i].text, "  ");
  if (!def.rejects.empty()) page += "\nrefused\n";
  for (size_t i = 0; i < def.rejects.size(); ++i) {
    page += (i ? "\n" : "") + indented(def.rejects[i].text, "  ") + "    -> " + def.rejects[i].message + "\n";
  }
  return page;
}

nlohmann::ordered_json op_json(const OpDef& def) {
  nlohmann::ordered_json json{{"name", def.name}, {"signature", op_signature(def)}, {"summary", def.summary}};
  for (const ir::OperandDef& operand : def.operands) {
    json["operands"].push_back({{"name", operand.name},
                                {"doc", operand.doc},
                                {"optional", operand.optional},
                                {"variadic", operand.variadic},
                                {"port", operand.port}});
  }
  for (const ir::AttrDef& attr : def.attrs) {
    nlohmann::ordered_json entry{
        {"name", attr.name}, {"doc", attr.doc}, {"kind", ir::attr_kind_text(attr.kind)}, {"required", attr.required}};
    if (!attr.required && !attr.unset_ok) entry["default"] = ir::attr_text(attr.fallback);
    json["attributes"].push_back(entry);
  }
  for (const ir::ResultDef& result : def.results) {
    json["results"].push_back({{"name", result.name}, {"doc", result.doc}, {"hidden", result.hidden}});
  }
  json["levels"] = level_names(def);
  json["lowering"] = lowering_text(def);
  json["gradient"] = gradient_text(def);
  for (const ir::Example& example : def.examples) json["examples"].push_back(example.text);
  return json;
}

}  // namespace ingot::tools
