#include "runtime/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/base/error.h"
#include "ir/base/text.h"

namespace ingot::runtime {
namespace {

std::string common_prefix(const Safetensors& file) {
  for (const char* prefix : {"init.", "param."}) {
    for (const auto& [name, tensor] : file.tensors()) {
      if (name.starts_with(prefix)) return prefix;
    }
  }
  return "";
}

bool ignored(const ir::Plan& plan, const std::string& name) {
  return std::any_of(plan.checkpoint_ignore.begin(), plan.checkpoint_ignore.end(),
                     [&](const std::string& glob) { return ir::glob_match(glob, name); });
}

}  // namespace

LoadReport load_weights(Session& session, const Safetensors& file, bool partial) {
  const std::string prefix = common_prefix(file);
  const ir::Plan& plan = session.plan();
  LoadReport report;
  std::vector<const ir::Variable*> fitting;
  std::vector<ir::Note> notes;
  std::set<std::string> known;
  const auto note = [&](std::string text) { notes.push_back({ir::make_loc(file.path(), 0, 0), std::move(text)}); };
  for (const ir::Binding& b : plan.bindings) {
    const ir::Variable& v = b.variable;
    if (v.role != ir::VariableRole::param) continue;
    known.insert(prefix + v.name);
    const auto found = file.tensors().find(prefix + v.name);
    if (found == file.tensors().end()) {
      ++report.missing;
      note(fmt::format("missing: {} {}", v.name, v.type.text()));
    } else if (found->second.shape != v.type.shape) {
      ++report.mismatched;
      note(fmt::format("shape: {} is {} in the file, {} in the model", v.name, found->second.text(), v.type.text()));
    } else {
      fitting.push_back(&v);
    }
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (!name.starts_with(prefix) || known.contains(name) || ignored(plan, name.substr(prefix.size()))) continue;
    ++report.extra;
    note(fmt::format("extra: {} {} belongs to no parameter", name.substr(prefix.size()), tensor.text()));
  }
  if (!notes.empty() && !partial) {
    throw ir::UserError(
        ir::make_loc(file.path(), 0, 0),
        fmt::format("the file does not fit the model: {} of {} parameters missing, {} of another shape, {} tensors extra "
                    "(--partial loads what fits)",
                    report.missing, known.size(), report.mismatched, report.extra),
        std::move(notes));
  }
  for (const ir::Variable* v : fitting) session.write_variable(v->name, file.read(prefix + v->name, v->type.dtype));
  report.loaded = static_cast<int>(fitting.size());
  if (plan.find_program("prepare")) session.run("prepare");
  return report;
}

}  // namespace ingot::runtime
