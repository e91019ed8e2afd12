// The kernels of a plan under construction: equal texts share one.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "codegen/target.h"

namespace ingot::codegen {

class KernelPool {
 public:
  /// The kernel's name: the launch's stem and a hash of its text, so it says what runs and stays the same from plan to plan.
  std::string add(const Launch& launch);
  /// Compiles all of them: kernels, files and features go into the plan.
  void build(const Target& target, ir::Plan& plan) const;

 private:
  struct Entry {
    KernelText text;
    int args = 0, sizes = 0, threads = 0, shared_bytes = 0;
  };
  std::vector<Entry> entries_;
  std::map<std::string, size_t> by_text_, by_name_;
};

}  // namespace ingot::codegen
