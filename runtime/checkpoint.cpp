#include "runtime/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/safetensors.h"

namespace ingot::runtime {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
const char* const kWeights = "weights.safetensors";
const char* const kOptimizer = "optimizer.safetensors";
const char* const kManifest = "state.json";

bool is_weight(const ir::Variable& v) { return v.role == ir::VariableRole::param; }
bool is_saved_state(const ir::Variable& v) { return v.role == ir::VariableRole::state && v.saved; }

std::vector<TensorEntry> entries_of(const ir::Plan& plan, bool (*wanted)(const ir::Variable&)) {
  std::vector<TensorEntry> entries;
  for (const ir::Binding& b : plan.bindings) {
    if (wanted(b.variable)) entries.push_back({b.variable.name, b.variable.type});
  }
  return entries;
}

Json hypers_of(const Session& session) {
  Json hypers = Json::object();
  for (const ir::Binding& b : session.plan().bindings) {
    if (b.variable.role == ir::VariableRole::hyper)
      hypers[b.variable.name] = ir::real_text(session.read_variable(b.variable.name).to_doubles()[0]);
  }
  return hypers;
}

Json manifest_json(const Session& session, const RunState& state, const std::map<std::string, WrittenFile>& files) {
  Json json{{"format", kFormat},          {"run", state.run},       {"step", state.step},
            {"position", state.position}, {"tokens", state.tokens}, {"seed", state.seed}};
  json["config"] = state.config;
  json["hyper"] = hypers_of(session);
  for (const auto& [name, file] : files) json["files"][name] = {{"bytes", file.bytes}, {"checksum", file.checksum}};
  return json;
}

[[noreturn]] void bad_checkpoint(const std::string& path, const std::string& reason) {
  throw ir::UserError(ir::make_loc(path, 0, 0), reason);
}

struct Manifest {
  RunState state;
  Json files;
};

Manifest read_manifest(const std::string& path) try {
  const Json json = Json::parse(read_file(path + "/" + kManifest));
  if (json.at("format") != kFormat)
    bad_checkpoint(path, fmt::format("{} is of format {}, this program reads {}", kManifest, json.at("format").dump(), kFormat));
  Manifest m;
  m.state = {json.at("run"), json.at("step"), json.at("position"), json.at("tokens"), json.at("seed"), json.at("config")};
  m.files = json.at("files");
  return m;
} catch (const nlohmann::json::exception&) {
  bad_checkpoint(path, fmt::format("{} is damaged", kManifest));
}

bool is_checkpoint_name(const fs::path& path) { return path.filename().string().starts_with("step-"); }

struct Found {
  std::string path;
  std::optional<RunState> state;
  std::string damage;  ///< why there is no state
};

// Every folder that calls itself a checkpoint, highest step first; those without a readable manifest come first, so that they
// are reported.
std::vector<Found> find_all(const std::string& out) {
  std::vector<Found> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out, error)) {
    if (!entry.is_directory() || !is_checkpoint_name(entry.path())) continue;
    Found found{entry.path().string(), {}, ""};
    try {
      found.state = read_manifest(found.path).state;
    } catch (const ir::UserError& e) {
      found.damage = e.diagnostics()[0].message;
    }
    all.push_back(std::move(found));
  }
  const auto order = [](const Found& f) { return f.state ? f.state->step : INT64_MAX; };
  std::sort(all.begin(), all.end(),
            [&](const Found& a, const Found& b) { return order(a) != order(b) ? order(a) > order(b) : a.path < b.path; });
  return all;
}

void move(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_file_error(fmt::format("rename {} to {}", from, to), errno);
}

// Renamed first: a folder that is half deleted must not look like a checkpoint.
void remove_folder(const std::string& out, const std::string& path) {
  const std::string hidden = fmt::format("{}/.deleted-{}", out, fs::path(path).filename().string());
  std::error_code error;
  fs::remove_all(hidden, error);
  move(path, hidden);
  fs::remove_all(hidden, error);
}

}  // namespace

Checkpoint save_checkpoint(const std::string& out, const Session& session, const RunState& state) {
  const std::string path = fmt::format("{}/step-{:08}", out, state.step),
                    aside = fmt::format("{}/.step-{:08}.tmp-{}", out, state.step, getpid());
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  make_folders(aside);
  try {
    const auto get = [&](const std::string& name) { return session.read_variable(name); };
    std::map<std::string, WrittenFile> files;
    files[kWeights] = write_safetensors(aside + "/" + kWeights, entries_of(session.plan(), is_weight), get);
    files[kOptimizer] = write_safetensors(aside + "/" + kOptimizer, entries_of(session.plan(), is_saved_state), get);
    write_file(aside + "/" + kManifest, manifest_json(session, state, files).dump(1) + "\n");
    if (fs::exists(path)) remove_folder(out, path);
    move(aside, path);
    sync_folder(out);
  } catch (...) {
    fs::remove_all(aside, ignored);
    throw;
  }
  return {path, state};
}

Checkpoint open_checkpoint(const std::string& path) {
  const Manifest manifest = read_manifest(path);
  for (const char* name : {kWeights, kOptimizer}) {
    if (!manifest.files.contains(name)) bad_checkpoint(path, fmt::format("{} does not list {}", kManifest, name));
    const Json& file = manifest.files[name];
    const std::string full = path + "/" + name;
    if (!fs::exists(full)) bad_checkpoint(path, fmt::format("{} is missing", name));
    const auto bytes = static_cast<int64_t>(fs::file_size(full));
    if (bytes != file.value("bytes", int64_t{-1}))
      bad_checkpoint(path, fmt::format("{} has {} bytes, {} were written", name, bytes, file.value("bytes", int64_t{-1})));
    if (file_checksum(full) != file.value("checksum", ""))
      bad_checkpoint(path, fmt::format("{} is damaged: its checksum differs", name));
  }
  return {path, manifest.state};
}

Checkpoint newest_checkpoint(const std::string& out, const std::string& run, const Warn& warn) {
  for (const Found& found : find_all(out)) {
    if (found.state && !run.empty() && found.state->run != run) continue;
    try {
      if (!found.state) bad_checkpoint(found.path, found.damage);
      return open_checkpoint(found.path);
    } catch (const ir::UserError& e) {
      warn(fmt::format("{}: {}; passed over for the checkpoint before it", found.path, e.diagnostics()[0].message));
    }
  }
  throw ir::UserError(ir::make_loc(out, 0, 0),
                      find_all(out).empty()
                          ? "this run has saved no checkpoint yet; to start again, remove the folder or choose another --out"
                          : "no complete checkpoint to resume from");
}

void restore_checkpoint(Session& session, const Checkpoint& checkpoint) {
  ir::Diagnostics mistakes;
  const Safetensors files[] = {Safetensors(checkpoint.path + "/" + kWeights), Safetensors(checkpoint.path + "/" + kOptimizer)};
  const std::vector<TensorEntry> wanted[] = {entries_of(session.plan(), is_weight), entries_of(session.plan(), is_saved_state)};
  for (int i = 0; i < 2; ++i) {
    const ir::Loc loc = ir::make_loc(files[i].path(), 0, 0);
    for (const TensorEntry& e : wanted[i]) {
      const auto found = files[i].tensors().find(e.name);
      if (found == files[i].tensors().end()) {
        mistakes.error(loc, fmt::format("{} {} is missing", e.name, e.type.text()));
      } else if (found->second.shape != e.type.shape) {
        mistakes.error(loc,
                       fmt::format("{} is {} in the checkpoint, {} in the model", e.name, found->second.text(), e.type.text()));
      }
    }
  }
  mistakes.throw_if_any();
  for (int i = 0; i < 2; ++i) {
    for (const TensorEntry& e : wanted[i]) session.write_variable(e.name, files[i].read(e.name, e.type.dtype));
  }
  if (session.plan().find_program("prepare")) session.run("prepare");
}

void prune_checkpoints(const std::string& out, const Checkpoint& newest, int64_t keep) {
  int64_t kept = 1;
  for (const Found& found : find_all(out)) {
    const bool same_run = found.state && found.state->run == newest.state.run;
    if (!same_run || found.state->step >= newest.state.step) continue;
    if (kept < std::max<int64_t>(keep, 1)) {
      ++kept;
    } else {
      remove_folder(out, found.path);
    }
  }
}

void set_aside_later(const std::string& out, const Checkpoint& kept) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(out, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".step-") || name.starts_with(".deleted-")) leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path, error);
  for (const Found& found : find_all(out)) {
    const bool later = !found.state || (found.state->run == kept.state.run && found.state->step > kept.state.step);
    if (!later) continue;
    const std::string name = fs::path(found.path).filename().string();
    std::string target = fmt::format("{}/set-aside-{}", out, name);
    for (int n = 2; fs::exists(target); ++n) target = fmt::format("{}/set-aside-{}.{}", out, name, n);
    move(found.path, target);
  }
}

bool holds_run(const std::string& out) {
  std::error_code error;
  if (fs::exists(out + "/run.json", error) || fs::exists(out + "/metrics.jsonl", error)) return true;
  return !find_all(out).empty();
}

}  // namespace ingot::runtime
