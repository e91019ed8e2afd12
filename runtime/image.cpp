#include "runtime/image.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ir/base/error.h"

namespace ingot::runtime {
namespace {

bool write_all(int file, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

std::string file_path(int file) { return fmt::format("/proc/self/fd/{}", file); }

}  // namespace

// The loader knows an object by the name it was opened with, so the descriptor must stay open (its number taken) for as long
// as the object is loaded; else a second image could get the same number and be taken for the first.
Image::Image(const std::string& name, const std::string& bytes) : name_(name) {
  file_ = memfd_create("ingot-image", MFD_CLOEXEC);
  if (file_ < 0) {  // an old kernel or a sandbox: a file without a name does as well
    char path[] = "/tmp/ingot-image-XXXXXX";
    file_ = mkostemp(path, 0);
    if (file_ >= 0) unlink(path);
  }
  if (file_ < 0 || !write_all(file_, bytes)) {
    const std::string why = std::strerror(errno);
    if (file_ >= 0) close(file_);
    throw ir::MachineError(fmt::format("cannot hold the kernels of {} in memory: {}", name, why));
  }
  handle_ = dlopen(file_path(file_).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) {
    const std::string why = dlerror();
    close(file_);
    throw ir::MachineError(fmt::format("cannot load the kernels {}: {}", name, why));
  }
}

Image::Image(Image&& other) noexcept
    : name_(std::move(other.name_)), file_(std::exchange(other.file_, -1)), handle_(std::exchange(other.handle_, nullptr)) {}

Image::~Image() {
  if (!handle_) return;
  dlclose(handle_);
  void* still = dlopen(file_path(file_).c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (still) {
    dlclose(still);  // an object that cannot be unloaded keeps its number
  } else {
    close(file_);
  }
}

KernelFunction Image::find(const std::string& symbol) const {
  void* found = dlsym(handle_, symbol.c_str());
  if (!found) throw ir::UserError(ir::Loc{}, fmt::format("bad plan: image {} has no function '{}'", name_, symbol));
  return reinterpret_cast<KernelFunction>(found);
}

}  // namespace ingot::runtime
