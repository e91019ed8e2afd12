// A model file, read: every text parsed and located, nothing evaluated yet.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/expr.h"
#include "ir/base/type.h"

namespace ingot::models {

/// A word with its place.
struct Word {
  std::string text;
  ir::Loc loc;
};

/// f32[vocab, width]
struct TypeText {
  ir::DType dtype = ir::DType::f32;
  std::vector<ir::ExprPtr> sizes;
  ir::Loc loc;
};

/// A config or train key. `mentioned` are expressions that were replaced (by a file that extends, or on the command line):
/// what they mention counts as used.
struct Setting {
  Word name;
  ir::ExprPtr value;  ///< nullptr = it did not parse (already reported)
  std::vector<ir::ExprPtr> mentioned;
  bool overridden = false;  ///< on the command line
};

/// NAME: TYPE [in LO .. HI [or X]...]
struct InputText {
  Word name;
  TypeText type;
  ir::ExprPtr lo, hi;  ///< both or neither
  std::vector<ir::ExprPtr> also;
};

/// NAME: TYPE = INITIAL VALUE [when CONDITION]
struct ParamText {
  Word name;
  TypeText type;
  ir::ExprPtr init, when;
};

/// NAME[, NAME]: EXPRESSION [when CONDITION]. expr == nullptr: it did not parse; its names are poisoned.
struct Statement {
  std::vector<Word> names;
  ir::ExprPtr expr, when;
};

struct LetText {
  Word name;
  ir::ExprPtr value;
};

struct UseText {
  Word prefix, block;
};

/// A block, or (with an empty name, `in` = the inputs) the model's own params and graph.
struct BlockText {
  Word name;
  std::vector<Word> in, out;
  std::vector<UseText> use;
  std::vector<LetText> lets;
  std::vector<ParamText> params;
  std::vector<Statement> graph;

  const UseText* find_use(std::string_view prefix) const;
  const LetText* find_let(std::string_view name) const;
  const ParamText* find_param(std::string_view name) const;
};

struct StackText {
  ir::ExprPtr blocks;
  Word prefix;  ///< with {layer} in it
  std::vector<Word> carry;
  ir::Loc loc;
};

struct GroupText {
  Word match;
  int64_t min_rank = 0;
  double lr = 1, decay = 1;
};

struct OptimizerText {
  Word rule, schedule, clip;
  std::vector<GroupText> groups;
  bool groups_complete = true;  ///< false: one could not be read
  ir::Loc loc;
};

/// The config key that every model takes: the id of the token that ends a document (models/README.md).
inline constexpr std::string_view kDocumentEnd = "eod";

struct Description {
  std::string name;
  std::vector<Setting> config, train;
  std::vector<InputText> inputs;
  BlockText main;
  std::vector<BlockText> blocks;
  std::optional<StackText> stack;
  std::vector<ir::ExprPtr> replaced_stacks;  ///< `stack.blocks` of files this one extends: blocks named there count as used
  ir::ExprPtr loss;
  ir::Loc loss_loc;
  std::vector<Word> outputs;
  std::optional<OptimizerText> optimizer;
  std::vector<Word> pin;
  bool residual_f32 = false;
  std::vector<std::string> checkpoint_ignore;
  bool incomplete = false;  ///< a whole section could not be read

  Setting* find_setting(std::string_view name);  ///< config or train
  const Setting* find_config(std::string_view name) const;
  const Setting* find_train(std::string_view name) const;
  const BlockText* find_block(std::string_view name) const;
};

}  // namespace ingot::models
