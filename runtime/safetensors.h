// The safetensors format: a JSON header, then the tensors' bytes.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/files.h"
#include "runtime/session.h"

namespace ingot::runtime {

/// Element types that files may hold and this project reads.
enum class FileType : uint8_t { f64, f32, bf16, f16, i64, i32, u8, boolean };
std::string_view file_type_name(FileType type);  ///< "F64", "BF16", ...

struct FileTensor {
  FileType type = FileType::f32;
  ir::Shape shape;
  int64_t offset = 0, bytes = 0;  ///< in the file

  /// "F32[4, 8]"
  std::string text() const;
};

/// An open file. Errors are UserErrors that begin with its path.
class Safetensors {
 public:
  /// Reads and checks the header; refuses truncated and foreign files.
  explicit Safetensors(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, FileTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  /// UserError with the nearest name when there is none.
  const FileTensor& find(const std::string& name) const;
  std::vector<double> read_doubles(const std::string& name) const;
  /// Converted to `dtype` with one rounding.
  HostTensor read(const std::string& name, ir::DType dtype) const;

 private:
  void parse(const std::string& header, int64_t data_begin);

  InputFile file_;
  std::map<std::string, FileTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// What one file is to hold; the tensors are asked for one by one, so that no more than one is in memory.
struct TensorEntry {
  std::string name;
  ir::Type type;
};
struct WrittenFile {
  int64_t bytes = 0;
  std::string checksum;
};
WrittenFile write_safetensors(const std::string& path, const std::vector<TensorEntry>& entries,
                              const std::function<HostTensor(const std::string& name)>& get,
                              const std::map<std::string, std::string>& metadata = {});
WrittenFile write_safetensors(const std::string& path, const std::map<std::string, HostTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace ingot::runtime
