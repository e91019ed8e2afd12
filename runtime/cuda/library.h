// A shared library opened when it is needed: one program for machines with and without a GPU.
#pragma once
#include <string>
#include <vector>

namespace ingot::runtime::cuda {

class Library {
 public:
  /// Opens the first of `names` that loads. MachineError: "`what` was not found (tried ...); `remedy`".
  Library(const std::string& what, const std::vector<std::string>& names, const std::string& remedy);

  /// MachineError when the library, too old or foreign, lacks the symbol.
  void* symbol(const char* name) const;
  template <class Function>
  void load(Function*& to, const char* name) const {
    to = reinterpret_cast<Function*>(symbol(name));
  }

 private:
  std::string what_, remedy_;
  void* handle_ = nullptr;  ///< never closed: a driver's threads and exit handlers run in it
};

}  // namespace ingot::runtime::cuda
