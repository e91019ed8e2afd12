// Builds one graph of a model. Its parts are in build.cpp, build_value.cpp and build_stack.cpp.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/base/error.h"
#include "ir/graph/builder.h"
#include "models/build.h"
#include "models/frame.h"

namespace ingot::models {

class GraphMaker {
 public:
  GraphMaker(const Description& model, const Config& config, const std::map<std::string, double>& train,
             const BuildOptions& options, Report& report)
      : model_(model), config_(config), train_(train), options_(options), report_(report), b_(out_.graph) {
    out_.graph.set_name(options.graph_name);
  }

  Built run();

 private:
  // ------------------------------------------------------------ inputs, parameters, statements, ends

  Slot input(const std::string& name);
  /// A size that cannot be is explained by the keys it is made of.
  int64_t size_of(const ir::Expr& size, const Frame& frame) const;
  ir::Type type_of(const TypeText& text, const Frame& frame) const;
  bool taken(const ir::ExprPtr& when, const Frame& frame) const;
  /// Parameters of a frame and of what it uses, in the order of the file.
  void declare_params(const Frame& frame);
  void declare_stack_params();
  static Frame sub_frame(const Frame& frame, const BlockText& block, const std::string& prefix);
  Frame layer_frame(const BlockText& block, size_t layer) const;
  void hypers();
  static ir::Variable hyper(const Setting& setting, double value);
  void statements(Frame& frame);
  void bind(const Word& name, Slot slot, Frame& frame);
  std::vector<Slot> assign(const Statement& statement, Frame& frame);
  void loss(Frame& frame);
  void scalar(const ir::Expr& e, ir::ValueId id, std::string_view what) const;
  void outputs(Frame& frame);
  void keep(const std::string& name);

  // ------------------------------------------------------------ expressions and calls of ops

  /// The values of a whole right side, one per name; the names go to the values this makes.
  std::vector<Slot> results(const ir::Expr& e, Frame& frame, const std::vector<std::string>& names);
  static void need_count(const ir::Expr& e, size_t least, size_t most, size_t names);
  static bool is_constant_expr(const ir::Expr& e, const Frame& frame);
  /// What a name stands for; values, parameters, config keys and train scalars share one space.
  Slot lookup(const ir::Expr& e, Frame& frame);
  ir::ValueId parameter(const ir::Expr& e, const Frame& frame);
  ir::ValueId constant(const ir::Expr& e, const ir::Constant& value, const std::string& name);
  /// One value. `name` is what the op that makes it is called; empty: something that tells where it is from.
  ir::ValueId value(const ir::Expr& e, Frame& frame, const std::string& name = "");
  static void need_one(const ir::Expr& e, size_t count);
  /// Makes the op at `loc`. Names that are empty or missing are made from the statement's.
  std::vector<ir::ValueId> make(const ir::OpDef& def, ir::Loc loc, std::vector<ir::ValueId> operands, ir::Attrs attrs,
                                std::vector<std::string> names);
  std::vector<Slot> call_op(const ir::Expr& e, Frame& frame, const std::vector<std::string>& names);
  /// `none`, and a name that is none here, leave an optional operand out; Builder refuses it elsewhere.
  ir::ValueId operand_value(const ir::Expr& e, Frame& frame);
  Slot argument(const ir::Expr& e, Frame& frame);

  // ------------------------------------------------------------ blocks, the stack, split

  std::vector<Slot> call_block(const ir::Expr& e, Frame& frame);
  std::vector<Slot> run_block(Frame& frame, ir::Loc loc);
  std::vector<Slot> split(const ir::Expr& e, Frame& frame, const std::vector<std::string>& names);
  std::vector<Slot> stack(const ir::Expr& e, Frame& frame, const std::vector<std::string>& names);
  /// A block takes the names in its `in` and replaces the first of them by what it returns.
  void step(Frame frame, std::map<std::string, Slot>& carried, ir::Loc loc);
  void residual(const Slot& slot);
  /// What a block makes of the first carried value: the values on elementwise paths from the one it took to the one it returns
  /// (the sums in between), in order.
  void residual(const Slot& before, const Slot& after);

  /// Runs a step; mistakes are reported, poison is silent. False when there was either.
  template <class F>
  bool attempt(F&& step) {
    bool clean = true;
    const bool fine = report_.attempt([&] {
      try {
        step();
      } catch (const Poisoned&) {
        clean = false;
      }
    });
    return fine && clean;
  }

  /// Blocks that use one another in a circle end here.
  template <class F>
  void nest(ir::Loc loc, F&& step) {
    if (depth_ >= 32) throw ir::UserError(loc, "blocks use one another more than 32 deep (in a circle?)");
    ++depth_;
    step();
    --depth_;
  }

  static constexpr int kPoisonedParam = -1, kAbsentParam = -2;

  const Description& model_;
  const Config& config_;
  const std::map<std::string, double>& train_;
  const BuildOptions& options_;
  Report& report_;
  Built out_;
  ir::Builder b_;
  Frame* main_ = nullptr;
  std::vector<std::string> blocks_;    // kinds along the stack
  std::map<std::string, int> params_;  // full name -> index into out_.variables, or one of the above
  std::set<std::string> declared_;     // prefixes whose parameters exist
  std::string stem_;                   // name of the statement being built, for values without one
  int depth_ = 0;
};

}  // namespace ingot::models
