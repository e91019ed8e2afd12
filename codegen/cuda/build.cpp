// Kernels are named after their texts, so cached code carries the right symbol whatever plan it comes from.
#include "codegen/cuda/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "codegen/cache.h"
#include "codegen/text/embedded.h"
#include "ir/base/error.h"

namespace ingot::codegen::cuda {
namespace {

constexpr std::string_view kFormat = "ingot cuda kernels 2\n";  // changes whenever what is stored under a key would

/// The flags that decide what a kernel computes. A product and a sum of two ops may become one instruction: on the card that
/// costs no determinism between runs, and a kernel's text is the same wherever its region stands. What is in the headers but not
/// used is no fault (177).
std::vector<std::string> compile_flags(const Arch& arch, bool crowded) {
  const std::string own =
      arch.version == 90 ? "a" : "";  // sm_90a has products of warp groups (wgmma), and every sm_90 card is one
  std::vector<std::string> flags = {"--gpu-architecture=" + arch.name() + own, "--std=c++17", "--diag-suppress=177",
                                    "--ptxas-options=-v", "--ptxas-options=--warn-on-spills"};
  flags.emplace_back(crowded ? "-DIG_RESIDENT(blocks)=blocks" : "-DIG_RESIDENT(blocks)=1");
  return flags;
}

int number_before(std::string_view line, std::string_view words) {
  const size_t at = line.find(words);
  if (at == std::string_view::npos) return 0;
  size_t begin = at;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1]))) --begin;
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

/// One kernel on its way.
struct Unit {
  std::string text;  ///< complete
  std::string key;
  std::string cubin;
  Resources resources;
};

std::string included_texts(std::string_view text) {
  std::string out;
  for (const Header& file : text_files()) {
    if (text.find(fmt::format("#include \"{}\"", file.name)) == std::string_view::npos) continue;
    out += file.content;
    out += included_texts(file.content);
  }
  return out;
}

Unit make_unit(const KernelText& kernel, const std::string& common) {
  Unit unit;
  unit.text = "#include \"vocabulary.h\"\n" + kernel.text;
  unit.key = Cache::key(common + unit.text + included_texts(unit.text));
  return unit;
}

/// Cache entries: "registers spills warning\n" and the cubin.
bool take_from_cache(Unit& unit, const Cache& cache) {
  const std::optional<std::string> entry = cache.find(unit.key);
  if (!entry) return false;
  const size_t end = entry->find('\n');
  int read = 0;
  if (end == std::string::npos ||
      std::sscanf(entry->c_str(), "%d %d %n", &unit.resources.registers, &unit.resources.spill_bytes, &read) != 2)
    return false;
  const size_t begin = static_cast<size_t>(read);  // past the line's end when nothing follows the figures
  unit.resources.warning = begin < end ? entry->substr(begin, end - begin) : "";
  unit.cubin = entry->substr(end + 1);
  return true;
}

/// "" or what is wrong with a kernel that compiles.
std::string fault_of(const Resources& resources, bool warnings_fail) {
  if (resources.registers == 0) return "gets no report from ptxas";
  if (resources.spill_bytes > 0) return fmt::format("spills {} bytes of registers", resources.spill_bytes);
  if (resources.stack_bytes > 0) return fmt::format("keeps {} bytes in local memory", resources.stack_bytes);
  if (!resources.serialised.empty()) return "is serialised: " + resources.serialised;
  return resources.warning.empty() || !warnings_fail ? "" : "gets a warning: " + resources.warning;
}

/// What NVRTC has kept of an earlier compilation comes without a report.
Compiled compile_with_report(const Unit& unit, const std::string& name, std::vector<std::string> flags) {
  const auto compile = [&] { return Nvrtc::get().compile(name + ".cu", unit.text, text_files(), flags); };
  Compiled made = compile();
  if (!made.ok || read_log(made.log).registers > 0) return made;
  flags.emplace_back(Nvrtc::get().afresh());
  return compile();
}

void compile_unit(Unit& unit, const std::string& name, const Arch& arch, const Cache& cache, bool warnings_fail) {
  const auto refuse = [&](const std::string& why, const std::string& log) {
    throw ir::InternalError(fmt::format("generated kernel {} for {} {}\n--- source ---\n{}--- log ---\n{}\n", name, arch.name(),
                                        why, unit.text, log));
  };
  if (take_from_cache(unit, cache)) {
    const std::string why = fault_of(unit.resources, warnings_fail);
    return why.empty() ? void() : refuse(why, "(from the cache)");
  }
  Compiled made;
  // As many blocks at once as the emitter hoped for; where that leaves too few registers, one.
  for (const bool crowded : {true, false}) {
    made = compile_with_report(unit, name, compile_flags(arch, crowded));
    if (!made.ok) break;
    unit.resources = read_log(made.log);
    if (unit.resources.stack_bytes == 0 || unit.text.find("IG_RESIDENT") == std::string::npos) break;
  }
  const std::string why = made.ok ? fault_of(unit.resources, warnings_fail) : "does not compile";
  if (!why.empty()) refuse(why, made.log);
  unit.cubin = std::move(made.cubin);
  cache.store(unit.key, fmt::format("{} {} {}\n{}", unit.resources.registers, unit.resources.spill_bytes, unit.resources.warning,
                                    unit.cubin));
}

/// Runs `work(i)` for i below `count` on `jobs` threads; of several failures the one with the lowest i is thrown.
void in_parallel(size_t count, int jobs, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::map<size_t, std::exception_ptr> failures;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        failures.emplace(i, std::current_exception());
      }
    }
  };
  std::vector<std::thread> threads;
  for (int k = 1; k < jobs && static_cast<size_t>(k) < count; ++k) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  if (!failures.empty()) std::rethrow_exception(failures.begin()->second);
}

}  // namespace

std::vector<Header> text_files() {
  return {{"vocabulary.h", text_vocabulary_h},
          {"threads_cuda.inc", text_threads_cuda_inc},
          {"reduce_cuda.inc", text_reduce_cuda_inc},
          {"copy_cuda.inc", text_copy_cuda_inc},
          {"rows_cuda.inc", text_rows_cuda_inc},
          {"ring_cuda.inc", text_ring_cuda_inc},
          {"wkv7_cuda.inc", text_wkv7_cuda_inc},
          {"warp_cuda.inc", text_warp_cuda_inc},
          {"wkv7_tiles_cuda.inc", text_wkv7_tiles_cuda_inc},
          {"wkv7_chunk_cuda.inc", text_wkv7_chunk_cuda_inc},
          {"wkv7_chunk_grad_cuda.inc", text_wkv7_chunk_grad_cuda_inc},
          {"wkv7_segments_cuda.inc", text_wkv7_segments_cuda_inc}};
}

Resources read_log(std::string_view log) {
  Resources out;
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string_view line = log.substr(at, end - at);
    at = end + 1;
    out.registers = std::max(out.registers, number_before(line, " registers"));
    out.spill_bytes += number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
    out.stack_bytes = std::max(out.stack_bytes, number_before(line, " bytes stack frame"));
    // "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ..."
    if (line.find("serialized") != std::string_view::npos) {
      if (out.serialised.empty()) out.serialised = line;
      continue;
    }
    const bool remark = line.starts_with("ptxas info") || line.starts_with("ptxas         .") || line.empty();
    if (!remark && out.warning.empty()) out.warning = line;
  }
  return out;
}

BuiltKernels build_kernels(const std::vector<KernelText>& kernels, const Arch& arch, const CudaTargetOptions& options) {
  const Cache cache(options.cache.directory);
  std::string common = fmt::format("{}{}\n", kFormat, Nvrtc::get(options.home).version());
  for (const bool crowded : {true, false}) common += fmt::format("{}\n", fmt::join(compile_flags(arch, crowded), " "));

  std::map<std::string, size_t> place;
  std::vector<Unit> units;
  std::vector<std::string> names;
  std::vector<size_t> unit_of;
  for (const KernelText& kernel : kernels) {
    Unit unit = make_unit(kernel, common);
    const auto [at, fresh] = place.emplace(unit.key, units.size());
    unit_of.push_back(at->second);
    if (!fresh) continue;
    units.push_back(std::move(unit));
    names.push_back(kernel.name);
  }
  const int jobs = options.jobs > 0 ? options.jobs : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  in_parallel(units.size(), jobs, [&](size_t i) { compile_unit(units[i], names[i], arch, cache, options.warnings_fail); });

  BuiltKernels out;
  out.features = arch.name();
  for (const Header& file : text_files()) out.files["kernels/" + file.name] = std::string(file.content);
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Unit& unit = units[unit_of[i]];
    ir::Kernel entry;
    entry.name = kernels[i].name;
    entry.symbol = entry.name;
    entry.image = fmt::format("kernels/{}.cubin", entry.name);
    entry.source = fmt::format("kernels/{}.cu", entry.name);
    entry.registers = unit.resources.registers;
    entry.spill_bytes = unit.resources.spill_bytes;
    out.files[entry.image] = unit.cubin;
    out.files[entry.source] = unit.text;
    out.kernels.push_back(std::move(entry));
  }
  return out;
}

}  // namespace ingot::codegen::cuda
