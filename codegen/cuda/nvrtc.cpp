#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

#include "ir/base/error.h"

namespace ingot::codegen::cuda {

/// The part of NVRTC's interface that is used, as its documentation gives it.
struct Nvrtc::Functions {
  using Program = void*;
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*create)(Program*, const char* text, const char* name, int headers, const char* const* contents,
                const char* const* names) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int options, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;

  bool load(void* library) {
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find(version, "nvrtcVersion") && find(error_string, "nvrtcGetErrorString") && find(create, "nvrtcCreateProgram") &&
           find(destroy, "nvrtcDestroyProgram") && find(compile, "nvrtcCompileProgram") &&
           find(log_size, "nvrtcGetProgramLogSize") && find(log, "nvrtcGetProgramLog") && find(cubin_size, "nvrtcGetCUBINSize") &&
           find(cubin, "nvrtcGetCUBIN");
  }
};

namespace {

std::vector<std::string> candidates(const std::string& home) {
  std::vector<std::string> folders = {""};
  if (!home.empty()) folders.push_back(home + "/lib64/");
  folders.push_back("/usr/local/cuda/lib64/");
  folders.push_back("/opt/cuda/lib64/");
  std::vector<std::string> out;
  for (const std::string& folder : folders) {
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"}) out.push_back(folder + name);
  }
  return out;
}

}  // namespace

bool Nvrtc::load(const std::string& home) {
  for (const std::string& path : candidates(home)) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    static Functions functions;
    int major = 0, minor = 0;
    if (!functions.load(library) || functions.version(&major, &minor) != 0) continue;
    functions_ = &functions;
    version_ = fmt::format("{}.{}", major, minor);
    if (std::pair(major, minor) >= std::pair(12, 9)) afresh_ = "--no-cache";
    return true;
  }
  return false;
}

bool Nvrtc::found() {
  static const bool there = [] {
    Nvrtc nvrtc;
    return nvrtc.load("");
  }();
  return there;
}

const Nvrtc& Nvrtc::get(const std::string& home) {
  static const std::unique_ptr<const Nvrtc> nvrtc = [&home] {
    std::unique_ptr<Nvrtc> made(new Nvrtc);
    return made->load(home) ? std::move(made) : nullptr;
  }();
  if (nvrtc == nullptr) {
    throw ir::MachineError(
        "no NVRTC: libnvrtc.so (CUDA 11.4 or newer), which compiles the kernels of a CUDA plan, is in no library path nor under "
        "/usr/local/cuda; install the CUDA toolkit, or of NVIDIA's package repository only: apt install cuda-nvrtc-13-0");
  }
  return *nvrtc;
}

Compiled Nvrtc::compile(const std::string& name, const std::string& text, const std::vector<Header>& headers,
                        const std::vector<std::string>& options) const {
  const Functions& f = *functions_;
  const auto need = [&](int status, const char* what) {
    if (status != 0) throw ir::InternalError(fmt::format("NVRTC cannot {}: {}", what, f.error_string(status)));
  };
  std::vector<std::string> contents;  // NUL-terminated
  std::vector<const char*> content_list, name_list, option_list;
  for (const Header& header : headers) contents.emplace_back(header.content);
  for (size_t i = 0; i < headers.size(); ++i) {
    content_list.push_back(contents[i].c_str());
    name_list.push_back(headers[i].name.c_str());
  }
  for (const std::string& option : options) option_list.push_back(option.c_str());

  Functions::Program program = nullptr;
  need(f.create(&program, text.c_str(), name.c_str(), static_cast<int>(headers.size()), content_list.data(), name_list.data()),
       "take a text");
  const auto destroy = [&](Functions::Program*) { f.destroy(&program); };
  const std::unique_ptr<Functions::Program, decltype(destroy)> guard(&program, destroy);

  Compiled out;
  out.ok = f.compile(program, static_cast<int>(option_list.size()), option_list.data()) == 0;
  size_t size = 0;
  need(f.log_size(program, &size), "say how long its log is");
  out.log.resize(size);
  need(f.log(program, out.log.data()), "give its log");
  while (!out.log.empty() && (out.log.back() == '\0' || out.log.back() == '\n')) out.log.pop_back();
  if (!out.ok) return out;
  need(f.cubin_size(program, &size), "say how long the code is");
  out.cubin.resize(size);
  need(f.cubin(program, out.cubin.data()), "give the code");
  return out;
}

}  // namespace ingot::codegen::cuda
