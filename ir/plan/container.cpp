// name.plan: a stored zip whose archive comment is "ingot plan VERSION seal HASH", HASH being that of every byte before it. So a
// truncated, foreign or altered file is known before anything in it is believed, whichever byte it is.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "ir/plan/format.h"
#include "ir/plan/plan.h"

namespace ingot::ir {
namespace {

constexpr size_t kHashDigits = 16;
constexpr std::string_view kSeal = " seal ";

std::string comment(uint64_t hash) { return fmt::format("{} {}{}{:016x}", kPlanMagic, kPlanFormat, kSeal, hash); }

// ---------------------------------------------------------------- zip in memory

struct ArchiveDiscard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct SourceFree {
  void operator()(zip_source_t* source) const { zip_source_free(source); }
};
struct FileClose {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using ArchivePtr = std::unique_ptr<zip_t, ArchiveDiscard>;
using SourcePtr = std::unique_ptr<zip_source_t, SourceFree>;
using FilePtr = std::unique_ptr<zip_file_t, FileClose>;

[[noreturn]] void zip_bug(std::string_view what, zip_error_t* error) {
  throw InternalError(fmt::format("zip: {}: {}", what, zip_error_strerror(error)));
}

void add_file(zip_t* archive, const std::string& name, const std::string& text) {
  zip_source_t* source = zip_source_buffer(archive, text.data(), text.size(), 0);
  if (!source) zip_bug(name, zip_get_error(archive));
  const zip_int64_t index = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    zip_bug(name, zip_get_error(archive));
  }
  const auto at = static_cast<zip_uint64_t>(index);
  // 1 January 1980: the container's bytes depend on the plan alone.
  if (zip_set_file_compression(archive, at, ZIP_CM_STORE, 0) != 0 || zip_file_set_dostime(archive, at, 0, 0x21, 0) != 0) {
    zip_bug(name, zip_get_error(archive));
  }
}

std::string read_source(zip_source_t* source) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (zip_source_open(source) != 0 || zip_source_stat(source, &stat) != 0) zip_bug("read back", zip_source_error(source));
  std::string bytes(stat.size, '\0');
  const zip_int64_t got = zip_source_read(source, bytes.data(), bytes.size());
  zip_source_close(source);
  check(got == static_cast<zip_int64_t>(bytes.size()), "zip: read back short");
  return bytes;
}

std::string pack(const Plan& plan) {
  check(!plan.files.contains(std::string(kPlanText)), "a plan's file is named plan.txt");
  const std::string text = print_plan(plan);  // zip reads it at close, so it lives until then
  zip_error_t error;
  zip_error_init(&error);
  SourcePtr source(zip_source_buffer_create(nullptr, 0, 0, &error));
  if (!source) zip_bug("create", &error);
  ArchivePtr archive(zip_open_from_source(source.get(), ZIP_TRUNCATE, &error));
  if (!archive) zip_bug("open", &error);
  zip_source_keep(source.get());
  add_file(archive.get(), std::string(kPlanText), text);
  for (const auto& [name, contents] : plan.files) add_file(archive.get(), name, contents);
  const std::string placeholder = comment(0);
  if (zip_set_archive_comment(archive.get(), placeholder.data(), static_cast<zip_uint16_t>(placeholder.size())) != 0 ||
      zip_close(archive.get()) != 0) {
    zip_bug("close", zip_get_error(archive.get()));
  }
  (void)archive.release();
  std::string bytes = read_source(source.get());
  check(bytes.ends_with(placeholder), "zip: the comment is not at the end");
  const std::string_view sealed(bytes.data(), bytes.size() - kHashDigits);
  bytes.replace(sealed.size(), kHashDigits, fmt::format("{:016x}", hash64(sealed)));
  return bytes;
}

// ---------------------------------------------------------------- files

[[noreturn]] void write_failed(const std::string& path, size_t bytes, int error) {
  throw MachineError(fmt::format("cannot write {} ({} bytes): {}", path, bytes, std::strerror(error)));
}

struct Descriptor {
  int fd;
  explicit Descriptor(int f) : fd(f) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// 0, or the errno of what failed.
int write_synced(const std::string& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.fd < 0) return errno;
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file.fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  if (::fsync(file.fd) != 0) return errno;
  const int closed = ::close(file.fd);
  file.fd = -1;
  return closed == 0 ? 0 : errno;
}

int sync_directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  Descriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.fd < 0) return errno;
  return ::fsync(file.fd) == 0 ? 0 : errno;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) { throw UserError(make_loc(path, 0, 0), why); }

std::string read_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (file.fd < 0 || ::fstat(file.fd, &status) != 0) refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) refuse(path, "is no file");
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file.fd, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    if (got == 0) break;  // it shrank; the seal will tell
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

// ---------------------------------------------------------------- reading

// Local header of a first entry named plan.txt: 30 bytes, then the name.
bool begins_like_a_plan(std::string_view bytes) {
  return bytes.starts_with("PK\x03\x04") && bytes.size() >= 30 + kPlanText.size() &&
         bytes.substr(30, kPlanText.size()) == kPlanText;
}

void check_seal(const std::string& path, std::string_view bytes) {
  const size_t from = bytes.size() > 100 ? bytes.size() - 100 : 0;
  const size_t at = bytes.substr(from).rfind(kPlanMagic);
  if (at == std::string_view::npos || !bytes.starts_with("PK")) {
    refuse(path, begins_like_a_plan(bytes) ? "is truncated or damaged: its end is missing" : "is not an Ingot plan");
  }
  const std::string_view tail = bytes.substr(from + at);
  int version = 0;
  const char* digits = tail.data() + std::min(kPlanMagic.size() + 1, tail.size());
  const auto [stop, error] = std::from_chars(digits, tail.data() + tail.size(), version);
  if (error == std::errc() && version != kPlanFormat) {
    refuse(path, fmt::format("has plan format {}; this program reads format {}: compile the model again", version, kPlanFormat));
  }
  const std::string_view sealed = bytes.substr(0, bytes.size() - std::min(kHashDigits, bytes.size()));
  if (tail != comment(hash64(sealed))) refuse(path, "is damaged: its contents do not match its seal");
}

std::string read_entry(const std::string& path, zip_t* archive, zip_uint64_t index, size_t limit) {
  zip_stat_t stat;
  if (zip_stat_index(archive, index, 0, &stat) != 0) refuse(path, fmt::format("is damaged: {}", zip_strerror(archive)));
  constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD;
  if ((stat.valid & kNeeded) != kNeeded || stat.comp_method != ZIP_CM_STORE || stat.size > limit) {
    refuse(path, "is damaged: an entry is compressed or longer than the file");
  }
  std::string text(stat.size, '\0');
  FilePtr file(zip_fopen_index(archive, index, 0));
  char end = 0;  // reading past the last byte makes the library compare the entry's checksum
  if (!file || zip_fread(file.get(), text.data(), text.size()) != static_cast<zip_int64_t>(text.size()) ||
      zip_fread(file.get(), &end, 1) != 0) {
    refuse(path, fmt::format("is damaged: {} cannot be read", quoted(stat.name)));
  }
  return text;
}

std::map<std::string, std::string> unpack(const std::string& path, const std::string& bytes) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (!source) zip_bug("create", &error);
  ArchivePtr archive(zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error));
  if (!archive) {
    zip_source_free(source);
    refuse(path, fmt::format("is damaged: {}", zip_error_strerror(&error)));
  }
  std::map<std::string, std::string> files;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    const char* name = zip_get_name(archive.get(), index, ZIP_FL_ENC_RAW);
    if (!name || !files.emplace(name, read_entry(path, archive.get(), index, bytes.size())).second) {
      refuse(path, "is damaged: two entries have one name");
    }
  }
  return files;
}

}  // namespace

void write_plan(const Plan& plan, const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw MachineError(fmt::format("cannot write {}: it exists and is no file", path));
  }
  const std::string bytes = pack(plan);
  const std::string aside = fmt::format("{}.{}.tmp", path, ::getpid());
  ::unlink(aside.c_str());  // left by a killed process that had our number
  int error = write_synced(aside, bytes);
  if (error == 0 && ::rename(aside.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(aside.c_str());
    write_failed(path, bytes.size(), error);
  }
  if (const int failed = sync_directory_of(path)) write_failed(path, bytes.size(), failed);
}

Plan read_plan(const std::string& path) {
  const std::string bytes = read_file(path);
  check_seal(path, bytes);
  std::map<std::string, std::string> files = unpack(path, bytes);
  const auto text = files.find(std::string(kPlanText));
  if (text == files.end()) refuse(path, "is not an Ingot plan: it holds no plan.txt");
  Plan plan = parse_plan(text->second, path + ":plan.txt");
  files.erase(text);
  plan.files = std::move(files);
  try {
    verify_plan(plan);
  } catch (const UserError& error) {
    refuse(path, error.diagnostics().front().message);
  }
  return plan;
}

}  // namespace ingot::ir
