// Training data: a file of tokens, cut into consecutive windows.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/files.h"
#include "runtime/session.h"

namespace ingot::runtime {

/// bytes: each byte is a token. u16, i32: little-endian ids. detect: by the file's suffix (.u16, .i32), else bytes.
enum class TokenFormat : uint8_t { detect, bytes, u16, i32 };
TokenFormat token_format_named(const std::string& name);  ///< UserError for another name

struct DataOptions {
  TokenFormat format = TokenFormat::detect;
  int64_t time = 0;       ///< tokens a window
  int64_t batch = 1;      ///< windows taken together
  int64_t vocab = 0;      ///< ids are 0 .. vocab - 1
  double holdout = 0.05;  ///< share of the windows at the end that is kept for validation
  int64_t least = 0;      ///< training windows there must be; 0 = batch
};

/// Tokens and targets of one batch, i32[batch, time]; targets are the tokens one later, or `ignore` in rows beyond the data.
struct Batch {
  HostTensor tokens, targets;
};

/// Window s covers tokens s*time .. (s+1)*time, both ends included (its targets reach one further), for all s that fit.
/// The last windows are held out: as many whole ones as the share asks, but never so many that fewer than `least` remain.
class TokenData {
 public:
  /// UserError when there are too few tokens: says how many there are and how many are needed.
  TokenData(const std::string& path, const DataOptions& options);

  const std::string& path() const { return file_.path(); }
  int64_t tokens() const { return tokens_; }
  int64_t train_windows() const { return train_windows_; }
  int64_t held_windows() const { return windows_ - train_windows_; }
  /// UserError at the first id outside the vocabulary: reads the whole file once, unless its format can hold no such id.
  void check_ids() const;
  /// A checksum of the first and last MiB: tells files apart without reading all of a large one.
  std::string fingerprint() const;

  /// Training windows position .. position + batch - 1, wrapping to the first after the last.
  Batch train_batch(int64_t position) const;
  /// Windows of a stretch of the data that one row of the batch reads: the training windows shared out among the rows, what
  /// does not go round left out.
  int64_t stretch() const { return train_windows_ / options_.batch; }
  /// One window of each row's own stretch, after `position` windows were taken (a multiple of batch): row b gets window
  /// b*stretch + position/batch, and its first one again after its last.
  Batch stretch_batch(int64_t position) const;
  /// Does every row begin its stretch there?
  bool begins_stretch(int64_t position) const { return position / options_.batch % stretch() == 0; }
  /// Held-out windows from `index`; rows past the last one have targets that are all `ignore`.
  Batch held_batch(int64_t index, int64_t ignore) const;

 private:
  [[noreturn]] void refuse_id(int64_t id, int64_t offset) const;
  void read_window(int64_t window, int64_t row, Batch& batch) const;
  Batch empty_batch() const;

  InputFile file_;
  DataOptions options_;
  int64_t width_ = 1, tokens_ = 0, windows_ = 0, train_windows_ = 0;
};

}  // namespace ingot::runtime
