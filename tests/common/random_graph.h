// Random graphs and modules over whatever ops exist: nothing here knows an op by name. Ops are drawn by trying (operands and
// attributes at random until inference accepts them) and from the examples of their definitions.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/op_def.h"

namespace ingot::tests {

/// Deterministic on every machine (the distributions of the standard library are not).
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t bits() { return engine_(); }
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }  ///< 0..n-1
  bool chance(double probability) { return real(0, 1) < probability; }
  double real(double lo, double hi) { return lo + (hi - lo) * (static_cast<double>(engine_() >> 11) * 0x1p-53); }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }
  /// One of the last two with that chance, else any: of values, chains without other readers.
  template <class T>
  const T& pick_recent(const std::vector<T>& list, double share) {
    const auto size = static_cast<int64_t>(list.size());
    return list[static_cast<size_t>(size - 1 - below(chance(share) && size > 2 ? 2 : size))];
  }

 private:
  std::mt19937_64 engine_;
};

struct RandomGraphOptions {
  uint64_t seed = 0;
  ir::Level level = ir::Level::model;
  int ops = 10;  ///< beside inputs and variables
  /// Which ops may occur; empty = all that are legal at the level.
  std::function<bool(const ir::OpDef&)> accept;
  /// Only shapes and values that a plain run can take: no odd names, reals, places or phases.
  bool odd = false;
  bool variables = true;        ///< read and update variables
  bool regions = false;         ///< wrap some ops in region ops
  int64_t most_elements = 512;  ///< of any value
};

/// A module with one or more graphs whose declarations, ranges and other fields are drawn too. Verified.
ir::Module random_module(const RandomGraphOptions& options);
/// Its first graph alone (variables undeclared).
ir::Graph random_graph(const RandomGraphOptions& options);

/// Values for every input (or every variable) of a graph, by name: floats uniform in lo..hi, integers within the module's range
/// of that input, else 0 or 1.
std::map<std::string, ir::Tensor> random_inputs(const ir::Graph& graph, Random& random, double lo = -1, double hi = 1,
                                                const std::vector<ir::InputRange>& ranges = {});
std::map<std::string, ir::Tensor> random_variables(const ir::Graph& graph, Random& random, double lo = -1, double hi = 1);

/// A text with blanks, quotes, escapes and letters of several scripts.
std::string odd_text(Random& random);

}  // namespace ingot::tests
