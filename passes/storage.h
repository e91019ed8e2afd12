// What a value of a core graph is when it must be stored: which buffer it shows and in which dtype.
//
// Under bf16 or f16 a float with rows (batch * time of them) that one kernel makes and another reads is stored in the compute
// dtype, rounded where it is made, and every reader sees the rounded value, those in its own kernel too. Not so: statistics (one
// number per row or head), what no rows run through (parameters, their gradients, column sums), values whose name is pinned,
// what the optimizer reads or a variable takes over, what an op that is no row op reads in f32, a product with a bias (the pass
// `bias` has settled what it is stored as), and what stands before the first
// product or kernel: a model has one such value (its embedded tokens) and every rounding of it reaches all that follows (two
// RWKV-7 blocks against float64: the worst gradient is 4.3% off without that rounding, 9.7% with it; every other one is
// harmless).
//
// A value and its twins (equal formulas of equal operands in another phase, made by `recompute`) are rounded alike or not at all:
// a backward that computes with other digits than the forward did is wrong by far more than either rounding.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "passes/pass.h"

namespace ingot::passes {

struct StorageOptions {
  std::optional<ir::DType> narrow;  ///< bf16 or f16; absent: everything is stored as it is typed
  int64_t rows = 0;                 ///< batch * time; 0: nothing is narrowed
  std::vector<std::string> pins;    ///< globs of value names that stay f32
};

class Storage {
 public:
  Storage(const ir::Graph& graph, StorageOptions options);

  /// Does the op only show its operand's bytes (views, casts to a wider float, casts that storing does anyway) or make its result
  /// from nothing (constants)? Such ops belong to no kernel: whoever reads them takes them along.
  bool along(ir::OpId op) const { return along_[op]; }
  /// The value behind views and casts that show its bytes.
  ir::ValueId base(ir::ValueId value) const { return base_[value]; }
  /// May the value be stored in `narrow`?
  bool narrows(ir::ValueId value) const { return narrows_[value]; }
  /// Bytes of a value when it is stored.
  int64_t bytes(ir::ValueId value) const;
  /// Equal for a value and its twins.
  uint32_t twins(ir::ValueId value) const { return twins_[value]; }
  const StorageOptions& options() const { return options_; }

 private:
  void find_twins();
  void find_candidates();
  void find_bases();
  bool has_rows(const ir::Op& op) const;
  bool pinned(ir::ValueId value) const;
  std::vector<bool> refused_twins() const;
  bool takes_narrow(const ir::Op& op, size_t operand) const;

  const ir::Graph& graph_;
  StorageOptions options_;
  std::vector<uint32_t> twins_;
  std::vector<bool> rows_, narrows_, along_;
  std::vector<ir::ValueId> base_;
};

/// From a pass's options: `narrow` (a dtype) and `rows` (default: preferred_rows), and the module's pins.
StorageOptions storage_options(const ir::Graph& graph, const PassContext& context);

/// Batch times time: the elements of the first two-axis integer input; 0 when there is none.
int64_t preferred_rows(const ir::Graph& graph);

/// The operand that a gemm adds to its product, when it has one: in f32 or in the dtype of the result.
inline constexpr size_t kGemmAddend = 2;

/// Does the op only make a float wider? Its result shows its operand unchanged.
bool widens(const ir::Graph& graph, const ir::Op& op);

}  // namespace ingot::passes
