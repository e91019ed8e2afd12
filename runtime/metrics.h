// metrics.jsonl: one JSON object a line, on disk as soon as its step is done.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ingot::runtime {

class Metrics {
 public:
  /// Appends to the file. A run that goes back to `step` drops the lines of later steps first, so that no step is there twice.
  Metrics(const std::string& path, int64_t step);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Whole numbers print without a point; a value that is not finite prints as null.
  void write(const std::vector<std::pair<std::string, double>>& values);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace ingot::runtime
