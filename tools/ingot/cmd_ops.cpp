// ingot ops [NAME]: the reference page of every op, from its definition.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "tools/ingot/commands.h"
#include "tools/ingot/common.h"
#include "tools/ingot/op_page.h"
#include "tools/shared/units.h"

namespace ingot::tools {
namespace {

struct OpsOptions {
  std::string name;
  bool all = false, json = false;
};

const ir::OpDef& known_op(const std::string& name) {
  if (const ir::OpDef* def = ir::op_table().find(name)) return *def;
  const std::string nearest = ir::nearest_name(name, ir::op_table().names());
  throw ir::UserError(
      ir::make_loc("<command line>", 0, 0),
      fmt::format("there is no op '{}'{}", name, nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

void run_ops(const OpsOptions& options) {
  std::vector<const ir::OpDef*> defs = ir::op_table().all();
  if (!options.name.empty()) defs = {&known_op(options.name)};
  if (options.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const ir::OpDef* def : defs) json.push_back(op_json(*def));
    return print_json(options.name.empty() ? json : json[0]);
  }
  std::string text;
  for (const ir::OpDef* def : defs) {
    if (options.all || !options.name.empty()) {
      text += (text.empty() ? "" : "\n" + std::string(100, '-') + "\n") + op_page(*def);
    } else {
      text += fmt::format("{}\n    {}\n", op_signature(*def), op_sentence(*def));
    }
  }
  if (!options.all && options.name.empty())
    text += fmt::format("\n{}. `ingot ops NAME` shows one in full.\n", plural(static_cast<int64_t>(defs.size()), "op"));
  write_text("", text);
}

}  // namespace

void add_ops_command(CLI::App& app) {
  auto options = std::make_shared<OpsOptions>();
  CLI::App* command = app.add_subcommand("ops", "Reference of every op, from its definition");
  command->add_option("name", options->name, "one op in full");
  command->add_flag("--all", options->all, "every op in full");
  command->add_flag("--json", options->json, "for scripts");
  command->callback([options] { run_ops(*options); });
}

}  // namespace ingot::tools
