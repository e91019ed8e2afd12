#include "runtime/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/base/error.h"

namespace ingot::runtime {
namespace {

TokenFormat detected(const std::string& path) {
  if (path.ends_with(".u16")) return TokenFormat::u16;
  if (path.ends_with(".i32")) return TokenFormat::i32;
  return TokenFormat::bytes;
}

int64_t width_of(TokenFormat format) { return format == TokenFormat::bytes ? 1 : format == TokenFormat::u16 ? 2 : 4; }

int64_t token_at(const std::byte* bytes, int64_t width) {
  if (width == 1) return std::to_integer<int64_t>(*bytes);
  if (width == 2) {
    uint16_t id;
    std::memcpy(&id, bytes, 2);
    return id;
  }
  int32_t id;
  std::memcpy(&id, bytes, 4);
  return id;
}

}  // namespace

TokenFormat token_format_named(const std::string& name) {
  if (name == "auto") return TokenFormat::detect;
  if (name == "bytes") return TokenFormat::bytes;
  if (name == "u16") return TokenFormat::u16;
  if (name == "i32") return TokenFormat::i32;
  throw ir::UserError(ir::Loc{}, fmt::format("token format '{}'; it is auto, bytes, u16 or i32", name));
}

TokenData::TokenData(const std::string& path, const DataOptions& options) : file_(path), options_(options) {
  ir::check(options.time > 0 && options.batch > 0 && options.vocab > 0, "TokenData: sizes must be positive");
  if (!(options.holdout >= 0 && options.holdout < 1)) {
    throw ir::UserError(ir::Loc{}, fmt::format("a hold-out of {}; it is a share from 0 to below 1", options.holdout));
  }
  if (options_.format == TokenFormat::detect) options_.format = detected(path);
  width_ = width_of(options_.format);
  const ir::Loc loc = ir::make_loc(path, 0, 0);
  if (file_.size() % width_ != 0) {
    throw ir::UserError(loc, fmt::format("{} bytes are no whole number of {}-byte tokens", file_.size(), width_));
  }
  tokens_ = file_.size() / width_;
  windows_ = std::max<int64_t>(tokens_ - 1, 0) / options.time;
  const int64_t least = options.least > 0 ? options.least : options.batch;
  if (windows_ < least) {
    throw ir::UserError(
        loc, fmt::format("too short: have {} tokens, need {} (one step takes {} windows of {} tokens, and one token more)",
                         tokens_, least * options.time + 1, least, options.time));
  }
  const auto held = static_cast<int64_t>(std::floor(options.holdout * static_cast<double>(windows_)));
  train_windows_ = std::max(windows_ - held, least);
}

void TokenData::refuse_id(int64_t id, int64_t offset) const {
  throw ir::UserError(ir::make_loc(path(), 0, 0), fmt::format("token {} at byte {} is outside the vocabulary of {} (ids 0 .. {})",
                                                              id, offset, options_.vocab, options_.vocab - 1));
}

void TokenData::check_ids() const {
  if (width_ < 4 && options_.vocab >= int64_t{1} << (8 * width_)) return;
  const int64_t used = windows_ * options_.time + 1, end = used * width_;
  std::vector<std::byte> block(size_t{1} << 20);
  for (int64_t at = 0; at < end; at += static_cast<int64_t>(block.size())) {
    const int64_t size = std::min(static_cast<int64_t>(block.size()), end - at);
    file_.read(at, block.data(), size);
    for (int64_t i = 0; i < size; i += width_) {
      const int64_t id = token_at(block.data() + i, width_);
      if (id < 0 || id >= options_.vocab) refuse_id(id, at + i);
    }
  }
}

std::string TokenData::fingerprint() const {
  const int64_t size = file_.size(), part = std::min<int64_t>(size, int64_t{1} << 20);
  std::vector<std::byte> bytes(static_cast<size_t>(part));
  Checksum sum;
  for (const int64_t offset : {int64_t{0}, size - part}) {
    file_.read(offset, bytes.data(), part);
    sum.add(bytes.data(), bytes.size());
  }
  return sum.text();
}

Batch TokenData::empty_batch() const {
  const ir::Type type{ir::DType::i32, {options_.batch, options_.time}};
  return {HostTensor(type), HostTensor(type)};
}

void TokenData::read_window(int64_t window, int64_t row, Batch& batch) const {
  const int64_t time = options_.time, first = window * time;
  std::vector<std::byte> bytes(static_cast<size_t>((time + 1) * width_));
  file_.read(first * width_, bytes.data(), static_cast<int64_t>(bytes.size()));
  auto* tokens = reinterpret_cast<int32_t*>(batch.tokens.bytes.data()) + row * time;
  auto* targets = reinterpret_cast<int32_t*>(batch.targets.bytes.data()) + row * time;
  for (int64_t i = 0; i <= time; ++i) {
    const int64_t id = token_at(bytes.data() + i * width_, width_);
    if (id < 0 || id >= options_.vocab) refuse_id(id, (first + i) * width_);
    if (i < time) tokens[i] = static_cast<int32_t>(id);
    if (i > 0) targets[i - 1] = static_cast<int32_t>(id);
  }
}

Batch TokenData::train_batch(int64_t position) const {
  Batch batch = empty_batch();
  for (int64_t row = 0; row < options_.batch; ++row) read_window((position + row) % train_windows_, row, batch);
  return batch;
}

Batch TokenData::stretch_batch(int64_t position) const {
  Batch batch = empty_batch();
  const int64_t window = position / options_.batch % stretch();
  for (int64_t row = 0; row < options_.batch; ++row) read_window(row * stretch() + window, row, batch);
  return batch;
}

Batch TokenData::held_batch(int64_t index, int64_t ignore) const {
  Batch batch = empty_batch();
  auto* targets = reinterpret_cast<int32_t*>(batch.targets.bytes.data());
  for (int64_t row = 0; row < options_.batch; ++row) {
    if (index + row < held_windows()) {
      read_window(train_windows_ + index + row, row, batch);
    } else {
      std::fill_n(targets + row * options_.time, options_.time, static_cast<int32_t>(ignore));
    }
  }
  return batch;
}

}  // namespace ingot::runtime
