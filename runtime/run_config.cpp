#include "runtime/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "ir/base/error.h"
#include "ir/base/text.h"

namespace ingot::runtime {
namespace {

const char* const kAbsent = "(absent)";

std::vector<std::string> hyper_names(const ir::Plan& plan) {
  std::vector<std::string> names;
  for (const ir::Binding& b : plan.bindings) {
    if (b.variable.role == ir::VariableRole::hyper) names.push_back(b.variable.name);
  }
  return names;
}

double hyper_value(const Session& session, const std::string& name) { return session.read_variable(name).to_doubles().at(0); }

double number(const std::string& key, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    throw ir::UserError(ir::Loc{}, fmt::format("{}={}: the value must be a finite number", key, text));
  }
  return value;
}

// Keys of Plan::info that say how the plan was made and not what it computes.
bool is_safe(const std::string& key) { return key == "ingot.version" || key == "options.reuse_memory" || key == "options.lanes"; }

// What follows from the other keys and would only repeat their changes.
bool is_consequence(const std::string& key) { return key.starts_with("memory."); }

const char* const kMicrobatches = "options.microbatches";

}  // namespace

void set_hypers(Session& session, const std::vector<std::pair<std::string, std::string>>& values, int64_t steps) {
  const std::vector<std::string> names = hyper_names(session.plan());
  const auto known = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  const auto set = [&](const std::string& name, double value) {
    const ir::Type& type = session.plan().find_binding(name)->variable.type;
    session.write_variable(name, HostTensor::from_doubles(type, {value}));
  };
  for (const auto& [name, text] : values) {
    if (name == "steps" || !known(name)) {
      const std::string near = ir::nearest_name(name, names);
      throw ir::UserError(
          ir::Loc{}, fmt::format("{}={}: {}{}", name, text,
                                 name == "steps" ? "the number of steps is --steps" : "a compiled plan has no such train scalar",
                                 near.empty() || name == "steps" ? "" : fmt::format("; did you mean {}?", near)));
    }
    set(name, number(name, text));
  }
  if (known("steps")) set("steps", static_cast<double>(steps));
  if (known("warmup") && hyper_value(session, "warmup") > static_cast<double>(steps)) {
    throw ir::UserError(ir::Loc{}, fmt::format("warmup is {} steps, the whole run {}", hyper_value(session, "warmup"), steps));
  }
}

int64_t plan_microbatches(const ir::Plan& plan) {
  for (const auto& [key, value] : plan.info) {
    int64_t count = 0;
    if (key == kMicrobatches && std::from_chars(value.data(), value.data() + value.size(), count).ec == std::errc()) return count;
  }
  return 1;
}

bool plan_carries_state(const ir::Plan& plan) {
  return std::any_of(plan.info.begin(), plan.info.end(),
                     [](const auto& entry) { return entry.first == "options.carry_state" && entry.second == "true"; });
}

DataOptions plan_data_options(const ir::Plan& plan, int64_t microbatches) {
  const ir::Program* program = plan.find_program(microbatches == 1 ? "train" : "first");
  if (!program) throw ir::UserError(ir::Loc{}, fmt::format("the plan has no program for {} batches a step", microbatches));
  DataOptions options;
  for (const ir::Port& port : program->inputs) {
    const ir::Shape& shape = plan.buffers[port.buffer].type.shape;
    if (port.name == "tokens" && shape.size() == 2) options.batch = shape[0], options.time = shape[1];
  }
  for (const ir::InputRange& range : plan.ranges) {
    if (range.input == "tokens") options.vocab = range.hi + 1;
  }
  if (options.time == 0 || options.vocab <= 0) {
    throw ir::UserError(ir::Loc{}, "training needs an input `tokens: i32[batch, time] in 0 .. vocab - 1` and an input `targets`");
  }
  options.least = microbatches * options.batch;
  return options;
}

std::map<std::string, std::string> run_config(const Session& session, const TokenData& data, int64_t microbatches) {
  std::map<std::string, std::string> config;
  for (const auto& [key, value] : session.plan().info) {
    if (key != kMicrobatches) config[key] = value;
  }
  for (const std::string& name : hyper_names(session.plan())) config[name] = ir::real_text(hyper_value(session, name));
  config["microbatches"] = std::to_string(microbatches);
  config["data"] =
      fmt::format("{} tokens, {} for training, fingerprint {}", data.tokens(), data.train_windows(), data.fingerprint());
  return config;
}

std::string ConfigChange::text() const { return fmt::format("{}: {} -> {}", key, before, after); }

std::vector<ConfigChange> compare_configs(const std::map<std::string, std::string>& before,
                                          const std::map<std::string, std::string>& after) {
  std::set<std::string> keys;
  for (const auto* config : {&before, &after}) {
    for (const auto& [key, value] : *config) {
      if (!is_consequence(key)) keys.insert(key);
    }
  }
  std::vector<ConfigChange> changes;
  for (const std::string& key : keys) {
    const auto a = before.find(key), b = after.find(key);
    if (a != before.end() && b != after.end() && a->second == b->second) continue;
    changes.push_back({key, a == before.end() ? kAbsent : a->second, b == after.end() ? kAbsent : b->second, is_safe(key)});
  }
  return changes;
}

void check_allowed(const std::vector<std::string>& allowed, const std::map<std::string, std::string>& before,
                   const std::map<std::string, std::string>& after) {
  std::vector<std::string> keys;
  for (const auto* config : {&before, &after}) {
    for (const auto& [key, value] : *config) keys.push_back(key);
  }
  for (const std::string& key : allowed) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::string near = ir::nearest_name(key, keys);
    throw ir::UserError(ir::Loc{}, fmt::format("--allow-change {}: the run has no such key{}", key,
                                               near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
}

void refuse_changes(const std::vector<ConfigChange>& changes, const std::vector<std::string>& allowed) {
  ir::Diagnostics mistakes;
  for (const ConfigChange& change : changes) {
    if (change.safe || std::find(allowed.begin(), allowed.end(), change.key) != allowed.end()) continue;
    mistakes.error(ir::Loc{}, fmt::format("the run was made with another {} ({}); --allow-change {} continues all the same",
                                          change.key, change.text(), change.key));
  }
  mistakes.throw_if_any();
}

std::string new_run_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

void write_run_id(const std::string& out, const std::string& id) {
  write_file(out + "/run.json", nlohmann::json{{"run", id}}.dump() + "\n");
}

std::string read_run_id(const std::string& out) {
  if (!std::filesystem::exists(out + "/run.json")) return "";
  const auto json = nlohmann::json::parse(read_file(out + "/run.json"), nullptr, false);
  return json.is_object() ? json.value("run", "") : "";
}

}  // namespace ingot::runtime
