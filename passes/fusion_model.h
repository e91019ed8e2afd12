// What one kernel may hold and what it costs: the rules and prices by which groups are found and judged.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "passes/group_keys.h"
#include "passes/region.h"
#include "passes/storage.h"

namespace ingot::passes {

struct FusionOptions {
  int64_t rows = 0;                ///< preferred R (batch * time); 0 = each group's own
  double launch_bytes = 10e6;      ///< what one launch costs, as bytes moved in the same time
  int most_tensors = 24;           ///< full tensors read and written by one kernel
  int64_t most_columns = 1 << 17;  ///< elements of a row: a kernel may keep several rows at hand
  int most_sums = 12;              ///< column sums of one kernel
  int most_registers = 168;        ///< of a thread, estimated
};

/// From a pass's option `launch`, and the rows that values are stored by.
FusionOptions fusion_options(const Storage& storage, const PassContext& context);

/// A graph's ops as kernels would hold them. A set of ops is always sorted. Answers are remembered by the body they are about.
class FusionModel {
 public:
  FusionModel(const ir::Graph& graph, const Storage& storage, const FusionOptions& options);

  /// May the op be in a row region at all? Not if it replaces a variable that it reads.
  bool row_op(ir::OpId id) const;
  /// Is this set of ops one row region within the limits? Tries the preferred rows, then the region's own; `rows`: in, what an
  /// earlier, smaller set settled on; out, what this one does.
  bool plan(const std::vector<ir::OpId>& ops, int64_t& rows, std::string& why) const;
  /// The same for ops some of which are done elsewhere too: `stored` says which results this kernel stores.
  bool plan(const std::vector<ir::OpId>& ops, const std::function<bool(ir::ValueId)>& stored, int64_t& rows,
            std::string& why) const;
  /// Bytes of distinct inputs and of results that other ops read, and one launch. Outputs are stored whoever makes them and add
  /// nothing: one that is asked for to look at something must not change what is fused.
  double cost(const std::vector<ir::OpId>& ops) const;

  /// Ops that read a value, directly or through what goes along, in order.
  const std::vector<ir::OpId>& users(ir::ValueId value) const { return users_[value]; }
  /// Does an output or update name it?
  bool kept(ir::ValueId value) const { return kept_[value]; }
  double bytes(ir::ValueId value) const { return static_cast<double>(storage_.bytes(value)); }
  /// Of the part of a stored value that an operand shows.
  double bytes_shown(ir::ValueId operand, ir::ValueId base) const;
  const FusionOptions& options() const { return options_; }

 private:
  void find_users();
  bool replaces(ir::OpId id, const std::string& variable) const;
  void find_reads();
  bool read_outside(ir::ValueId value) const;
  void mark(const std::vector<ir::OpId>& ops) const;
  bool marked(ir::OpId op) const { return member_[op] == turn_; }
  bool plan_body(const ir::Graph& body, bool only_preferred, int64_t& rows, std::string& why) const;
  bool fits(const ir::Graph& body, const RegionPlan& plan, std::string& why) const;
  bool stands(const ir::Graph& body, const RegionPlan& plan, std::string& why) const;

  const ir::Graph& graph_;
  const Storage& storage_;
  const FusionOptions options_;
  std::vector<std::vector<ir::OpId>> users_;
  std::vector<bool> kept_;
  std::vector<bool> in_place_;  ///< per op: it replaces a variable element by element
  struct Read {
    ir::ValueId base;
    double bytes;
  };
  std::vector<std::vector<Read>> reads_;  ///< per op: what it would read from memory

  struct Answer {
    bool legal = false;
    int64_t rows = 0;
    std::string why;
  };
  mutable GroupKeys keys_;
  mutable std::unordered_map<GroupKeys::Key, Answer, GroupKeys::Hash> answers_[2];  ///< [settled on the preferred rows]
  // The set of ops at hand, and the bytes read of a value in it.
  mutable uint32_t turn_ = 0;
  mutable std::vector<uint32_t> member_, read_turn_;
  mutable std::vector<double> read_bytes_;
};

/// The body of a group as a region graph; `operands`: values of `graph` its inputs stand for; `results`: values its outputs make,
/// those of its ops that `stored` says.
ir::Graph region_body(const ir::Graph& graph, const Storage& storage, const std::vector<ir::OpId>& ops,
                      const std::function<bool(ir::ValueId)>& stored, std::vector<ir::ValueId>& operands,
                      std::vector<ir::ValueId>& results);

}  // namespace ingot::passes
