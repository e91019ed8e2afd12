#include "runtime/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "ir/base/error.h"

namespace ingot::runtime {
namespace {

constexpr int64_t kBlock = 1 << 22;

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

uint64_t mixed(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

}  // namespace

// Four lanes, so that each multiplication need not wait for the last one's.
void Checksum::word(uint64_t value) {
  uint64_t& lane = state_[size_ / 8 % 4];
  lane = std::rotl((lane ^ value) * 0x9E3779B97F4A7C15u, 29);
}

void Checksum::add(const void* bytes, size_t size) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  while (size > 0) {
    if (size_ % 8 == 0 && size >= 8) {
      uint64_t value;
      std::memcpy(&value, at, 8);
      word(value);
      at += 8, size -= 8, size_ += 8;
      continue;
    }
    pending_ |= uint64_t{*at} << (8 * (size_ % 8));
    if (size_ % 8 == 7) word(std::exchange(pending_, 0));
    ++at, --size, ++size_;
  }
}

std::string Checksum::text() const {
  uint64_t sum = mixed(size_ ^ mixed(pending_));
  for (const uint64_t lane : state_) sum = mixed(sum ^ lane);
  return fmt::format("{:016x}", sum);
}

void throw_file_error(const std::string& what, int error) {
  const std::string sentence = fmt::format("cannot {}: {}", what, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG || error == EROFS) throw ir::MachineError(sentence);
  throw ir::UserError(ir::Loc{}, sentence);
}

InputFile::InputFile(const std::string& path) : path_(path) {
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) throw_file_error("read " + path, errno);
  struct stat info {};
  int error = fstat(file_, &info) == 0 ? 0 : errno;
  if (error == 0 && S_ISDIR(info.st_mode)) error = EISDIR;
  if (error != 0) {
    close(file_);
    throw_file_error("read " + path, error);
  }
  size_ = info.st_size;
}

InputFile::~InputFile() {
  if (file_ >= 0) close(file_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(size_, other.size_);
  return *this;
}

void InputFile::read(int64_t offset, void* to, int64_t count) const {
  for (int64_t done = 0; done < count;) {
    const ssize_t n = pread(file_, static_cast<char*>(to) + done, static_cast<size_t>(count - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error("read " + path_, errno);
    if (n == 0) {
      throw ir::UserError(ir::make_loc(path_, 0, 0),
                          fmt::format("the file has become shorter: {} bytes when it was opened, {} now", size_, offset + done));
    }
    done += n;
  }
}

OutputFile::OutputFile(const std::string& path) : path_(path), aside_(fmt::format("{}.tmp-{}", path, getpid())) {
  file_ = open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) throw_file_error("write " + path_, errno);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) close(file_);
  if (!aside_.empty()) unlink(aside_.c_str());
}

void OutputFile::write(const void* bytes, size_t size) {
  checksum_.add(bytes, size);
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(file_, static_cast<const char*>(bytes) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error("write " + path_, errno);
    done += static_cast<size_t>(n);
  }
  size_ += static_cast<int64_t>(size);
}

void OutputFile::commit() {
  if (fsync(file_) != 0) throw_file_error("write " + path_, errno);
  const int closed = close(std::exchange(file_, -1));
  if (closed != 0) throw_file_error("write " + path_, errno);
  if (rename(aside_.c_str(), path_.c_str()) != 0) throw_file_error("write " + path_, errno);
  aside_.clear();
  sync_folder(folder_of(path_));
}

std::string read_file(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

std::string file_checksum(const std::string& path) {
  const InputFile file(path);
  Checksum sum;
  std::vector<char> block(static_cast<size_t>(std::min(kBlock, std::max<int64_t>(file.size(), 1))));
  for (int64_t at = 0; at < file.size(); at += kBlock) {
    const int64_t size = std::min(kBlock, file.size() - at);
    file.read(at, block.data(), size);
    sum.add(block.data(), static_cast<size_t>(size));
  }
  return sum.text();
}

void write_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_file_error("make the folder " + path, error.value());
}

void sync_folder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) throw_file_error("open the folder " + path, errno);
  const int failed = fsync(folder) != 0 ? errno : 0;
  close(folder);
  if (failed != 0 && failed != EINVAL) throw_file_error("sync the folder " + path, failed);  // EINVAL: a file system that cannot
}

}  // namespace ingot::runtime
