// What lives across programs, and what inputs may hold: the declarations that the graph and the plan half share.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/loc.h"
#include "ir/base/type.h"

namespace ingot::ir {

/// param: trained, saved, in checkpoints as weights.   state: lives across steps, saved (moments, counters, carried states).
/// hyper: a scalar the host may set between steps (learning rate, ...), saved as text.   compute: derived from params alone (16-bit
/// copies, packed layouts); remade by @prepare after any load and by the update step, never saved.
enum class VariableRole : uint8_t { param, state, hyper, compute };
std::string_view variable_role_name(VariableRole role);

/// What lives across programs: declared once in the module, read in graphs by the op `variable`.
///   param %blocks.0.att.w0: f32[1, 1, 64] = "-5.5 + 6 * pow(i / 63, 1)" {lr: 2.0, decay: 0.0}
struct Variable {
  std::string name;
  VariableRole role = VariableRole::param;
  Type type;
  /// Initial value: an expression of ir/base/expr.h over `i` (last axis), `j` (the axis before), numbers, and the random
  /// draws uniform, normal, orthogonal; may begin with `let NAME = EXPRESSION;` bindings. Draws are keyed by the variable's name.
  std::string init = "0";
  bool trainable = true;     ///< params only
  bool saved = true;         ///< in checkpoints (params and states); false for states carried while decoding
  double lr_factor = 1;      ///< factor of the train scalar `lr` (optimizer group)
  double decay_factor = 1;   ///< factor of the train scalar `decay`
  Loc loc;
  bool operator==(const Variable&) const = default;
};

/// What a graph input may hold: integers in lo..hi, or `also` (an ignore id). Checked when data arrives.
struct InputRange {
  std::string input;
  int64_t lo = 0;
  int64_t hi = 0;
  std::vector<int64_t> also;
  Loc loc;
  bool operator==(const InputRange&) const = default;
};

}  // namespace ingot::ir
