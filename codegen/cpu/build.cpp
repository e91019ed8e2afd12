// Every kernel is one translation unit under a name made from its content, so that plans share objects in the cache whatever they
// call their kernels; the linker gives the plan's names.
#include "codegen/cpu/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>

#include "codegen/cache.h"
#include "codegen/cpu/process.h"
#include "codegen/text/embedded.h"
#include "ir/base/error.h"
#include "ir/base/text.h"

namespace ingot::codegen::cpu {
namespace {

constexpr std::string_view kFormat = "ingot cpu kernels 1\n";  // changes whenever what is stored under a key would
constexpr int kJobs = 2;

const std::map<std::string, std::string>& feature_names() {
  static const std::map<std::string, std::string> names = {{"__SSE3__", "pni"},
                                                           {"__SSSE3__", "ssse3"},
                                                           {"__SSE4_1__", "sse4_1"},
                                                           {"__SSE4_2__", "sse4_2"},
                                                           {"__POPCNT__", "popcnt"},
                                                           {"__AVX__", "avx"},
                                                           {"__AVX2__", "avx2"},
                                                           {"__FMA__", "fma"},
                                                           {"__F16C__", "f16c"},
                                                           {"__BMI__", "bmi1"},
                                                           {"__BMI2__", "bmi2"},
                                                           {"__LZCNT__", "abm"},
                                                           {"__MOVBE__", "movbe"},
                                                           {"__AVX512F__", "avx512f"},
                                                           {"__AVX512DQ__", "avx512dq"},
                                                           {"__AVX512BW__", "avx512bw"},
                                                           {"__AVX512VL__", "avx512vl"},
                                                           {"__AVX512CD__", "avx512cd"},
                                                           {"__AVX512IFMA__", "avx512ifma"},
                                                           {"__AVX512VBMI__", "avx512vbmi"},
                                                           {"__AVX512VBMI2__", "avx512_vbmi2"},
                                                           {"__AVX512VNNI__", "avx512_vnni"},
                                                           {"__AVX512BITALG__", "avx512_bitalg"},
                                                           {"__AVX512VPOPCNTDQ__", "avx512_vpopcntdq"},
                                                           {"__AVX512BF16__", "avx512_bf16"},
                                                           {"__AVX512FP16__", "avx512_fp16"}};
  return names;
}

std::string features_of(const std::string& macros) {
  std::vector<std::string> found;
  std::istringstream lines(macros);
  std::string define, name;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    words >> define >> name;
    const auto feature = feature_names().find(name);
    if (define == "#define" && feature != feature_names().end()) found.push_back(feature->second);
  }
  std::sort(found.begin(), found.end());
  return fmt::format("{}", fmt::join(found, " "));
}

std::vector<std::string> command_of(const CpuTargetOptions& options, std::vector<std::string> more) {
  std::vector<std::string> command = {options.compiler};
  const std::vector<std::string> flags = compile_flags(options);
  command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) throw ir::MachineError("cannot write " + path.string() + ": is the disk full?");
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

bool part_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The text with the whole word `from` replaced.
std::string rename_word(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  size_t at = 0;
  for (;;) {
    const size_t hit = text.find(from, at);
    if (hit == std::string::npos) return out + text.substr(at);
    const size_t end = hit + from.size();
    const bool whole = (hit == 0 || !part_of_name(text[hit - 1])) && (end == text.size() || !part_of_name(text[end]));
    out += text.substr(at, hit - at) + (whole ? to : from);
    at = end;
  }
}

/// A kernel on its way: its text under a neutral name, and the name of its object.
struct Unit {
  std::string source;  ///< complete, the symbol being `symbol`
  std::string symbol;  ///< "ingot_<key>"
  std::string key;
  std::string object;
};

/// What decides every kernel's object, beside its own text and what that includes.
std::string common_material(const Compiler& compiler, const CpuTargetOptions& options) {
  std::string out{kFormat};
  for (const std::string& flag : compile_flags(options)) out += flag + "\n";
  return out + compiler.identity;
}

/// The contents of the text files that `text` includes, directly or through others.
std::string included_texts(std::string_view text) {
  std::string out;
  for (const TextFile& file : text_files()) {
    if (text.find(fmt::format("#include \"{}\"", file.name)) == std::string_view::npos) continue;
    out += file.content;
    out += included_texts(file.content);
  }
  return out;
}

/// What one kernel's text asks for on top. wkv7 is never part of a region: its sums may be joined, always the same ones.
std::vector<std::string> unit_flags(const std::string& source) {
  if (source.find("#include \"wkv7_cpu.inc\"") == std::string::npos) return {};
  return {"-ffp-contract=fast"};
}

Unit make_unit(const KernelText& kernel, const std::string& common_key) {
  Unit unit;
  const std::string neutral = rename_word(kernel.text, kernel.name, "KERNEL");
  const std::string complete = "#include \"vocabulary.h\"\n" + neutral;
  unit.key =
      Cache::key(fmt::format("{}{}{}{}", common_key, fmt::join(unit_flags(complete), " "), complete, included_texts(complete)));
  unit.symbol = "ingot_" + unit.key;
  unit.source = rename_word(complete, "KERNEL", unit.symbol);
  return unit;
}

/// Compiles the units that the cache does not hold.
void make_objects(std::vector<Unit*> units, const CpuTargetOptions& options, const Cache& cache,
                  const std::filesystem::path& work) {
  std::vector<Unit*> missing;
  for (Unit* unit : units) {
    std::optional<std::string> object = cache.find(unit->key);
    if (object)
      unit->object = std::move(*object);
    else
      missing.push_back(unit);
  }
  std::vector<std::vector<std::string>> commands;
  for (const Unit* unit : missing) {
    write_file(work / (unit->key + ".cpp"), unit->source);
    std::vector<std::string> arguments = unit_flags(unit->source);
    for (const std::string& word : {std::string("-c"), unit->key + ".cpp", std::string("-o"), unit->key + ".o"})
      arguments.push_back(word);
    commands.push_back(command_of(options, arguments));
  }
  const std::vector<ProcessResult> results = run_processes(commands, work, kJobs);
  for (size_t k = 0; k < missing.size(); ++k) {
    Unit& unit = *missing[k];
    if (results[k].status != 0) {
      throw ir::InternalError(
          fmt::format("generated kernel does not compile (status {}): {}\n--- source ---\n{}--- compiler ---\n{}",
                      results[k].status, fmt::join(commands[k], " "), unit.source, results[k].output));
    }
    unit.object = read_file(work / (unit.key + ".o"));
    cache.store(unit.key, unit.object);
    if (!options.cache.keep_sources || cache.writable_directory().empty()) continue;
    write_file(std::filesystem::path(cache.directory()) / (unit.key + ".cpp"), unit.source);
  }
}

std::string link_image(const std::vector<KernelText>& kernels, const std::vector<const Unit*>& unit_of,
                       const std::map<std::string, Unit>& units, const CpuTargetOptions& options,
                       const std::filesystem::path& work) {
  // Arguments go through a file: a plan has hundreds of kernels.
  std::string arguments;
  for (const auto& [key, unit] : units) {
    write_file(work / (key + ".o"), unit.object);
    arguments += key + ".o\n";
  }
  for (size_t k = 0; k < kernels.size(); ++k)
    arguments += fmt::format("-Wl,--defsym,{}={}\n", kernels[k].name, unit_of[k]->symbol);
  write_file(work / "link.args", arguments);
  const std::vector<std::string> command = {options.compiler,
                                            "-shared",
                                            "-nostdlib",
                                            "-s",
                                            "-Wl,--build-id=none",
                                            "-Wl,-z,defs",
                                            "-Wl,--as-needed",
                                            "@link.args",
                                            "-lm",
                                            "-lc",
                                            "-lgcc",
                                            "-o",
                                            "image.so"};
  const ProcessResult result = run_process(command, work);
  if (result.status != 0) {
    throw ir::InternalError(
        fmt::format("generated kernels do not link (status {}): {}\n{}", result.status, fmt::join(command, " "), result.output));
  }
  return read_file(work / "image.so");
}

}  // namespace

std::vector<TextFile> text_files() {
  return {{"vocabulary.h", text_vocabulary_h}, {"tasks_cpu.inc", text_tasks_cpu_inc}, {"reduce_cpu.inc", text_reduce_cpu_inc},
          {"copy_cpu.inc", text_copy_cpu_inc}, {"lanes_cpu.inc", text_lanes_cpu_inc}, {"wkv7_cpu.inc", text_wkv7_cpu_inc}};
}

// -fwrapv: integer ops of models wrap, as everywhere else. The debug and identification sections are left out so that equal texts
// give equal bytes. A product and a sum of two ops never become one instruction: which ops share a kernel, and which of their
// values are stored as well, must not change a bit.
std::vector<std::string> compile_flags(const CpuTargetOptions& options) {
  return {"-std=gnu++20",
          "-O3",
          "-march=" + options.arch,
          "-fno-math-errno",
          "-fno-trapping-math",
          "-ffp-contract=off",
          "-fwrapv",
          "-fno-exceptions",
          "-fno-rtti",
          "-fPIC",
          "-fno-asynchronous-unwind-tables",
          "-fno-ident",
          "-w"};
}

Compiler probe_compiler(const CpuTargetOptions& options) {
  static std::mutex mutex;
  static std::map<std::string, Compiler> known;
  const std::scoped_lock lock(mutex);
  const std::vector<std::string> command = command_of(options, {"-dM", "-E", "-x", "c++", "/dev/null"});
  const std::string name = fmt::format("{}", fmt::join(command, " "));
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  const ProcessResult result = run_process(command, "/");
  if (result.status == 127) {
    throw ir::MachineError(
        fmt::format("no C++ compiler: cannot run \"{}\", which compiles the kernels of a plan; install one with: apt install g++",
                    options.compiler));
  }
  if (result.status != 0) {
    throw ir::MachineError(
        fmt::format("the C++ compiler does not work; reinstall it with: apt install g++\n{}\n{}", name, result.output));
  }
  Compiler compiler{result.output, features_of(result.output)};
  known.emplace(name, compiler);
  return compiler;
}

BuiltKernels build_kernels(const std::vector<KernelText>& kernels, const CpuTargetOptions& options) {
  const Compiler compiler = probe_compiler(options);
  const Cache cache(options.cache.directory);
  const std::string common_key = Cache::key(common_material(compiler, options));

  std::map<std::string, Unit> units;  // by key, so that the image does not depend on the order of the plan's kernels
  std::vector<const Unit*> unit_of;
  std::string image_material = common_key;
  for (const KernelText& kernel : kernels) {
    Unit unit = make_unit(kernel, common_key);
    image_material += fmt::format("\n{}={}", kernel.name, unit.key);
    const std::string key = unit.key;
    unit_of.push_back(&units.try_emplace(key, std::move(unit)).first->second);
  }

  BuiltKernels out;
  out.features = compiler.features;
  const std::string image_key = Cache::key(image_material);
  std::optional<std::string> image = cache.find(image_key);
  if (!image) {
    const PrivateDirectory work(cache.writable_directory());
    for (const TextFile& file : text_files()) write_file(work.path() / file.name, file.content);
    std::vector<Unit*> all;
    for (auto& [key, unit] : units) all.push_back(&unit);
    make_objects(all, options, cache, work.path());
    image = link_image(kernels, unit_of, units, options, work.path());
    cache.store(image_key, *image);
  }
  out.files["image.so"] = std::move(*image);
  for (const TextFile& file : text_files()) out.files[fmt::format("kernels/{}", file.name)] = std::string(file.content);
  for (const KernelText& kernel : kernels) {
    ir::Kernel entry;
    entry.name = entry.symbol = kernel.name;
    entry.image = "image.so";
    entry.source = fmt::format("kernels/{}.cpp", kernel.name);
    out.files[entry.source] = "#include \"vocabulary.h\"\n" + kernel.text;
    out.kernels.push_back(std::move(entry));
  }
  return out;
}

}  // namespace ingot::codegen::cpu
