// NVRTC, NVIDIA's run-time compiler: CUDA text in, machine code out. Needs no GPU. Loaded when first asked for, so that one
// program serves machines with and without it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ingot::codegen::cuda {

/// A file that a text may include.
struct Header {
  std::string name;
  std::string_view content;
};

struct Compiled {
  bool ok = false;
  std::string cubin;
  std::string log;  ///< of NVRTC, then of ptxas: warnings, and for each kernel its registers and spills
};

class Nvrtc {
 public:
  /// Looks in the loader's own paths, in `home`, then where CUDA is usually installed; what the first call finds stays.
  /// MachineError that says what to install when there is none.
  static const Nvrtc& get(const std::string& home = "");
  /// Is there one? For tests that need it.
  static bool found();

  /// "13.0": part of every cache key.
  const std::string& version() const { return version_; }
  /// A flag under which nothing is taken from what NVRTC keeps of earlier compilations, other processes' among them; before 12.9,
  /// which kept nothing, one that changes nothing.
  const std::string& afresh() const { return afresh_; }
  /// Safe from several threads.
  Compiled compile(const std::string& name, const std::string& text, const std::vector<Header>& headers,
                   const std::vector<std::string>& options) const;

 private:
  Nvrtc() = default;
  bool load(const std::string& home);

  struct Functions;
  const Functions* functions_ = nullptr;
  std::string version_;
  std::string afresh_ = "-DIG_AGAIN";
};

}  // namespace ingot::codegen::cuda
