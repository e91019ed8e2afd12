#include "runtime/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/convert.h"

namespace ingot::runtime {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLongestHeader = 100'000'000;  // the format's own limit

struct TypeRow {
  std::string_view name;
  int64_t bytes;
};
constexpr TypeRow kTypes[] = {{"F64", 8}, {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"I64", 8}, {"I32", 4}, {"U8", 1}, {"BOOL", 1}};

const TypeRow& row(FileType type) { return kTypes[static_cast<size_t>(type)]; }

std::optional<FileType> type_named(const std::string& name) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i].name == name) return static_cast<FileType>(i);
  }
  return std::nullopt;
}

FileType file_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f32:
      return FileType::f32;
    case ir::DType::bf16:
      return FileType::bf16;
    case ir::DType::f16:
      return FileType::f16;
    case ir::DType::i32:
      return FileType::i32;
    case ir::DType::i64:
      return FileType::i64;
    case ir::DType::boolean:
      return FileType::boolean;
  }
  throw ir::InternalError("a dtype without a file type");
}

// The dtype with the same bytes; nothing for F64 and U8, which only files have.
std::optional<ir::DType> same_dtype(FileType type) {
  switch (type) {
    case FileType::f32:
      return ir::DType::f32;
    case FileType::bf16:
      return ir::DType::bf16;
    case FileType::f16:
      return ir::DType::f16;
    case FileType::i32:
      return ir::DType::i32;
    case FileType::i64:
      return ir::DType::i64;
    case FileType::boolean:
      return ir::DType::boolean;
    case FileType::f64:
    case FileType::u8:
      return std::nullopt;
  }
  return std::nullopt;
}

double load(FileType type, const std::byte* from) {
  if (const auto dtype = same_dtype(type)) return load_double(*dtype, from);
  if (type == FileType::u8) return static_cast<double>(std::to_integer<int>(*from));
  double value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

[[noreturn]] void bad_file(const std::string& path, const std::string& sentence) {
  throw ir::UserError(ir::make_loc(path, 0, 0), sentence);
}

const Json& member(const Json& object, const char* key, const std::string& path, const std::string& tensor) {
  const auto it = object.find(key);
  if (it == object.end()) bad_file(path, fmt::format("tensor {} has no \"{}\"", ir::quoted(tensor), key));
  return *it;
}

int64_t size_value(const Json& value, const std::string& path, const std::string& tensor) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > (uint64_t{1} << 56)) {
    bad_file(path, fmt::format("tensor {}: {} is no size", ir::quoted(tensor), value.dump()));
  }
  return static_cast<int64_t>(value.get<uint64_t>());
}

FileTensor parse_tensor(const std::string& name, const Json& entry, const std::string& path, int64_t data_begin,
                        int64_t data_bytes) {
  if (!entry.is_object()) bad_file(path, fmt::format("tensor {} is no object in the header", ir::quoted(name)));
  FileTensor tensor;
  const Json& dtype = member(entry, "dtype", path, name);
  const auto type = type_named(dtype.is_string() ? dtype.get<std::string>() : "");
  if (!type)
    bad_file(path, fmt::format("tensor {} has the element type {}, which is not read here", ir::quoted(name), dtype.dump()));
  tensor.type = *type;
  const Json& shape = member(entry, "shape", path, name);
  const Json& offsets = member(entry, "data_offsets", path, name);
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2) {
    bad_file(path, fmt::format("tensor {} has no shape and two data_offsets", ir::quoted(name)));
  }
  double elements = 1;
  for (const Json& size : shape) {
    tensor.shape.push_back(size_value(size, path, name));
    elements *= static_cast<double>(tensor.shape.back());
  }
  const int64_t begin = size_value(offsets[0], path, name), end = size_value(offsets[1], path, name);
  if (begin > end || static_cast<double>(end - begin) != elements * static_cast<double>(row(*type).bytes)) {
    bad_file(path, fmt::format("tensor {} is {} but has {} bytes", ir::quoted(name), tensor.text(), end - begin));
  }
  if (end > data_bytes) {
    bad_file(path,
             fmt::format("truncated: tensor {} ends at byte {} of the data, there are {}", ir::quoted(name), end, data_bytes));
  }
  tensor.offset = data_begin + begin;
  tensor.bytes = end - begin;
  return tensor;
}

void check_overlaps(const std::map<std::string, FileTensor>& tensors, const std::string& path) {
  std::vector<std::pair<int64_t, const std::string*>> order;
  for (const auto& [name, t] : tensors) {
    if (t.bytes > 0) order.emplace_back(t.offset, &name);
  }
  std::sort(order.begin(), order.end());
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1].first + tensors.at(*order[i - 1].second).bytes > order[i].first) {
      bad_file(path, fmt::format("tensors {} and {} overlap", ir::quoted(*order[i - 1].second), ir::quoted(*order[i].second)));
    }
  }
}

std::string header_text(const std::vector<TensorEntry>& entries, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const TensorEntry& e : entries) {
    ir::check(!header.contains(e.name), "write_safetensors: two tensors named " + e.name);
    header[e.name] = {{"dtype", row(file_type(e.type.dtype)).name},
                      {"shape", e.type.shape},
                      {"data_offsets", {offset, offset + e.type.bytes()}}};
    offset += e.type.bytes();
  }
  std::string text = header.is_null() ? "{}" : header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data begins aligned
  return text;
}

}  // namespace

std::string_view file_type_name(FileType type) { return row(type).name; }

std::string FileTensor::text() const { return std::string(file_type_name(type)) + ir::shape_text(shape); }

Safetensors::Safetensors(const std::string& path) : file_(path) {
  uint64_t length = 0;
  if (file_.size() < 8) bad_file(path, fmt::format("not a safetensors file: {} bytes", file_.size()));
  file_.read(0, &length, 8);
  if (length > kLongestHeader) bad_file(path, "not a safetensors file: its first eight bytes are no header length");
  if (static_cast<int64_t>(length) > file_.size() - 8) {
    bad_file(path, fmt::format("truncated: a header of {} bytes in a file of {}", length, file_.size()));
  }
  std::string header(length, '\0');
  file_.read(8, header.data(), static_cast<int64_t>(length));
  parse(header, 8 + static_cast<int64_t>(length));
}

void Safetensors::parse(const std::string& header, int64_t data_begin) {
  const Json json = Json::parse(header, nullptr, false);
  if (!json.is_object()) bad_file(path(), "not a safetensors file: its header is no JSON object");
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) bad_file(path(), "__metadata__ is no object");
      for (const auto& [key, value] : entry.items()) metadata_[key] = value.is_string() ? value.get<std::string>() : value.dump();
    } else {
      tensors_[name] = parse_tensor(name, entry, path(), data_begin, file_.size() - data_begin);
    }
  }
  check_overlaps(tensors_, path());
}

const FileTensor& Safetensors::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it != tensors_.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : tensors_) names.push_back(known);
  const std::string near = ir::nearest_name(name, names);
  bad_file(path(), fmt::format("no tensor named {}{}", ir::quoted(name),
                               near.empty() ? "" : fmt::format("; did you mean {}?", ir::quoted(near))));
}

std::vector<double> Safetensors::read_doubles(const std::string& name) const {
  const FileTensor& tensor = find(name);
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
  file_.read(tensor.offset, bytes.data(), tensor.bytes);
  const int64_t width = row(tensor.type).bytes;
  std::vector<double> values(static_cast<size_t>(tensor.bytes / width));
  for (size_t i = 0; i < values.size(); ++i) values[i] = load(tensor.type, bytes.data() + i * static_cast<size_t>(width));
  return values;
}

HostTensor Safetensors::read(const std::string& name, ir::DType dtype) const {
  const FileTensor& tensor = find(name);
  if (same_dtype(tensor.type) != dtype) return HostTensor::from_doubles({dtype, tensor.shape}, read_doubles(name));
  HostTensor out({dtype, tensor.shape});
  file_.read(tensor.offset, out.bytes.data(), tensor.bytes);
  return out;
}

WrittenFile write_safetensors(const std::string& path, const std::vector<TensorEntry>& entries,
                              const std::function<HostTensor(const std::string& name)>& get,
                              const std::map<std::string, std::string>& metadata) {
  const std::string header = header_text(entries, metadata);
  const uint64_t length = header.size();
  OutputFile file(path);
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  for (const TensorEntry& e : entries) {
    const HostTensor tensor = get(e.name);
    ir::check(tensor.type == e.type, "write_safetensors: " + e.name + " is not of its announced type");
    file.write(tensor.bytes.data(), tensor.bytes.size());
  }
  file.commit();
  return {file.size(), file.checksum()};
}

WrittenFile write_safetensors(const std::string& path, const std::map<std::string, HostTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.type});
  return write_safetensors(
      path, entries, [&](const std::string& name) { return tensors.at(name); }, metadata);
}

}  // namespace ingot::runtime
