// Files that are whole or absent, and reads that survive a file shrinking under them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot::runtime {

/// A 64-bit checksum of a stream of bytes; the same however the stream is cut.
class Checksum {
 public:
  void add(const void* bytes, size_t size);
  /// 16 hexadecimal digits of everything added so far.
  std::string text() const;

 private:
  void word(uint64_t value);

  uint64_t state_[4] = {0x243F6A8885A308D3u, 0x13198A2E03707344u, 0xA4093822299F31D0u, 0x082EFA98EC4E6C89u};
  uint64_t pending_ = 0, size_ = 0;
};

/// A file open for reading through pread, so that another process truncating it is an error and not a crash.
class InputFile {
 public:
  /// UserError naming the path when it cannot be opened or is a folder.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const std::string& path() const { return path_; }
  /// Bytes when it was opened.
  int64_t size() const { return size_; }
  /// Reads exactly `count` bytes; UserError when the file has become shorter.
  void read(int64_t offset, void* to, int64_t count) const;

 private:
  std::string path_;
  int file_ = -1;
  int64_t size_ = 0;
};

/// A file written aside and moved into place when it is complete and on disk. Until commit() nothing is at `path`; a failure
/// leaves nothing behind. Errors are one sentence: MachineError for a full disk or a failing device, UserError for the rest.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* bytes, size_t size);
  /// Flush, fsync, rename, fsync of the folder.
  void commit();
  /// Bytes and checksum of what was written.
  int64_t size() const { return size_; }
  std::string checksum() const { return checksum_.text(); }

 private:
  std::string path_, aside_;
  int file_ = -1;
  int64_t size_ = 0;
  Checksum checksum_;
};

/// The whole file; UserError.
std::string read_file(const std::string& path);
/// Size and checksum of a file as OutputFile counts them; UserError when it cannot be read.
std::string file_checksum(const std::string& path);
void write_file(const std::string& path, std::string_view text);
/// Makes the folder and its parents; errors as OutputFile.
void make_folders(const std::string& path);
void sync_folder(const std::string& path);
/// Throws the error that errno (given) means for an attempt to `what` ("write x.json").
[[noreturn]] void throw_file_error(const std::string& what, int error);

}  // namespace ingot::runtime
